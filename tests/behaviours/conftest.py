from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from safestitch.behaviours.actor import init_actor
from safestitch.behaviours.snapshots import Behaviours, Moment, behaviours_of
from safestitch.records import Spec

CORRIDOR = Spec("own_environments:corridor", 3, 1, 12, 0.0)
"""The environment of tests/sims: going faster than 0.5 costs."""


@pytest.fixture
def own_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "sims"))


@pytest.fixture(scope="session")
def fresh() -> Callable[..., Behaviours]:
    """Behaviours that have learned nothing: what they do is beside the point."""

    def make(spec: Spec = CORRIDOR, count: int = 3, width: int = 8) -> Behaviours:
        keys = jax.random.split(jax.random.key(0), count)
        moment = Moment(0, 0, (), (), ())
        return behaviours_of(spec, [init_actor(spec, width, key) for key in keys], [moment] * count)

    return make
