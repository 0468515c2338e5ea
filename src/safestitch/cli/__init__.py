"""The command line: one file per verb, each parses, calls the library, prints."""

import importlib
import keyword
import os
import sys

from rich.console import Console

from safestitch.names import unknown
from safestitch.records import SafestitchError

VERBS = {
    "train": "train an algorithm on a task's data, all seeds at once; --resume RUN goes on",
    "eval": "ask a trained run for several cost limits and print what it earns and costs",
    "compare": "methods side by side: a table with intervals, and a page with every method a line",
    "reproduce": "run a whole comparison from one file, in processes; goes on where it stopped",
    "report": "one HTML page of a run: the limit dial, curves, settings",
    "watch": "a clip of a policy at several limits, side by side, on a simulator",
    "tasks": "every task, what it looks like, whether it runs here; --env tries your own",
    "data": "get, list, import, check, edit and convert data",
    "behaviours": "learn policies of many skills and risks on a simulator, to make data with",
    "demo": "train, evaluate and report on a built-in task, in minutes",
    "doctor": "what is installed, what works here, and how to mend what does not",
}


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `safestitch` command."""
    arguments = sys.argv[1:] if argv is None else argv
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    about = "Offline safe RL with a cost limit chosen later."
    try:
        code = dispatch("safestitch", about, VERBS, arguments)
        sys.stdout.flush()
        return code
    except SafestitchError as error:
        errors.print(f"error: {error}", markup=False)
        return 2
    except KeyboardInterrupt:
        errors.print("stopped", markup=False)
        return 130
    except BrokenPipeError:  # whoever read it has seen enough, as in `safestitch ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1  # as rich does


def dispatch(command: str, about: str, verbs: dict[str, str], arguments: list[str]) -> int:
    """Run the module of a verb: `safestitch data get` is `safestitch.cli.data.get`."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        _help(command, about, verbs)
        return 0
    verb, rest = arguments[0], arguments[1:]
    if verb not in verbs:
        raise SafestitchError(unknown("command", verb, verbs))
    package = ".".join(["safestitch.cli", *command.split()[1:]])
    name = f"{verb}_" if keyword.iskeyword(verb) else verb
    return importlib.import_module(f"{package}.{name}").run(rest)


def _help(command: str, about: str, verbs: dict[str, str]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"usage: {command} COMMAND ...\n\n{about}\n")
    for verb, what in verbs.items():
        console.print(f"  {verb:10} {what}")
    console.print(f"\n`{command} COMMAND --help` shows the options of a command.")
