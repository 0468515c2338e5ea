"""What is installed, what works here, and the command that mends what does not."""

import dataclasses
import importlib.metadata
import os
import platform
import shutil
import sys

import numpy as np

from safestitch.catalog import catalog
from safestitch.sims import make_simulator, suites

CORE = (
    "jax",
    "jaxlib",
    "equinox",
    "h5py",
    "optax",
    "numpy",
    "jaxtyping",
    "rich",
    "safetensors",
    "tyro",
)
EXTRAS = {"logs": ("pyarrow",), "tensorboard": ("tensorboardX",)}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    name: str
    state: str
    ok: bool
    fix: str = ""
    """The command that mends it; empty where nothing is to be done."""
    optional: bool = False


def examine() -> list[Finding]:
    """Look at everything; never raises for what is missing."""
    return [
        _python(),
        *(_package(name) for name in CORE),
        _device(),
        *(_extra(extra, names) for extra, names in EXTRAS.items()),
        *(_simulator(extra) for extra in suites.SUITES),
        _disk(),
    ]


def _python() -> Finding:
    version = platform.python_version()
    note = "" if sys.version_info < (3, 12) else " (the bullet simulator has wheels up to 3.11)"
    return Finding("python", version + note, True)


def _package(name: str) -> Finding:
    try:
        return Finding(name, importlib.metadata.version(name), True)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", False, f"pip install {name}")


def _extra(extra: str, names: tuple[str, ...]) -> Finding:
    missing = [name for name in names if not _package(name).ok]
    fix = f"pip install 'safestitch[{extra}]'" if missing else ""
    state = f"missing {', '.join(missing)}" if missing else "installed"
    return Finding(f"extra {extra}", state, not missing, fix, optional=True)


def _simulator(extra: str) -> Finding:
    """Make and step one of its tasks: being installed is not the same as working."""
    name, needs = f"extra {extra}", suites.SUITES[extra]
    absent = suites.missing(extra)
    if absent:
        reason = suites.wrong_platform(extra)
        fix = reason if reason else suites.fix(extra)
        return Finding(name, f"missing {', '.join(absent)}", False, fix, optional=True)
    task = next(entry.task for entry in catalog().values() if entry.suite == extra)
    try:
        simulator = make_simulator(task)
        simulator.reset(0)
        simulator.step(np.zeros(simulator.spec.act_dim, np.float32))
        simulator.close()
    except Exception as error:  # whatever it is, the report must go on
        state = f"{task}: {type(error).__name__}: {error}"
        return Finding(name, state, False, suites.fix(extra), optional=True)
    suite, known = needs.suite.split("==")
    versions = {part: importlib.metadata.version(part) for part in (suite, needs.engine)}
    other = "" if versions[suite] == known else f"; known to work with {known}"
    named = ", ".join(f"{part} {version}" for part, version in versions.items())
    return Finding(name, f"works ({named}{other})", True)


def _device() -> Finding:
    """Run a small product on every device: being listed is not the same as working."""
    try:
        import jax  # noqa: PLC0415 (its absence is something to report, not to fail on)
        import jax.numpy as jnp  # noqa: PLC0415

        devices = jax.devices()
        for device in devices:
            jax.device_put(jnp.ones((8, 8)), device).dot(jnp.ones((8, 8))).block_until_ready()
    except Exception as error:  # whatever it is, the report must go on
        return Finding("device", f"{type(error).__name__}: {error}", False, "pip install -U jax")
    names = ", ".join(f"{d.platform}:{d.id}" for d in devices)
    return Finding("device", f"{names} works, {os.cpu_count()} cores", True)


def _disk() -> Finding:
    free = shutil.disk_usage(".").free / 1e9
    fix = "free some space: a run of 5 seeds takes about 30 MB" if free < 0.2 else ""
    return Finding("free disk", f"{free:.1f} GB", free >= 0.2, fix)
