"""A reproduction file: tasks, methods, seeds, limits and data of a comparison, checked at once.

tasks = ["BallRun", "CarRun"]
seeds = 3
minutes = 15                       # of training per task and method; or settings.iterations
limits = ["10%", "20%", "30%"]
episodes = 10
episode_seed = 1                   # of the start states; 0 unless given

[data]
command = ["data", "make", "{task}"]  # words after `safestitch`, for data that are not on disk
more = { BallRun = ["--seed", "1"] }  # and further words for some tasks
files = { CarRun = "logs/car.h5" }    # or files of one's own

[methods.gas]
presets = { CarRun = "careful" }   # for some tasks
[methods.patient-gas]
algorithm = "gas"                  # the name of the method unless given
preset = "paper"
settings = { alpha = 0.9 }
seeds = 1                          # seeds, minutes and tasks: for this method only
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safestitch.algos import get_algorithm
from safestitch.catalog import catalog
from safestitch.comparing.entries import NAME
from safestitch.envs import TASKS
from safestitch.evaluation.limits import PAPER_LIMITS, parse_limit
from safestitch.names import lookup, unknown
from safestitch.records import SafestitchError

LARGEST = 1_000_000
"""Bytes of a reproduction file."""
SEEDS, TIMES = (1, 1000, int), (0.001, 1e6, float)
"""Least, most, kind of a number of seeds, and of minutes."""


@dataclasses.dataclass(frozen=True)
class Method:
    """One column of the table."""

    name: str
    algorithm: str
    preset: str
    settings: Mapping[str, Any]
    """Fields of the algorithm's config that differ from the preset."""
    seeds: int
    minutes: float | None
    """Of training; the iterations that fit are measured. None: as the settings say."""
    tasks: tuple[str, ...]
    presets: Mapping[str, str]
    """Task -> preset, where it is another one."""

    def config(self, task: str) -> Any:
        """The algorithm's config on a task."""
        algorithm = get_algorithm(self.algorithm)
        preset = lookup("preset", self.presets.get(task, self.preset), algorithm.presets)
        known = [field.name for field in dataclasses.fields(preset)]
        for name in self.settings:
            if name not in known:
                raise SafestitchError(f"{self.name}: {unknown('setting', name, known)}")
        return dataclasses.replace(preset, **self.settings)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A comparison to be run."""

    name: str
    tasks: tuple[str, ...]
    methods: tuple[Method, ...]
    limits: tuple[str, ...]
    episodes: int | None
    episode_seed: int
    against: str | None
    data_command: tuple[str, ...]
    """Words after `safestitch` that get or make a task's data; `{task}` is its name."""
    data_more: dict[str, tuple[str, ...]]
    """Task -> further words of its command."""
    data_files: Mapping[str, Path]
    data_seed: int


def read_plan(path: Path) -> Plan:
    """A plan from its file; what algorithms and settings it names is not looked at.

    Raises:
        SafestitchError: names the key that is wrong, and what is expected.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise SafestitchError(f"{path} is larger than {LARGEST:,} bytes: is it the right file?")
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SafestitchError(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SafestitchError(f"{path} is not TOML: {error}") from None
    return _plan(_Table(path, "", found), path)


def check_names(plan: Plan) -> None:
    """Raise unless every task, algorithm and setting exists: before hours of work, not after."""
    for task in plan.tasks:
        lookup("task", task, TASKS | catalog())
    for method in plan.methods:
        for task in method.tasks:
            method.config(task)


def _plan(top: "_Table", path: Path) -> Plan:
    top.only(
        *("tasks", "methods", "seeds", "minutes", "limits", "episodes", "episode_seed"),
        *("against", "data"),
    )
    tasks = _names(top, "tasks")
    data = top.table("data")
    data.only("command", "more", "files", "seed")
    more, files = data.table("more"), data.table("files")
    more.only(*tasks)
    files.only(*tasks)
    limits = tuple(top.get("limits", list, list(PAPER_LIMITS), str))
    for limit in limits:
        parse_limit(limit, 1.0)
    methods = top.table("methods")
    if not methods.found:
        raise SafestitchError(f"{path} has no methods: give at least one, as [methods.gas]")
    plan = Plan(
        name=path.stem,
        tasks=tasks,
        methods=tuple(_method(methods.table(name), name, top, tasks) for name in methods.found),
        limits=limits,
        episodes=top.number("episodes", None, 1, 10_000),
        episode_seed=top.number("episode_seed", 0, 0, 2**32 - 1),
        against=top.get("against", str, None),
        data_command=tuple(data.get("command", list, [], str)),
        data_more={task: tuple(more.get(task, list, [], str)) for task in more.found},
        data_files={task: path.parent / files.get(task, str, "") for task in files.found},
        data_seed=data.number("seed", 0, 0, 2**32 - 1),
    )
    if plan.against is not None and plan.against not in methods.found:
        raise SafestitchError(f"{path}: {unknown('method', plan.against, methods.found)}")
    return plan


def _method(table: "_Table", name: str, top: "_Table", tasks: tuple[str, ...]) -> Method:
    table.only("algorithm", "preset", "presets", "settings", "seeds", "minutes", "tasks")
    if not NAME.fullmatch(name):
        raise SafestitchError(f"{table}: a method is called by letters, digits and - + . _")
    own = _names(table, "tasks") if "tasks" in table.found else tasks
    for task in own:
        lookup("task of the file", task, dict.fromkeys(tasks))
    presets = table.table("presets")
    presets.only(*own)
    return Method(
        name=name,
        algorithm=table.get("algorithm", str, name),
        preset=table.get("preset", str, "fast"),
        settings=table.table("settings").found,
        seeds=table.number("seeds", top.number("seeds", 1, *SEEDS), *SEEDS),
        minutes=table.number("minutes", top.number("minutes", None, *TIMES), *TIMES),
        tasks=own,
        presets={task: presets.get(task, str, "") for task in presets.found},
    )


def _names(table: "_Table", key: str) -> tuple[str, ...]:
    found = tuple(table.get(key, list, [], str))
    wrong = [name for name in found if not NAME.fullmatch(name)]
    if not found or wrong or len(set(found)) < len(found):
        raise SafestitchError(
            f"{table}{key} is {list(found)}: expected at least one name, each once, of letters, "
            "digits and - + . _"
        )
    return found


class _Table:
    """A table of the file that knows where it is, for errors."""

    def __init__(self, path: Path, place: str, found: Any):
        self.path, self.place, self.found = path, place, found
        if not isinstance(found, dict):
            raise SafestitchError(f"{path}: {place.rstrip('.')} is {found!r}: expected a table")

    def __str__(self) -> str:
        return f"{self.path}: {self.place}"

    def only(self, *known: str) -> None:
        """Raise if there is a key of another name."""
        for key in self.found:
            if key not in known:
                raise SafestitchError(f"{self}{key}: {unknown('key', key, known)}")

    def table(self, key: str) -> "_Table":
        """A table within; empty unless given."""
        return _Table(self.path, f"{self.place}{key}.", self.found.get(key, {}))

    def get(self, key: str, kind: type, default: Any, of: type | None = None) -> Any:
        """A value of a kind; of a list, all of them of one kind."""
        value = self.found.get(key, default)
        if value is default:
            return value
        alike = of is None or (isinstance(value, list) and all(isinstance(v, of) for v in value))
        if not isinstance(value, kind) or not alike:
            words = {str: "text", list: "a list of texts"}[kind]
            raise SafestitchError(f"{self}{key} is {value!r}: expected {words}")
        return value

    def number(
        self, key: str, default: Any, low: float | int, high: float | int, kind: type = int
    ) -> Any:
        """A number within bounds."""
        value = self.found.get(key, default)
        if value is default:
            return value
        kinds = (int, float) if kind is float else (int,)
        if type(value) not in kinds or not low <= value <= high:
            what = "a number" if kind is float else "a whole number"
            raise SafestitchError(f"{self}{key} is {value!r}: expected {what}, {low:g} to {high:g}")
        return kind(value)
