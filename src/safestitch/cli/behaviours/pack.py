"""`safestitch behaviours pack RUN... --out FILE`: the snapshots worth keeping, in one file."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from safestitch.cli.console import stdout
from safestitch.records import SafestitchError


@dataclasses.dataclass(frozen=True)
class Options:
    """Choose snapshots: the best at every cost first, then those that differ most."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """Run directories of one task, also unfinished ones, or files of behaviours."""
    out: Path
    """File to write."""
    megabytes: float = 0.7
    """Most that it may take."""


def run(arguments: list[str]) -> int:
    """Parse, choose, write."""
    options = tyro.cli(Options, args=arguments, prog="safestitch behaviours pack")
    from safestitch.behaviours import snapshots
    from safestitch.behaviours.packing import packed
    from safestitch.behaviours.training import taken

    files = [f for path in options.runs for f in (taken(path) if path.is_dir() else [path])]
    if not files:
        raise SafestitchError(
            f"no snapshots in {', '.join(map(str, options.runs)) or 'no run'}: give directories "
            "that `safestitch behaviours train` wrote"
        )
    everything = snapshots.joined([snapshots.load(file) for file in files])
    kept = packed(everything, int(options.megabytes * 1e6))
    snapshots.save(options.out, kept)
    stdout().print(
        f"{options.out}: {len(kept)} of {len(everything)} snapshots of {kept.spec.task}, "
        f"{options.out.stat().st_size / 1e6:.2f} MB",
        markup=False,
    )
    return 0
