"""`safestitch demo`: train, evaluate and report on a built-in task; what exists is not redone."""

import dataclasses
from pathlib import Path

import tyro

from safestitch.cli import eval as eval_verb
from safestitch.cli import report, train
from safestitch.cli.console import stdout


@dataclasses.dataclass(frozen=True)
class Options:
    """One policy, every cost limit."""

    task: str = "MiniCircle"
    """Built-in task."""
    seeds: int = 3
    """Seeds trained together."""
    out: Path = Path("runs/demo")
    """Run directory; a finished one is shown again, an unfinished one resumed."""


def run(arguments: list[str]) -> int:
    """Parse, do what is missing, show the table and where the page is."""
    options = tyro.cli(Options, args=arguments, prog="safestitch demo")
    from safestitch import runs

    console = stdout()
    if not runs.is_trained(options.out):
        code = _train(options)
        if code:
            return code
    if not (options.out / runs.ROWS).exists():
        eval_verb.evaluate(eval_verb.Options(options.out), console)
    else:
        console.print(eval_verb.stored_table(options.out))
    page = options.out / runs.REPORT
    if not page.exists():
        report.write_report(options.out, report.Options.episodes)
    console.print(
        "One training, every limit: the same policy answered all of them.\n"
        f"The limit dial is a page, open it: {page.resolve()}\n"
        "On your own: safestitch train gas MiniRun --seeds 5 --out runs/first",
        markup=False,
    )
    return 0


def _train(options: Options) -> int:
    from safestitch import runs
    from safestitch.algos import get_algorithm

    if (options.out / runs.RUN).exists():
        return train.run(["--resume", str(options.out)])
    algorithm = get_algorithm("gas")
    chosen = train.Options(options.task, seeds=options.seeds, out=options.out)
    return train.train_on_material(algorithm, algorithm.presets[chosen.preset], chosen)
