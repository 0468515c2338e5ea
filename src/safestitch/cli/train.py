"""`safestitch train gas MiniCircle --seeds 5 --out runs/first`, and `train --resume runs/first`."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from safestitch.cli.progress import TrainingBar
from safestitch.names import unknown
from safestitch.records import SafestitchError

USAGE = "safestitch train ALGORITHM TASK [--seeds N] [--out DIR] [options], or train --resume DIR"


@dataclasses.dataclass(frozen=True)
class Options:
    """What is trained on and where it goes; the algorithm's own settings follow below."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Name of the task."""
    seeds: int = 1
    """How many seeds, trained together: 0 .. N-1."""
    out: Path | None = None
    """Run directory, new or empty; runs/<algorithm>-<task> unless given."""
    preset: str = "fast"
    """Settings to start from: fast, or paper for the published ones."""
    data_seed: int = 0
    """Seed of the built-in data maker."""
    memory: float | None = None
    """GB the data may take, half of what is free unless given; more is visited in blocks."""
    tensorboard: bool = False
    """Write TensorBoard events beside metrics.csv."""
    checkpoint_seconds: float = 10.0
    """Save at least this often; a kill loses no more."""


def run(arguments: list[str]) -> int:
    """Parse, train, say where the run is."""
    if any(word.split("=")[0] == "--resume" for word in arguments):
        return _resume(arguments)
    if not arguments or arguments[0].startswith("-"):
        if {"-h", "--help"} & set(arguments):
            sys.stdout.write(
                f"usage: {USAGE}\n`safestitch train gas --help` lists every setting.\n"
            )
            return 0
        raise SafestitchError(f"which algorithm? usage: {USAGE}")
    from safestitch.algos import get_algorithm

    algorithm = get_algorithm(arguments[0])
    options, config = _parse(algorithm, arguments[1:])
    return train_built_in(algorithm, config, options)


def train_built_in(algorithm: Any, config: Any, options: Options) -> int:
    """Train on a built-in task's own data."""
    from safestitch.envs import get_task
    from safestitch.training.loop import train

    task = get_task(options.task)
    if not 1 <= options.seeds <= 1000:
        raise SafestitchError(f"--seeds {options.seeds}: expected a number from 1 to 1000")
    if not 0 <= options.data_seed < 2**32:
        raise SafestitchError(f"--data-seed {options.data_seed}: expected 0 to 4294967295")
    out = options.out or Path("runs") / f"{algorithm.name}-{task.spec.task}"
    episodes = task.make_data(options.data_seed)
    with TrainingBar(f"{algorithm.name} on {task.spec.task}", config.iterations, out) as bar:
        train(
            algorithm,
            config,
            task.spec,
            episodes,
            list(range(options.seeds)),
            out,
            data_source=f"built-in {task.spec.task}, data seed {options.data_seed}",
            data_seed=options.data_seed,
            memory=None if options.memory is None else options.memory * 1e9,
            tensorboard=options.tensorboard,
            checkpoint_seconds=options.checkpoint_seconds,
            progress=bar,
        )
    return bar.exit_code


def _resume(arguments: list[str]) -> int:
    @dataclasses.dataclass(frozen=True)
    class Resume:
        """Go on with an unfinished run."""

        resume: Path
        """Run directory."""
        tensorboard: bool = False
        """Write TensorBoard events beside metrics.csv."""
        checkpoint_seconds: float = 10.0
        """Save at least this often; a kill loses no more."""

    options = tyro.cli(Resume, args=arguments, prog="safestitch train")
    from safestitch import runs
    from safestitch.envs import TASKS
    from safestitch.policy import recall
    from safestitch.training.loop import resume

    run_facts = runs.read(options.resume)
    if run_facts.spec.task not in TASKS:
        raise SafestitchError(
            f"{options.resume} was trained on {run_facts.spec.task}, not on a built-in task: "
            "resume it where the episodes are, with safestitch.train(episodes, out, resume=True)"
        )
    algorithm, config = recall(run_facts)
    episodes = TASKS[run_facts.spec.task].make_data(run_facts.data_seed)
    title = f"{algorithm.name} on {run_facts.spec.task}"
    with TrainingBar(title, config.iterations, options.resume) as bar:
        resume(
            algorithm,
            config,
            run_facts,
            episodes,
            options.resume,
            tensorboard=options.tensorboard,
            checkpoint_seconds=options.checkpoint_seconds,
            progress=bar,
        )
    return bar.exit_code


def _parse(algorithm: Any, arguments: list[str]) -> tuple[Options, Any]:
    """Options and config; the preset decides the defaults, flags change single fields."""
    preset = _preset_of(arguments)
    if preset not in algorithm.presets:
        raise SafestitchError(unknown("preset", preset, algorithm.presets))
    both = dataclasses.make_dataclass(
        "Arguments",
        [
            ("run", Options),  # the names are the headings of --help
            (
                algorithm.name,
                algorithm.Config,
                dataclasses.field(default=algorithm.presets[preset]),
            ),
        ],
        frozen=True,
    )
    parsed: Any = tyro.cli(
        both,
        args=arguments,
        prog=f"safestitch train {algorithm.name}",
        config=(tyro.conf.OmitArgPrefixes,),
    )
    return parsed.run, getattr(parsed, algorithm.name)


def _preset_of(arguments: list[str]) -> str:
    for i, word in enumerate(arguments):
        if word == "--preset" and i + 1 < len(arguments):
            return arguments[i + 1]
        if word.startswith("--preset="):
            return word.removeprefix("--preset=")
    return Options.preset
