"""`safestitch behaviours train CarCircle`: learn on the simulator; `--resume` goes on."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.table import Table

from safestitch.cli.console import stdout
from safestitch.cli.progress import CountingBar
from safestitch.records import SafestitchError, Spec

if TYPE_CHECKING:
    from safestitch.behaviours.snapshots import Behaviours
    from safestitch.behaviours.training import Training

USAGE = "safestitch behaviours train TASK [--seed 0] [--steps N] [--out DIR] [--resume] [options]"


@dataclasses.dataclass(frozen=True)
class Options:
    """What is trained and where it goes; the settings of schedule and learner follow below."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Name of a simulated task (`safestitch tasks`), or any name with --env."""
    env: str | None = None
    """Your own environment: package.module:function, or a gymnasium id."""
    horizon: int | None = None
    """Steps of its full episode; read off its time limit unless given."""
    learner: Literal["sac", "ppo"] | None = None
    """Soft actor-critic or proximal policy optimisation; what suits the task unless given."""
    teacher: Path | None = None
    """Behaviours of this task that play the first --warmup steps of a soft actor-critic, instead of
    chance: `shipped` for those that come with safestitch, or a file of `behaviours pack`."""
    seed: int = 0
    workers: int | None = None
    """Processes that simulate; one per core unless given. For one core of several in all, run under
    `taskset -c 0`: workers and learner then share it."""
    out: Path | None = None
    """Run directory; runs/behaviours/TASK-SEED unless given."""
    resume: bool = False
    """Go on with the run in --out; with more --steps also after its end."""


def run(arguments: list[str]) -> int:
    """Parse, train, print what was learned."""
    from safestitch.behaviours.methods import METHODS, name_of
    from safestitch.behaviours.settings import settings_of
    from safestitch.behaviours.training import Training, create, train
    from safestitch.runs import locked, versions
    from safestitch.training.loop import Interrupted

    options, _ = tyro.cli(Options, args=arguments, return_unknown_args=True, add_help=False)
    config, schedule = settings_of(options.task)
    if options.learner not in (None, name_of(config)):
        config = METHODS[options.learner].config()
    arguments_type = dataclasses.make_dataclass(
        "Arguments",
        [
            ("run", Options),  # the names are the headings of --help
            ("schedule", type(schedule), dataclasses.field(default=schedule)),
            ("learner", type(config), dataclasses.field(default=config)),
        ],
        frozen=True,
    )
    parsed = tyro.cli(
        arguments_type,
        args=arguments,
        prog="safestitch behaviours train",
        config=(tyro.conf.OmitArgPrefixes,),
    )
    options: Options = parsed.run
    if not 0 <= options.seed < 2**31:
        raise SafestitchError(f"--seed {options.seed}: expected 0 to {2**31 - 1}")
    out = options.out or Path("runs/behaviours") / f"{options.task}-{options.seed}"
    console = stdout()
    with locked(out):
        if options.resume:
            training = _resumed(out, parsed.schedule.steps)
        else:
            spec, schedule = _spec(options), parsed.schedule
            held = min(schedule.capacity, schedule.steps)  # no more than will ever be seen
            schedule = dataclasses.replace(schedule, capacity=held)
            given = spec, options.env, options.seed, parsed.learner, schedule, versions()
            training = Training(*given, name_of(config), _teacher(options, spec, name_of(config)))
            create(out, training)
        try:
            with CountingBar(f"behaviours of {training.spec.task}", "steps") as bar:
                found = train(out, options.workers, bar)
        except Interrupted as stopped:
            console.print(f"stopped: {stopped}. Go on with the same command and --resume")
            return 130
    _print(found)
    console.print(f"{len(found)} snapshots in {out}", markup=False)
    return 0


def _resumed(out: Path, steps: int) -> "Training":
    """The training of a directory, made longer if asked to."""
    from safestitch.behaviours.training import lengthened, read

    training = read(out)
    return lengthened(out, training, steps) if steps > training.schedule.steps else training


def _teacher(options: Options, spec: Spec, learner: str) -> str | None:
    """The file that teaches, if there is one and it can."""
    from safestitch.behaviours import snapshots

    if options.teacher is None:
        return None
    if learner != "sac":
        raise SafestitchError(
            f"--teacher with --learner {learner}, which learns from its own steps alone: give "
            "--learner sac"
        )
    shipped = options.teacher == Path("shipped")
    file = snapshots.shipped(spec.task) if shipped else options.teacher.resolve()
    taught = snapshots.load(file).spec
    if (taught.obs_dim, taught.act_dim) != (spec.obs_dim, spec.act_dim):
        raise SafestitchError(
            f"{file} holds behaviours of {taught.task}, with {taught.obs_dim} observation and "
            f"{taught.act_dim} action dimensions; {spec.task} has {spec.obs_dim} and {spec.act_dim}"
        )
    return str(file)


def _spec(options: Options) -> Spec:
    from safestitch.catalog import get_entry
    from safestitch.sims import make_own
    from safestitch.sims.suites import require

    if options.env is None:
        entry = get_entry(options.task)
        require(entry.suite, options.task)
        return entry.spec
    environment = make_own(options.env, options.horizon)
    environment.close()
    return dataclasses.replace(environment.spec, task=options.task)


def _print(found: "Behaviours") -> None:
    table = Table("lambda", "reward", "cost", title="The last snapshot, without noise")
    last = found.moments[-1]
    for lam, reward, cost in zip(last.lambdas, last.rewards, last.costs, strict=True):
        table.add_row(f"{lam:g}", f"{reward:.4g}", f"{cost:.4g}")
    stdout().print(table)
