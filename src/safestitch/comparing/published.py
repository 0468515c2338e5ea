"""What the GAS paper reports, to be shown beside results of our own.

`published.csv` holds the numbers of its table of normalised results and of its table of Velocity
tasks (arXiv 2602.05323): means over 10 episodes x 5 seeds x 3 limits, on the public DSRL data.
R/R_max and C/L as there; `best` is what the paper prints as safe and best-performing.
"""

import csv
import functools
from importlib import resources
from typing import Literal, NamedTuple

PAPER_DATA = "public DSRL data"
Mark = Literal["safe", "unsafe", "best"]


class Published(NamedTuple):
    """A method on a task in a band."""

    method: str
    """As the paper spells it."""
    reward: float
    reward_std: float
    cost: float
    cost_std: float
    mark: str


@functools.cache
def _table() -> dict[tuple[str, str, str], Published]:
    text = resources.files("safestitch.comparing").joinpath("published.csv").read_text()
    return {
        (row["band"], row["task"], row["method"].lower()): Published(
            row["method"],
            float(row["reward"]),
            float(row["reward_std"]),
            float(row["cost"]),
            float(row["cost_std"]),
            row["mark"],
        )
        for row in csv.DictReader(text.splitlines())
    }


def published(band: str, task: str, algorithm: str) -> Published | None:
    """The paper's figures of an algorithm, if it has any; of a variant, those of the family.

    Example:
        >>> [published("tight", "BallRun", name).reward for name in ("gas", "caps_iql")]
        [0.33, 0.15]
    """
    family = algorithm.lower().replace("-", "_").split("_")[0]
    return _table().get((band, task, family))
