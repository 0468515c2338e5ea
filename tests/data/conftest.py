import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.fixture
def dsrl_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The reader of the real `dsrl`: its package imports simulators, the reader's own file none."""
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path / "dsrl"))
    package = importlib.util.find_spec("dsrl")
    assert package and package.origin
    path = Path(package.origin).with_name("offline_env.py")
    spec = importlib.util.spec_from_file_location("dsrl_offline_env", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from gymnasium.spaces import Box  # noqa: PLC0415 (an extra)

    def read(path: Path, observations: int = 3, actions: int = 2) -> dict[str, Any]:
        env = module.OfflineEnv()
        env.observation_space = Box(-np.inf, np.inf, (observations,))
        env.action_space = Box(-1, 1, (actions,))
        return env.get_dataset(str(path))

    return read
