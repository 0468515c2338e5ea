"""The registry of algorithms: name -> Algorithm."""

from safestitch.algos import bc, caps_iql, caps_sac, cdt, gas
from safestitch.algos.base import Algorithm, Request
from safestitch.names import lookup

ALGORITHMS: dict[str, Algorithm] = {
    file.ALGORITHM.name: file.ALGORITHM for file in (gas, cdt, caps_iql, caps_sac, bc)
}

__all__ = ["ALGORITHMS", "Algorithm", "Request", "get_algorithm"]


def get_algorithm(name: str) -> Algorithm:
    """The algorithm of that name; an unknown name is an error that suggests the nearest."""
    return lookup("algorithm", name, ALGORITHMS)
