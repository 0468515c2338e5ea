"""`safestitch train gas MiniCircle --seeds 5 --out runs/first`, and `train --resume runs/first`.

The task is built in, or one of the field whose data lie on disk, or a data file of one's own.
"""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from safestitch.cli.progress import TrainingBar
from safestitch.names import unknown
from safestitch.records import SafestitchError, Spec

if TYPE_CHECKING:
    from safestitch.episodes import Episodes
    from safestitch.runs import Run

USAGE = (
    "safestitch train ALGORITHM TASK|FILE [--seeds N] [--out DIR] [options], or train --resume DIR"
)


@dataclasses.dataclass(frozen=True)
class Options:
    """What is trained on and where it goes; the algorithm's own settings follow below."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Name of the task, or a data file: see `safestitch tasks` and `safestitch data`."""
    data: Path | None = None
    """Data file of a named task; its public data on disk, or its built-in data, unless given."""
    seeds: int = 1
    """How many seeds, trained together: 0 .. N-1."""
    out: Path | None = None
    """Run directory, new or empty; runs/<algorithm>-<task> unless given."""
    preset: str = "fast"
    """Settings to start from: fast, or paper for the published ones."""
    data_seed: int = 0
    """Seed of the built-in data maker."""
    minutes: float | None = None
    """Train about so long: fewer iterations, as many as a trial of some seconds says fit."""
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
    return train_on_material(algorithm, config, options)


class Material(NamedTuple):
    """What is trained on."""

    spec: Spec
    episodes: "Episodes"
    source: str
    """Where it came from, as written into the run: `recalled` reads it again."""


def material(task: str, data: Path | None, data_seed: int) -> Material:
    """The data of a named task, or of a file.

    Raises:
        SafestitchError: if there are none, or they are of another task.
    """
    from safestitch.catalog import catalog
    from safestitch.data import find, load, maker
    from safestitch.envs import TASKS
    from safestitch.training import spec_of

    named = {name: built_in.spec for name, built_in in TASKS.items()}
    named |= {name: entry.spec for name, entry in catalog().items()}
    if data is None and task in TASKS:
        source = f"built-in {task}, data seed {data_seed}"
        return Material(named[task], TASKS[task].make_data(data_seed), source)
    if data is None and task not in named and not Path(task).exists():
        raise SafestitchError(f"{unknown('task', task, named)}; nor is there a file {task}")
    path = find(data or task)
    episodes = load(path)
    made = maker(path)
    spec = named.get(task) or named.get(made.get("task", "")) or spec_of(episodes, "own data")
    found = (episodes.observations.shape[1], episodes.actions.shape[1])
    if found != (spec.obs_dim, spec.act_dim):
        raise SafestitchError(
            f"{path} has {found[0]} observations and {found[1]} actions, but {spec.task} has "
            f"{spec.obs_dim} and {spec.act_dim}: is it the data of another task?"
        )
    # Results on data of our own making are labelled so, wherever the file lies.
    origin = f"made by {made['made_by']}, " if made else ""
    return Material(spec, episodes, f"{origin}{FILE}{path.resolve()}")


FILE = "file "


def recalled(run: "Run", data: Path | None) -> "Episodes":
    """The data that an unfinished run was begun with; that they are the same is checked later."""
    from safestitch.data import load
    from safestitch.envs import TASKS

    if data is not None:
        return load(data)
    _, is_file, path = run.data_source.partition(FILE)
    if is_file:
        return load(path)
    if run.spec.task in TASKS:
        return TASKS[run.spec.task].make_data(run.data_seed)
    raise SafestitchError(
        f"the run was trained on {run.spec.task} ({run.data_source}): give the file with --data, "
        "or resume where the episodes are, with safestitch.train(episodes, out, resume=True)"
    )


def train_on_material(algorithm: Any, config: Any, options: Options) -> int:
    """Train on a task's data."""
    from safestitch.training.loop import train

    if not 1 <= options.seeds <= 1000:
        raise SafestitchError(f"--seeds {options.seeds}: expected a number from 1 to 1000")
    if not 0 <= options.data_seed < 2**32:
        raise SafestitchError(f"--data-seed {options.data_seed}: expected 0 to 4294967295")
    spec, episodes, source = material(options.task, options.data, options.data_seed)
    title = Path(options.task).stem if spec.task == "own data" else spec.task
    out = options.out or Path("runs") / f"{algorithm.name}-{title}"
    seeds = list(range(options.seeds))
    memory = None if options.memory is None else options.memory * 1e9
    if options.minutes is not None:
        from safestitch.training.budget import within_minutes

        config = within_minutes(algorithm, config, spec, episodes, seeds, options.minutes, memory)
    with TrainingBar(f"{algorithm.name} on {title}", config.iterations, out) as bar:
        train(
            algorithm,
            config,
            spec,
            episodes,
            seeds,
            out,
            data_source=source,
            data_seed=options.data_seed,
            memory=memory,
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
        data: Path | None = None
        """The data file, where it has moved."""
        tensorboard: bool = False
        """Write TensorBoard events beside metrics.csv."""
        checkpoint_seconds: float = 10.0
        """Save at least this often; a kill loses no more."""

    options = tyro.cli(Resume, args=arguments, prog="safestitch train")
    from safestitch import runs
    from safestitch.policy import recall
    from safestitch.training.loop import resume

    run_facts = runs.read(options.resume)
    algorithm, config = recall(run_facts)
    episodes = recalled(run_facts, options.data)
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
    heading = algorithm.name.replace("-", "_")
    both = dataclasses.make_dataclass(
        "Arguments",
        [
            ("run", Options),  # the names are the headings of --help
            (
                heading,
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
    return parsed.run, getattr(parsed, heading)


def _preset_of(arguments: list[str]) -> str:
    for i, word in enumerate(arguments):
        if word == "--preset" and i + 1 < len(arguments):
            return arguments[i + 1]
        if word.startswith("--preset="):
            return word.removeprefix("--preset=")
    return Options.preset
