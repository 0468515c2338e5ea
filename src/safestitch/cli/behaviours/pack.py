"""`safestitch behaviours pack RUN... --out FILE`: the snapshots worth keeping, in one file."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from safestitch.cli.console import stdout
from safestitch.records import SafestitchError

MOST = 1.0
"""Megabytes of a file that goes with data or a repository."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Choose snapshots: the best at every cost first, then early and differing ones."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """Run directories of one task, also unfinished ones, or files of behaviours."""
    out: Path
    """File to write."""
    megabytes: float = 0.7
    """Most that it may take, up to 1."""


def run(arguments: list[str]) -> int:
    """Parse, choose, write."""
    options = tyro.cli(Options, args=arguments, prog="safestitch behaviours pack")
    if not 0 < options.megabytes <= MOST:
        raise SafestitchError(
            f"--megabytes {options.megabytes:g}: expected more than 0 and at most {MOST:g}; all "
            "snapshots of a run are in its behaviours.safetensors"
        )
    from safestitch.behaviours import snapshots
    from safestitch.behaviours.packing import gathered, packed

    everything = gathered(options.runs)
    kept = packed(everything, int(options.megabytes * 1e6))
    snapshots.save(options.out, kept)
    stdout().print(
        f"{options.out}: {len(kept)} of {len(everything)} snapshots of {kept.spec.task}, "
        f"{options.out.stat().st_size / 1e6:.2f} MB",
        markup=False,
    )
    return 0
