"""`safestitch data VERB ...`: one file per verb."""

from safestitch.cli import dispatch

VERBS = {
    "get": "download public data sets, or finish what was begun",
    "make": "data of a task, by behaviours on its simulator, as wide as the public ones",
    "sheet": "datasheets: what made data hold, beside the public data",
    "ls": "what is on disk, what can be downloaded, what can be made",
    "import": "your own logs (CSV, Parquet, JSON lines, NPZ) into one data file",
    "check": "say what is wrong with a data file",
    "report": "one HTML page of what a data file can support",
    "edit": "filter, thin, split, join and perturb data files",
    "convert": "from one format into another",
}


def run(arguments: list[str]) -> int:
    """Hand over to the verb."""
    return dispatch("safestitch data", "Data in and out.", VERBS, arguments)
