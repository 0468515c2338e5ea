"""Settings of every test: strict JAX, no network, a fresh working directory.

Nothing of safestitch is imported here, so that the jaxtyping hook sees every module first.
"""

import importlib.util
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import jax
import jaxtyping
import numpy as np
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# The same examples on every machine and day; a time limit per example would fail on a busy one.
hypothesis.settings.register_profile("safestitch", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.load_profile("safestitch")


class NetworkUsedError(BaseException):
    """A test reached for the network; no `except Exception` may hide it."""


def _is_loopback(host: Any) -> bool:
    if isinstance(host, bytes):
        host = host.decode()
    if host in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return False


def _guarded(method: Callable) -> Callable:
    def connect(self: socket.socket, *arguments: Any) -> Any:
        address = arguments[-1]
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
            raise NetworkUsedError(f"tests use no network, but one called {address}")
        return method(self, *arguments)

    return connect


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, *rest: Any, **options: Any) -> Any:
        if not _is_loopback(host):
            raise NetworkUsedError(f"tests use no network, but one looked up {host}")
        return resolve(host, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        for name in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, _guarded(getattr(socket.socket, name)))
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Share compiled programs between tests and the processes they start: most of their time."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.getbasetemp() / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test writes without a full path lands in its own directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def as_installed() -> Iterator[None]:
    """Without this suite's runtime type checks, which hide the errors that a user would see."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


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
