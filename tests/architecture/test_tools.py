"""The linters pass, and the suite keeps its own promises."""

import importlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check"], ["ruff", "format", "--check"], ["pyright"]],
    ids=" ".join,
)
def test_tool(command):
    tool = Path(sys.executable).parent / command[0]
    if not tool.exists():
        pytest.skip(f"{command[0]} is not installed beside {Path(sys.executable).name}")
    arguments = [*command[1:], "--no-cache"] if command[0] == "ruff" else command[1:]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "NO_COLOR": "1"}
    result = subprocess.run(
        [str(tool), *arguments], cwd=ROOT, env=quiet, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80)])
def test_the_network_is_blocked(address):
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as outward:
        for attempt in (outward.connect, outward.connect_ex):
            with pytest.raises(BaseException, match="no network"):
                attempt(address)
    with pytest.raises(BaseException, match="no network"):
        socket.create_connection(("example.org", 80), timeout=1)


def test_loopback_is_open():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()


def test_promotion_is_strict():
    with pytest.raises(ValueError, match="promotion"):
        jnp.add(jnp.ones(3), jnp.ones(3, jnp.int32))
    with pytest.raises(ValueError, match="rank_promotion"):
        jnp.add(jnp.ones((2, 3)), jnp.ones(3))


def test_a_test_starts_in_an_empty_directory(tmp_path):
    assert Path.cwd() == tmp_path
    assert not list(tmp_path.iterdir())


def test_type_checks_are_on():
    episodes = importlib.import_module("safestitch.episodes")
    with pytest.raises(TypeError, match="Type-check"):
        episodes.best_within([1.0], [2.0], 1.0)
