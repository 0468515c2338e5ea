"""Rules of the source tree, read from its syntax."""

import ast
import functools
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "safestitch"

# A part may import of ours only what stands in a later row, and itself. "" is `safestitch` itself.
LAYERS = (
    {"__main__"},
    {"cli"},
    {""},
    {"reproducing"},
    {"comparing", "report", "doctor"},
    {"behaviours"},
    {"training", "evaluation"},
    {"policy"},
    {"algos", "envs", "sims"},
    {"learn", "nn", "transformer", "runs", "scaling", "data"},
    {"catalog", "episodes"},
    {"files", "memory", "names"},
    {"records"},
)
LEVEL = {part: len(LAYERS) - row for row, parts in enumerate(LAYERS) for part in parts}
# Of its own package, a module of these may import these only; the registry imports them all.
SHARED = {
    "algos": {
        "asking",
        "augmenting",
        "base",
        "modes",
        "reshaping",
        "segments",
        "switching",
        "transitions",
        "windows",
    },
    "envs": {"base"},
}

UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "joblib", "cloudpickle", "shelve"}
NEEDS_JAX = {"jax", "jaxlib", "equinox", "optax"}
HEAVY = ("tensorboardX", "gymnasium", "mujoco", "pybullet", "matplotlib", "ray")
MAX_FUNCTION, MAX_FILE, MAX_ARGUMENTS = 60, 400, 7

FILES = sorted(PACKAGE.rglob("*.py"))
ALGORITHM_FILES = [
    path
    for path in sorted((PACKAGE / "algos").glob("*.py"))
    if path.stem not in {"__init__", *SHARED["algos"]}
]
every_file = pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
every_algorithm = pytest.mark.parametrize("path", ALGORITHM_FILES, ids=lambda p: p.stem)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def file_of(module: str) -> Path | None:
    base = PACKAGE.parent.joinpath(*module.split("."))
    found = [p for p in (base / "__init__.py", base.with_suffix(".py")) if p.exists()]
    return found[0] if found else None


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path, *, on_import_only: bool = False) -> Iterator[tuple[int, str]]:
    """(line, full module name) of everything a file imports, our submodules told from names."""
    tree = parsed(path)
    for node in _executed_on_import(tree) if on_import_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, path)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                ours = base.split(".")[0] == "safestitch" and file_of(full)
                yield node.lineno, full if ours else base


def _absolute(node: ast.ImportFrom, path: Path) -> str:
    if not node.level:
        return node.module or ""
    package = path.relative_to(PACKAGE.parent).parts[: -node.level]
    return ".".join([*package, node.module] if node.module else package)


def _executed_on_import(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _executed_on_import(child)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


# --- layers ------------------------------------------------------------------------------------


def test_there_is_something_to_check():
    assert len(FILES) > 10
    assert ALGORITHM_FILES


@every_file
def test_every_module_has_a_layer(path):
    part = part_of(module_of(path))
    assert part in LEVEL, (
        f"safestitch.{part} has no layer: add it to LAYERS in {Path(__file__).relative_to(ROOT)}, "
        "in the row of the parts it stands beside"
    )


@every_file
def test_imports_go_downwards(path):
    part = part_of(module_of(path))
    assert part in LEVEL, f"safestitch.{part} has no layer: add it to LAYERS"
    for line, imported in imports(path):
        if imported.split(".")[0] != "safestitch":
            continue
        other = part_of(imported)
        assert other in LEVEL, f"{path}:{line}: safestitch.{other} has no layer: add it to LAYERS"
        assert other == part or LEVEL[other] < LEVEL[part], (
            f"{path}:{line}: {part or 'safestitch'} may not import {other or 'safestitch'}: only "
            "what stands lower in LAYERS"
        )


@pytest.mark.parametrize("package", SHARED)
def test_algorithms_and_tasks_do_not_import_one_another(package):
    for path in sorted((PACKAGE / package).glob("*.py")):
        if path.stem == "__init__":
            continue
        for line, imported in imports(path):
            parts = imported.split(".")
            if parts[:2] != ["safestitch", package]:
                continue
            assert len(parts) > 2 and parts[2] in SHARED[package], (
                f"{path}:{line}: imports {imported}; of its own package it may import only "
                f"{', '.join(sorted(SHARED[package]))}"
            )


def report_files() -> list[Path]:
    return [p for p in FILES if part_of(module_of(p)) == "report"]


def test_the_report_needs_no_jax():
    """A page must build on a bare laptop: follow what importing the report imports."""
    reached: dict[Path, str] = {}
    waiting = [(path, module_of(path)) for path in report_files()]
    while waiting:
        path, way = waiting.pop()
        if path in reached:
            continue
        reached[path] = way
        own = part_of(module_of(path)) == "report"
        for line, imported in imports(path, on_import_only=not own):
            assert imported.split(".")[0] not in NEEDS_JAX, f"{path}:{line}: {imported}, by {way}"
            waiting += [(p, f"{way} -> {module_of(p)}") for p in _files_run_by(imported)]
        waiting += [(p, f"{way} -> {module_of(p)}") for p in _files_run_by(module_of(path))]


def _files_run_by(module: str) -> Iterator[Path]:
    """Importing a.b.c runs a, a.b and a.b.c."""
    parts = module.split(".")
    if parts[0] == "safestitch":
        for size in range(1, len(parts) + 1):
            path = file_of(".".join(parts[:size]))
            if path is not None:
                yield path


# --- what is loaded ----------------------------------------------------------------------------


def loaded_by(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return {name.split(".")[0] for name in result.stdout.split()}


def test_import_safestitch_loads_nothing_heavy():
    loaded = loaded_by("import safestitch")
    assert "safestitch" in loaded
    assert not loaded & set(HEAVY)


def test_importing_the_report_does_not_load_jax():
    modules = [module_of(path) for path in report_files()]
    assert modules
    assert not loaded_by(f"import {', '.join(modules)}") & NEEDS_JAX


@every_file
def test_nothing_is_unpickled(path):
    for line, imported in imports(path):
        assert imported.split(".")[0] not in UNPICKLERS, f"{path}:{line}: imports {imported}"
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            off = isinstance(node.value, ast.Constant) and node.value.value is False
            assert off, f"{path}:{node.value.lineno}: allow_pickle must be False"


# --- sizes and names ---------------------------------------------------------------------------


@every_file
def test_file_length(path):
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_FILE, f"{path} has {lines} lines, at most {MAX_FILE}: split it"


@every_file
def test_function_length(path):
    for node in functions(path):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        assert lines <= MAX_FUNCTION, (
            f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {MAX_FUNCTION}"
        )


@every_file
def test_number_of_arguments(path):
    for node in functions(path):
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        if names[:1] in (["self"], ["cls"]):
            names = names[1:]
        assert len(names) <= MAX_ARGUMENTS, (
            f"{path}:{node.lineno}: {node.name} takes {len(names)} positional arguments, at most "
            f"{MAX_ARGUMENTS}: make the rest keyword-only"
        )


@every_file
def test_modules_are_named_for_what_they_hold(path):
    vague = {"util", "utils", "common", "helper", "helpers", "misc"}
    parts = set(path.relative_to(PACKAGE).with_suffix("").parts)
    assert not parts & vague, f"{path}: name the module for what it holds"


@every_file
def test_episodes_end_by_name(path):
    """`done` hides whether the task or the clock ended an episode."""
    for node in ast.walk(parsed(path)):
        for name in _identifiers(node):
            assert name not in ("done", "dones"), (
                f"{path}:{getattr(node, 'lineno', '?')}: say terminated or truncated, not {name}"
            )


def _identifiers(node: ast.AST) -> Iterator[str]:
    for field in ("id", "attr", "arg", "name", "asname", "rest"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            yield value
    if isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names


# --- algorithms and their paper ----------------------------------------------------------------

NUMBERS = r"\(\d+\)(?:(?:\s*(?:,|-|–|and)\s*)+\(\d+\))*"
CITATION = re.compile(rf"Eqs?\.\s*({NUMBERS})")
ROW = re.compile(rf"^\s*Eqs?\. ({NUMBERS})\s{{2,}}([\w, ]+?)(?:\s{{2,}}|$)", re.MULTILINE)


def expand(numbers: str) -> set[int]:
    """`(6), (9)-(11)` is 6, 9, 10, 11."""
    found: set[int] = set()
    for first, last in re.findall(r"\((\d+)\)(?:\s*[-–]\s*\((\d+)\))?", numbers):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def cited(text: str) -> set[int]:
    return {number for numbers in CITATION.findall(text) for number in expand(numbers)}


def below_docstring(path: Path) -> str:
    first = parsed(path).body[0]
    return "\n".join(path.read_text().splitlines()[first.end_lineno :])


def test_citations_are_read_as_meant():
    assert cited("Eq. (8) and Eq. (10), (12), (13)") == {8, 10, 12, 13}
    assert cited("that Eq. (9)-(12) estimate; f(7)") == {9, 10, 11, 12}
    assert ROW.findall("  Eq. (8)    relabel    C^ ~ U\n  Eq. (6), (7) define the goals") == [
        ("(8)", "relabel")
    ]


@every_algorithm
def test_every_cited_equation_is_in_the_ledger(path):
    ledger = ast.get_docstring(parsed(path)) or ""
    unknown = cited(below_docstring(path)) - cited(ledger)
    assert not unknown, f"{path} cites Eq. {sorted(unknown)}, which its ledger does not list"


@every_algorithm
def test_every_equation_of_the_ledger_is_cited_where_it_says(path):
    ledger = ast.get_docstring(parsed(path)) or ""
    rows = ROW.findall(ledger)
    assert rows, f"{path}: no ledger `Eq. (n)  function  formula` in the module docstring"
    source = path.read_text()
    texts = {node.name: ast.get_source_segment(source, node) or "" for node in functions(path)}
    for numbers, names in rows:
        named = [name.strip() for name in names.split(",")]
        missing = [name for name in named if name not in texts]
        assert not missing, f"{path}: the ledger names {missing[0]}, but there is no such function"
        uncited = expand(numbers) - cited("\n".join(texts[name] for name in named))
        assert not uncited, f"{path}: {names} does not cite Eq. {sorted(uncited)}"


def test_every_algorithm_has_a_page_and_tests():
    registered = importlib.import_module("safestitch.algos").ALGORITHMS
    assert registered
    for name in registered:
        stem = name.replace("-", "_")
        for path in (f"docs/algorithms/{name}.md", f"tests/algos/test_{stem}.py"):
            assert (ROOT / path).is_file(), f"algorithm {name} has no {path}"


def test_every_algorithm_file_is_registered():
    registered = importlib.import_module("safestitch.algos").ALGORITHMS
    assert {path.stem.replace("_", "-") for path in ALGORITHM_FILES} == set(registered)
