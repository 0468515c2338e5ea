"""Which columns of a log mean what: from flags, a small TOML, or the names of the columns."""

import dataclasses
import fnmatch
import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from safestitch.names import unknown
from safestitch.records import DataError

COST_KINDS = ("number", "flag", "margin", "broken-margin")
LARGEST_TOML = 1_000_000  # bytes; a mapping is a page of text


@dataclasses.dataclass(frozen=True)
class CostPart:
    """One column of the cost; several are summed with their weights."""

    column: str
    kind: str = "number"
    """number: the cost itself. flag: 1 where true. margin: the distance to the bound, >= 0 while it
    is kept; costs max(0, -margin). broken-margin: costs 1 where margin < 0."""
    weight: float = 1.0

    def __post_init__(self):
        if self.kind not in COST_KINDS:
            raise DataError(unknown("kind of cost", self.kind, COST_KINDS))
        if not math.isfinite(self.weight) or self.weight == 0:
            raise DataError(f"cost {self.column}: the weight {self.weight} is not a number but 0")

    @classmethod
    def parse(cls, text: str) -> "CostPart":
        """From `column`, `column:kind` or `column:kind:weight`.

        Example:
            >>> CostPart.parse("clearance:margin:2")
            CostPart(column='clearance', kind='margin', weight=2.0)
        """
        column, *rest = text.split(":")
        if not column or len(rest) > 2:
            raise DataError(f"cost '{text}': expected column, column:kind or column:kind:weight")
        kind = rest[0] if rest else "number"
        return cls(column, kind, _number(f"cost '{text}'", rest[1]) if len(rest) > 1 else 1.0)


@dataclasses.dataclass(frozen=True)
class Mapping:
    """What each column means; empty fields are guessed from the names of the columns.

    `obs` and `action` are names or patterns such as `obs.*`. A pattern keeps the order of the file;
    names that differ by a number alone are put in the order of that number.
    """

    obs: tuple[str, ...] = ()
    action: tuple[str, ...] = ()
    reward: str = ""
    cost: tuple[CostPart, ...] = ()
    episode: str = ""
    """Column whose value changes where a new episode begins; numbers or text."""
    step: str = ""
    """Column that rises within an episode."""
    terminated: str = ""
    """Column that is true where the task ended the episode."""
    truncated: str = ""
    """Column that is true where the clock ended it."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Mapping":
        """From plain values, as a TOML file holds them.

        Raises:
            DataError: for an unknown key or a value of another type.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                raise DataError(unknown("key of the mapping", str(key), known))
        read: dict[str, Any] = {
            key: _names(key, value) if key in ("obs", "action") else _name(key, value)
            for key, value in values.items()
            if key != "cost"
        }
        if "cost" in values:
            read["cost"] = _costs(values["cost"])
        return cls(**read)

    def but(self, other: "Mapping") -> "Mapping":
        """This mapping with every field that the other one gives."""
        given = {f.name: getattr(other, f.name) for f in dataclasses.fields(other)}
        return dataclasses.replace(self, **{name: value for name, value in given.items() if value})

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column named, once."""
        single = (self.reward, self.episode, self.step, self.terminated, self.truncated)
        costs = (part.column for part in self.cost)
        return tuple(dict.fromkeys(n for n in (*self.obs, *self.action, *single, *costs) if n))

    def plain(self) -> dict[str, Any]:
        """As JSON can say it."""
        return dataclasses.asdict(self)


def read_mapping(path: Path) -> Mapping:
    """Read a TOML file.

    Raises:
        DataError: if it cannot be read, is no TOML, or holds what a mapping does not.
    """
    try:
        with open(path, "rb") as handle:
            content = handle.read(LARGEST_TOML + 1)
        if len(content) > LARGEST_TOML:
            raise DataError(f"{path} is over 1 MB: a mapping is a few lines of TOML")
        return Mapping.of(tomllib.loads(content.decode()))
    except OSError as error:
        raise DataError(f"cannot read the mapping {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path} is not TOML: {error}") from None


# --- guessing ----------------------------------------------------------------------------------

PATTERNS = {
    "obs": ("obs", "observation", "observations", "state", "states"),
    "action": ("action", "actions", "act"),
}
SINGLE = {
    "reward": ("reward", "rewards", "rew"),
    "cost": ("cost", "costs"),
    "episode": (
        "episode", "episode_id", "episode_index", "ep", "trajectory", "trajectory_id", "traj",
        "traj_id", "trial", "trip_id", "rollout_id",
    ),
    "step": ("step", "t", "timestep", "time_step", "step_index", "frame_index"),
    "terminated": ("terminated", "terminal", "terminals", "terminations"),
    "truncated": ("truncated", "timeout", "timeouts", "truncations"),
}  # fmt: skip
NEEDED = ("obs", "action", "reward", "cost")


def resolve(mapping: Mapping, columns: Sequence[str]) -> tuple[Mapping, tuple[str, ...]]:
    """The mapping with every pattern replaced by columns that exist, and what was guessed.

    Raises:
        DataError: if a column does not exist, or one that is needed cannot be guessed.
    """
    found: dict[str, Any] = {}
    guesses = []
    for name in (*NEEDED, "episode", "step", "terminated", "truncated"):
        given = getattr(mapping, name)
        found[name] = _existing(name, given, columns) if given else _guess(name, columns)
        if found[name] and not given:
            guesses.append(f"{name} = {_shown(found[name])}")
        if not found[name] and name in NEEDED:
            raise DataError(
                f"{name}: no column looks like it; say which with --{name} or in --map "
                f"({_listed(columns)})"
            )
    resolved = Mapping(**found)
    _check_ends_known(resolved, columns)
    return resolved, tuple(guesses)


def _existing(name: str, given: Any, columns: Sequence[str]) -> Any:
    if name in ("obs", "action"):
        matched = (column for pattern in given for column in _match(name, pattern, columns))
        return tuple(dict.fromkeys(matched))
    for column in [part.column for part in given] if name == "cost" else [given]:
        if column not in columns:
            raise DataError(f"{name}: {unknown('column', column, columns)}")
    return given


def _match(name: str, pattern: str, columns: Sequence[str]) -> list[str]:
    if pattern in columns:
        return [pattern]
    matched = [column for column in columns if fnmatch.fnmatchcase(column, pattern)]
    if not matched:
        raise DataError(f"{name}: no column matches '{pattern}' ({_listed(columns)})")
    return _by_number(matched)


def _by_number(names: list[str]) -> list[str]:
    """`obs.10` after `obs.2`, where the names differ by that number alone."""
    parts = [re.fullmatch(r"(.*?)(\d{1,9})(\D*)", name) for name in names]
    frames = {(part[1], part[3]) if part else None for part in parts}
    if None in frames or len(frames) != 1:
        return names
    return sorted(names, key=lambda name: int(re.findall(r"\d+", name)[-1]))


def _guess(name: str, columns: Sequence[str]) -> Any:
    folded = {column.lower(): column for column in reversed(columns)}
    if name in PATTERNS:
        for word in PATTERNS[name]:
            if word in folded:
                return (folded[word],)
            many = [c for c in columns if re.fullmatch(rf"{word}[._\[ ]\w+\]?", c.lower())]
            many = [c for c in many if "next" not in c.lower()]
            if many:
                return tuple(_by_number(many))
        return ()
    column = next((folded[word] for word in SINGLE[name] if word in folded), "")
    return ((CostPart(column),) if column else ()) if name == "cost" else column


def _check_ends_known(mapping: Mapping, columns: Sequence[str]) -> None:
    if mapping.episode or mapping.terminated or mapping.truncated or mapping.step:
        return
    both = next((c for c in columns if c.lower() in ("done", "dones")), None)
    hint = (
        f"'{both}' does not say who ended an episode: give it as --terminated if the task did, "
        "as --truncated if the clock did"
        if both
        else "give --episode, --terminated, --truncated or --step"
    )
    raise DataError(f"nothing says where an episode ends: {hint} ({_listed(columns)})")


def _listed(columns: Sequence[str], most: int = 12) -> str:
    more = f" and {len(columns) - most} more" if len(columns) > most else ""
    return f"the columns are {', '.join(columns[:most])}{more}"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    names = [part.column if isinstance(part, CostPart) else part for part in value]
    return ", ".join(names) if len(names) < 4 else f"{names[0]} .. {names[-1]} ({len(names)})"


# --- reading values ----------------------------------------------------------------------------


def _name(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise DataError(f"{key}: expected the name of a column, got {value!r}")
    return value


def _names(key: str, value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Iterable) or isinstance(values, dict):
        raise DataError(f"{key}: expected names or patterns of columns, got {value!r}")
    return tuple(_name(key, each) for each in values)


def _costs(value: Any) -> tuple[CostPart, ...]:
    return tuple(_cost(each) for each in (value if isinstance(value, list | tuple) else [value]))


def _cost(value: Any) -> CostPart:
    if isinstance(value, CostPart):
        return value
    if isinstance(value, str):
        return CostPart(value)
    if not isinstance(value, dict) or not isinstance(value.get("column"), str):
        raise DataError(f"cost: expected a column, or {{column, kind, weight}}, got {value!r}")
    known = [field.name for field in dataclasses.fields(CostPart)]
    for key in value:
        if key not in known:
            raise DataError(unknown("key of a cost", str(key), known))
    weight = _number(f"cost {value['column']}: weight", value.get("weight", 1.0))
    return CostPart(value["column"], str(value.get("kind", "number")), weight)


def _number(what: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{what}: expected a number, got {value!r}") from None
