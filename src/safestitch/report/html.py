"""A report's data into one self-contained HTML page: plain Python, without JAX."""

import importlib.resources
import json
import math
from typing import Any

PLACEHOLDER = "{{ page data }}"
"""Where a template takes the data."""
PARTS = ("style.css", "drawing.js")
"""What the pages share; a template takes a part at the marker of its name."""

# The HTML parser ends a script block at "</script" whatever JSON says, so no "<" may reach it.
_MARKUP = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def render(page: dict[str, Any], template: str = "page.html") -> str:
    """The page as HTML text; NaN and infinities become null, which the page shows as a dash."""
    text = _read(template)
    for part in PARTS:
        text = text.replace("{{ " + part + " }}", _read(part).rstrip())
    # The data come last: whatever they say, nothing in them is taken for a marker.
    return text.replace(PLACEHOLDER, _embeddable_json(page))


def _read(name: str) -> str:
    folder = importlib.resources.files("safestitch.report")
    return folder.joinpath(name).read_text(encoding="utf-8")


def _embeddable_json(page: dict[str, Any]) -> str:
    """JSON in ASCII (so without U+2028 and U+2029) that holds no HTML markup."""
    text = json.dumps(_without_nonfinite(page), allow_nan=False, separators=(",", ":"))
    return text.translate(str.maketrans(_MARKUP))


def _without_nonfinite(value: Any) -> Any:
    """The same value with null for NaN and infinities, which JSON cannot say."""
    if isinstance(value, dict):
        return {key: _without_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nonfinite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
