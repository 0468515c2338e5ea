"""Which simulators run here, told without importing them, and what to do about the others."""

import dataclasses
import importlib.metadata
import sys

from safestitch.records import SafestitchError

PYTHON = (3, 11)
"""The newest Python for which both physics engines have wheels."""


@dataclasses.dataclass(frozen=True)
class SuitePackages:
    """What a suite needs."""

    title: str
    engine: str
    """The physics engine, which decides on which platforms the suite runs."""
    platforms: tuple[str, ...]
    """Prefixes of sys.platform for which the engine has wheels."""
    packages: tuple[str, ...]
    """Distributions the extra brings."""
    suite: str
    """The suite itself, installed without its own requirements, which cannot be met here."""


SUITES = {
    "bullet": SuitePackages(
        "Bullet-Safety-Gym",
        engine="pybullet",
        platforms=("linux",),
        packages=("gymnasium", "pillow", "pybullet"),
        suite="bullet-safety-gym==1.4.0",
    ),
    "mujoco": SuitePackages(
        "Safety-Gymnasium",
        engine="mujoco",
        platforms=("linux", "darwin", "win32"),
        packages=("gymnasium", "imageio", "mujoco", "pillow", "pyyaml", "xmltodict"),
        suite="safety-gymnasium==1.0.0",
    ),
}


def fix(extra: str) -> str:
    """The commands that install a suite."""
    return (
        f"make setup-sims, or: pip install 'safestitch[{extra}]' && "
        f"pip install --no-deps {SUITES[extra].suite}"
    )


def missing(extra: str) -> list[str]:
    """Distributions of a suite that are not installed."""
    wanted = (*SUITES[extra].packages, SUITES[extra].suite.split("==")[0])
    return [name for name in wanted if not _installed(name)]


def wrong_platform(extra: str) -> str:
    """Why the suite cannot be installed here; empty where it can."""
    needs = SUITES[extra]
    if sys.version_info[:2] > PYTHON:
        return (
            f"{needs.engine} has wheels up to Python {PYTHON[0]}.{PYTHON[1]}, this is "
            f"{sys.version_info[0]}.{sys.version_info[1]}: use an environment of Python "
            f"{PYTHON[0]}.{PYTHON[1]}"
        )
    if not sys.platform.startswith(needs.platforms):
        return f"{needs.engine} has wheels for {', '.join(needs.platforms)}, not {sys.platform}"
    return ""


def obstacle(extra: str) -> str:
    """Why the tasks of a suite do not run here, and what to do; empty if they do."""
    absent = missing(extra)
    if not absent:
        return ""
    return wrong_platform(extra) or (
        f"{SUITES[extra].title} is not installed (missing {', '.join(absent)}): {fix(extra)}"
    )


def require(extra: str, task: str) -> None:
    """Raise unless a task of the suite runs here, and say what to do about it."""
    if reason := obstacle(extra):
        raise SafestitchError(f"{task} cannot run here: {reason}")


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
