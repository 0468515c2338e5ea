"""`safestitch watch RUN --limits 10% 50% 90% --out clip.gif`: needs no display and no GPU."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from safestitch.cli.console import stdout
from safestitch.cli.progress import CountingBar
from safestitch.records import SafestitchError


@dataclasses.dataclass(frozen=True)
class Options:
    """One episode per limit, side by side, with its running reward and cost."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run directory of a finished training."""
    limits: tuple[str, ...] = ("10%", "50%", "90%")
    """Cost limits: 20 is a cost per episode, 10% a share of the task's cost range."""
    out: Path = Path("clip.gif")
    """A clip (.gif), or a still from the middle of the episode (.png)."""
    task: str | None = None
    """The run's own task; say it to be sure."""
    env: str | None = None
    """Your own environment: package.module:function, or a gymnasium id."""
    policy_seed: int | None = None
    """Which seed of the run acts; its first unless given."""
    episode_seed: int = 0
    """Seed of the start state."""
    every: int = 4
    """Steps per frame."""
    width: int = 240
    """Of each panel, in pixels."""
    height: int = 180
    """Of each panel, in pixels."""


def run(arguments: list[str]) -> int:
    """Parse, film, say where the clip is."""
    options = tyro.cli(Options, args=arguments, prog="safestitch watch")
    if not options.limits:
        raise SafestitchError("--limits needs at least one limit, such as 20 or 10%")
    if not (32 <= options.width <= 2000 and 32 <= options.height <= 2000):
        raise SafestitchError(
            f"--width {options.width} --height {options.height}: expected 32 to 2000 pixels"
        )
    try:
        from safestitch.evaluation.watching import Size, watch
    except ModuleNotFoundError as error:
        raise SafestitchError(
            f"clips need {error.name}, which is not installed: pip install pillow"
        ) from None

    with CountingBar("filming", "steps") as bar:
        watch(
            options.run,
            list(options.limits),
            options.out,
            env=options.env,
            task=options.task,
            policy_seed=options.policy_seed,
            episode_seed=options.episode_seed,
            every=options.every,
            size=Size(options.width, options.height),
            progress=bar,
        )
    stdout().print(f"written to {options.out}", markup=False)
    return 0
