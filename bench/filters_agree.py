"""The same subsets of the same data: our filters beside those of DSRL and OSRL themselves.

    pip download --no-deps osrl-lib && unzip osrl_lib-*.whl -d osrl
    python bench/filters_agree.py made/*.hdf5 [--osrl osrl/osrl/common/dataset.py]

Every file is read by DSRL's own reader too (the file `offline_env.py` of the installed package) and
compared number by number. Filters without chance are run on both sides: DSRL's inpaint and epsilon,
OSRL's safe episodes and those near the frontier. Only one function of OSRL's module is run, as the
module wants torch; its Pareto front is our own, as that package no longer installs.
"""

import argparse
import ast
import contextlib
import importlib.util
import io
import sys
import tempfile
import types
from pathlib import Path

import _results
import gymnasium
import numpy as np

from safestitch.algos import bc
from safestitch.data import dsrl, edits
from safestitch.episodes import Episodes

BOX = (0.2, 0.4, 0.5, 1.0)
"""Shares: cost from, cost to, reward from, reward to. (DSRL fails with two of unlike size.)"""


def their_environment(episodes: Episodes, limit: float):
    """DSRL's, with nothing but spaces and ranges."""
    package = importlib.util.find_spec("dsrl")
    path = Path(str(package and package.origin)).with_name("offline_env.py")
    spec = importlib.util.spec_from_file_location("dsrl_offline_env", path)
    module = importlib.util.module_from_spec(spec)  # pyright: ignore[reportArgumentType]
    spec.loader.exec_module(module)  # pyright: ignore[reportOptionalMemberAccess]
    box = gymnasium.spaces.Box
    env = module.OfflineEnv()
    env.observation_space = box(-np.inf, np.inf, episodes.observations.shape[1:])
    env.action_space = box(-1, 1, episodes.actions.shape[1:])
    env.target_cost = limit
    return env


def equal(ours: Episodes, theirs: dict) -> bool:
    """The same episodes in the same order."""
    return (
        np.array_equal(ours.observations, theirs["observations"])
        and np.array_equal(ours.actions, theirs["actions"])
        and np.array_equal(ours.costs, theirs["costs"])
    )


def osrl_subset(path: Path, data: dict, limit: float, mode: str) -> dict:
    """What `process_bc_dataset` leaves of the data."""
    tree = ast.parse(path.read_text())
    wanted = ("discounted_cumsum", "process_bc_dataset")
    body: list[ast.stmt] = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in wanted
    ]
    pareto = types.SimpleNamespace(ParetoDoubleLong=Pareto, doubleVector=tuple)
    space = {"np": np, "oapackage": pareto}
    exec(compile(ast.Module(body, []), path.name, "exec"), space)
    copy = {key: np.array(values) for key, values in data.items()}
    with contextlib.redirect_stdout(io.StringIO()):
        space["process_bc_dataset"](copy, limit, 1.0, mode)
    return copy


class Pareto:
    """What OSRL asks of its package: the points that none has more of both of."""

    def __init__(self):
        self.points: list[tuple[float, float]] = []

    def addvalue(self, point: tuple[float, float], _: int) -> None:
        """Take a point in."""
        self.points.append(point)

    def show(self, verbose: int) -> None:
        """Say nothing."""

    def allindices(self) -> list[int]:
        """Numbers of those points."""
        p = np.array(self.points)
        worse = [((p >= q).all(1) & (p > q).any(1)).any() for q in p]
        return np.flatnonzero(~np.array(worse)).tolist()


def compare(path: Path, osrl: Path | None) -> dict:
    """One file: how many episodes each filter leaves, and whether both sides leave the same."""
    episodes = dsrl.read(path)
    limit = 0.3 * float(episodes.cost_returns.max())
    env = their_environment(episodes, limit)
    margin = 0.05 * float(np.ptp(episodes.returns))
    row = {"file": path.name, "episodes": len(episodes)}
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        dsrl.write(Path(place) / "exact.hdf5", episodes, exact=True)
        theirs = env.get_dataset(str(Path(place) / "exact.hdf5"))
        pairs = {
            "as read": (episodes, theirs),
            "inpaint": (
                edits.inpaint(episodes, edits.Ranges.of(episodes), [BOX]),
                env.pre_process_data(theirs, inpaint_ranges=[BOX]),
            ),
            "epsilon": (
                edits.epsilon(episodes, limit, margin),
                env.pre_process_data(theirs, epsilon=margin),
            ),
            "epsilon < 0": (
                edits.epsilon(episodes, limit, -margin),
                env.pre_process_data(theirs, epsilon=-margin),
            ),
        }
    if osrl:
        safe = bc.is_safe(episodes.cost_returns, limit)
        near = bc.near_frontier(
            episodes.returns, episodes.cost_returns, bc.fit_frontier(episodes), 0.2
        )
        for mode, chosen in (("safe", safe), ("frontier", near)):
            ours = episodes.select(np.flatnonzero(chosen))
            pairs[mode] = ours, osrl_subset(osrl, theirs, limit, mode)
    for name, (ours, their) in pairs.items():
        row[name] = f"{len(ours)} {'same' if equal(ours, their) else 'DIFFERENT'}"
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="our filters beside DSRL's and OSRL's")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--osrl", type=Path, default=None)
    options = parser.parse_args()
    plots = types.ModuleType("matplotlib.pyplot")  # DSRL draws whatever it filters
    vars(plots)["__getattr__"] = lambda _: lambda *_, **__: None
    sys.modules |= {"matplotlib": types.ModuleType("matplotlib"), "matplotlib.pyplot": plots}
    rows = [compare(path, options.osrl) for path in options.files]
    _results.show("episodes left by each filter, and whether theirs are the same", rows)
    _results.finish(files=rows)
    sys.exit(any("DIFFERENT" in str(value) for row in rows for value in row.values()))


if __name__ == "__main__":
    main()
