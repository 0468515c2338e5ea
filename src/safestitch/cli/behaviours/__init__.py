"""`safestitch behaviours VERB ...`: one file per verb."""

from safestitch.cli import dispatch

VERBS = {
    "train": "learn behaviours of a task on its simulator, from hopeless to expert, at all risks",
    "show": "what the snapshots of a training or a file earn and cost at each lambda",
    "pack": "choose snapshots of one or more trainings into one small file",
}


def run(arguments: list[str]) -> int:
    """Hand over to the verb."""
    about = "Policies of many skills and risks that data are made with."
    return dispatch("safestitch behaviours", about, VERBS, arguments)
