from collections.abc import Callable

import numpy as np
import pytest

from safestitch.episodes import COLUMNS, Episodes


def make_episodes(
    lengths: list[int], observations: int = 3, actions: int = 2, seed: int = 0, final: bool = False
) -> Episodes:
    """Random episodes; some of them terminate."""
    rng = np.random.default_rng(seed)
    n, ends = sum(lengths), np.cumsum(lengths) - 1
    terminated = np.zeros(n, bool)
    terminated[ends] = rng.random(len(ends)) < 0.5
    truncated = np.zeros(n, bool)
    truncated[ends] = ~terminated[ends]
    return Episodes(
        rng.normal(size=(n, observations)).astype(np.float32),
        rng.uniform(-1, 1, (n, actions)).astype(np.float32),
        rng.normal(size=n).astype(np.float32),
        (rng.random(n) < 0.3).astype(np.float32),
        terminated,
        truncated,
        np.concatenate([[0], ends + 1]),
        rng.normal(size=(len(lengths), observations)).astype(np.float32) if final else None,
    )


def assert_same(found: Episodes, expected: Episodes) -> None:
    """Bit for bit, types included."""
    for name in (*COLUMNS, "offsets", "final_observations"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None), name
        if one is not None:
            assert (one.dtype, one.shape) == (other.dtype, other.shape), name
            assert one.tobytes() == other.tobytes(), name
    assert found.fingerprint == expected.fingerprint


@pytest.fixture(scope="session")
def episodes_of() -> Callable[..., Episodes]:
    return make_episodes


@pytest.fixture(scope="session")
def same() -> Callable[[Episodes, Episodes], None]:
    return assert_same
