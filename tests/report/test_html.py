import ast
import copy
import html.parser
import importlib.resources
import inspect
import json
import math
import re
import sys
from typing import Any

import pytest

import safestitch.report.html
from safestitch.report.html import PARTS, PLACEHOLDER, render

HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>&lt;\u2028\u2029]]>'\"\\{{ page data }}"
TEMPLATES = ("page.html", "data.html", "compare.html")
SECTIONS = {"dial", "charts", "table", "curves", "provenance"}


def row(limit: float) -> dict:
    figure = [1.5, 1.25, 1.75]
    norm = figure if limit > 0 else [None, None, None]
    return {
        "limit": limit,
        "limit_fraction": limit / 20.0,
        "reward": figure,
        "cost": figure,
        "reward_norm": figure,
        "cost_norm": norm,
        "violation_rate": [0.1, 0.05, 0.15],
        "frontier_ratio": [None, None, None],
    }


def sample() -> dict:
    path = {"x": [0.1, 0.2, 1 / 3], "y": [0.0, -1.0, 1e-7], "cost": [0.0, 1.0, 0.0]}
    curve = {"name": "loss/policy", "step": [0, 10], "mean": [2.0, 1.0]}
    return {
        "task": "StitchChain",
        "algorithm": "gas",
        "seeds": [0, 1],
        "episodes": 100,
        "cost_range": 20.0,
        "horizon": 20,
        "dial": [{**row(limit), "optimum": 20.0 + limit, "paths": [path]} for limit in (0.0, 10.0)],
        "table": [row(2.0)],
        "picture": {
            "x_label": "cell",
            "y_label": "lane",
            "zones": [[None, None, 0.0, None]],
            "zone_label": "the toll lane (above 0) costs 1 a cell",
            "guide": [],
        },
        "frontier": {"costs": [0.0, 4.0], "rewards": [10.0, 12.0]},
        "data": {
            "source": "built-in StitchChain, seed 0",
            "episodes": 1500,
            "steps": 30000,
            "reward_min": 0.0,
            "reward_max": 30.0,
            "cost_min": 0.0,
            "cost_max": 20.0,
            "fingerprint": "abc",
        },
        "curves": [{**curve, "low": [1.5, 0.5], "high": [2.5, 1.5]}],
        "settings": {"alpha": 0.8, "note": "naïve Γ 漢字 🤖"},
        "versions": {"python": "3.11.7"},
        "commands": ["safestitch train gas StitchChain --out runs/first"],
    }


class Reader(html.parser.HTMLParser):
    """What a browser would see: tags with attributes, and the text of each script block."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.scripts: list[tuple[dict, str]] = []
        self.in_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.in_script = tag == "script"
        if self.in_script:
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self.in_script = self.in_script and tag != "script"

    def handle_data(self, data):
        if self.in_script:
            attrs, before = self.scripts[-1]
            self.scripts[-1] = (attrs, before + data)

    def page(self) -> dict:
        (found,) = [text for attrs, text in self.scripts if attrs.get("type") == "application/json"]
        return json.loads(found)


def poisoned(value: Any) -> Any:
    """The same page with every string replaced by the hostile one."""
    if isinstance(value, dict):
        return {key: poisoned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


def test_data_come_back_exactly():
    assert Reader(render(sample())).page() == sample()


def test_render_leaves_the_input_alone():
    page = sample()
    page["dial"][0]["cost_norm"] = [math.nan] * 3
    before = copy.deepcopy(page)
    render(page)
    assert repr(page) == repr(before)


def test_hostile_strings_stay_data():
    page = poisoned(sample())
    page["settings"][HOSTILE] = 1
    reader, innocent = Reader(render(page)), Reader(render(sample()))
    assert reader.page() == page
    assert reader.tags == innocent.tags
    assert reader.scripts[1:] == innocent.scripts[1:]


@pytest.mark.parametrize("character", ["<", ">", "&", "\u2028", "\u2029"])
def test_dangerous_characters_are_escaped_in_the_data(character):
    page = {"task": f"a{character}b"}
    text = render(page)
    assert f"a{character}b" not in text
    assert f"a\\u{ord(character):04x}b" in text
    assert Reader(text).page() == page


def test_script_never_parses_data_as_markup():
    script = Reader(render(sample())).scripts[-1][1]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", script)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nonfinite_numbers_become_null(value):
    page = sample()
    page["dial"][0]["cost_norm"] = (value, value, value)
    page["picture"]["zones"] = ((-math.inf, 1.0, value, 2.0),)
    text = render(page)
    found = Reader(text).page()
    assert found["dial"][0]["cost_norm"] == [None, None, None]
    assert found["picture"]["zones"] == [[None, 1.0, None, 2.0]]


def test_what_json_cannot_say_is_refused():
    with pytest.raises(TypeError, match="set"):
        render({"seeds": {1, 2}})


def test_nothing_is_loaded_from_elsewhere():
    text = render(sample())
    addresses = re.findall(r"""https?://[^\s"'`)]*""", text)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    reader = Reader(text)
    assert not [tag for tag, attrs in reader.tags if {"src", "href", "srcset"} & attrs.keys()]
    assert not re.search(r"@import|url\((?!#)|\bfetch\(|XMLHttpRequest|import\(", text)
    policies = [attrs.get("content", "") for tag, attrs in reader.tags if tag == "meta"]
    assert any("default-src 'none'" in policy for policy in policies)


def test_all_sections_are_there():
    tags = Reader(render(sample())).tags
    assert {attrs.get("id") for tag, attrs in tags if tag == "section"} == SECTIONS
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert ("input", "slider") in {(tag, attrs.get("id")) for tag, attrs in tags}
    assert "details" in {tag for tag, _ in tags}


def test_every_element_the_script_asks_for_exists():
    reader = Reader(render(sample()))
    ids = {attrs["id"] for _, attrs in reader.tags if "id" in attrs}
    asked = re.findall(r"""(?:byId|setText)\("([\w-]+)\"""", reader.scripts[-1][1])
    assert len(asked) > 10
    assert set(asked) <= ids


def source(name: str) -> str:
    return importlib.resources.files("safestitch.report").joinpath(name).read_text("utf-8")


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_marker_is_filled(template):
    assert source(template).count(PLACEHOLDER) == 1
    text = render(sample(), template)
    assert "{{" not in text
    for part in PARTS:
        assert text.count(source(part).rstrip()) == 1


def test_data_are_never_taken_for_a_marker():
    page = sample() | {"task": "".join("{{ " + part + " }}" for part in (*PARTS, "page data"))}
    assert Reader(render(page)).page() == page


def test_shared_parts_are_shared():
    """What only one page needs belongs to that page."""
    style, drawing = source("style.css"), source("drawing.js")
    names = re.findall(r"^(?:function|const) (\w+)", drawing, re.MULTILINE)
    classes = set(re.findall(r"\.([a-z]+)\b(?=[^{}]*\{)", style))
    assert len(names) > 20 and len(classes) > 20

    def users(name: str, defined: int) -> int:
        texts = [source(template) + drawing for template in TEMPLATES]
        return sum(len(re.findall(rf"\b{name}\b", text)) > defined for text in texts)

    lonely = [name for name in names if users(name, 1) < 2]
    lonely += [name for name in classes if users(name, 0) < 2]
    assert not lonely


def test_only_the_standard_library_is_imported():
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(safestitch.report.html))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    assert "json" in found
    assert found <= sys.stdlib_module_names
