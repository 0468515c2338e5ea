"""The command line: one file per verb, each parses, calls the library, prints."""

import importlib
import sys

from rich.console import Console

from safestitch.names import unknown
from safestitch.records import SafestitchError

VERBS = {
    "train": "train an algorithm on a task's data, all seeds at once; --resume RUN goes on",
    "eval": "ask a trained run for several cost limits and print what it earns and costs",
    "report": "one HTML page of a run: the limit dial, curves, settings",
    "watch": "a clip of a policy at several limits, side by side, on a simulator",
    "tasks": "every task, what it looks like, whether it runs here; --env tries your own",
    "demo": "train, evaluate and report on a built-in task, in minutes",
    "doctor": "what is installed, what works here, and how to mend what does not",
}


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `safestitch` command."""
    arguments = sys.argv[1:] if argv is None else argv
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        _help(Console(soft_wrap=True, highlight=False))
        return 0
    verb, rest = arguments[0], arguments[1:]
    if verb not in VERBS:
        errors.print(f"error: {unknown('command', verb, VERBS)}", markup=False)
        return 2
    try:
        return importlib.import_module(f"safestitch.cli.{verb}").run(rest)
    except SafestitchError as error:
        errors.print(f"error: {error}", markup=False)
        return 2
    except KeyboardInterrupt:
        errors.print("stopped", markup=False)
        return 130


def _help(console: Console) -> None:
    console.print(
        "usage: safestitch COMMAND ...\n\nOffline safe RL with a cost limit chosen later.\n"
    )
    for verb, what in VERBS.items():
        console.print(f"  {verb:8} {what}")
    console.print("\n`safestitch COMMAND --help` shows the options of a command.")
