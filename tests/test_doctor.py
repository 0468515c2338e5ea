import collections
import importlib.metadata
import platform
import shutil
import sys

import jax
import pytest

from safestitch import doctor
from safestitch.cli import _run
from safestitch.sims.suites import SUITES, obstacle

ABSENT = "no-such-package-of-safestitch"


@pytest.fixture
def wide(monkeypatch):
    """A terminal wide enough to keep a finding on one line."""
    monkeypatch.setenv("COLUMNS", "200")


def finding(name: str) -> doctor.Finding:
    [found] = [f for f in doctor.examine() if f.name == name]
    return found


def test_everything_is_looked_at():
    found = {f.name: f for f in doctor.examine()}
    extras = {f"extra {name}" for name in (*doctor.EXTRAS, *SUITES)}
    assert set(found) == {"python", *doctor.CORE, "device", "free disk"} | extras
    assert all(f.ok for f in found.values() if not f.optional)
    assert all((f.fix == "") == f.ok for f in found.values())
    assert found["python"].state.startswith(platform.python_version())
    assert found["jax"].state == jax.__version__
    assert "cpu:0 works" in found["device"].state
    assert found["free disk"].state.endswith(" GB")


def test_what_is_needed_is_looked_at():
    needed = [r for r in importlib.metadata.requires("safestitch") or [] if "extra ==" not in r]
    names = {"".join(c if c.isalnum() or c in "-_" else " " for c in r).split()[0] for r in needed}
    assert names <= set(doctor.CORE)


def test_every_extra_is_looked_at():
    offered = importlib.metadata.metadata("safestitch").get_all("Provides-Extra") or []
    assert set(offered) == {*doctor.EXTRAS, *SUITES}


@pytest.mark.parametrize("suite", SUITES)
def test_a_simulator_is_stepped(suite):
    if obstacle(suite):
        pytest.skip(obstacle(suite))
    found = finding(f"extra {suite}")
    assert found.ok
    assert found.state.startswith(f"works ({SUITES[suite].suite.replace('==', ' ')}, ")


def test_a_missing_simulator(monkeypatch):
    monkeypatch.setattr("safestitch.sims.suites._installed", lambda name: name != "mujoco")
    monkeypatch.setattr("safestitch.sims.suites.wrong_platform", lambda _: "")
    found = finding("extra mujoco")
    assert (found.ok, found.optional, found.state) == (False, True, "missing mujoco")
    assert "make setup-sims" in found.fix
    assert "pip install --no-deps safety-gymnasium==1.0.0" in found.fix


def test_a_simulator_that_does_not_work(monkeypatch):
    def fail(task):
        raise OSError(f"libGL is missing for {task}")

    monkeypatch.setattr(doctor, "make_simulator", fail)
    monkeypatch.setattr("safestitch.sims.suites._installed", lambda _: True)
    found = finding("extra bullet")
    assert (found.ok, found.state) == (False, "AntRun: OSError: libGL is missing for AntRun")


@pytest.mark.usefixtures("wide")
def test_a_missing_extra(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "EXTRAS", {"ghost": ("numpy", ABSENT)})
    found = finding("extra ghost")
    assert (found.ok, found.optional) == (False, True)
    assert found.state == f"missing {ABSENT}"
    assert found.fix == "pip install 'safestitch[ghost]'"
    assert _run(["doctor"]) == 0  # nobody needs an extra
    assert "pip install 'safestitch[ghost]'" in capsys.readouterr().out


def test_a_fix_can_be_copied_from_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(doctor, "EXTRAS", {"tensorboard": ("tensorboardY",)})
    assert _run(["doctor"]) == 0
    assert "pip install 'safestitch[tensorboard]'" in capsys.readouterr().out


def test_an_installed_extra(monkeypatch):
    monkeypatch.setattr(doctor, "EXTRAS", {"ghost": ("numpy", "jax")})
    found = finding("extra ghost")
    assert (found.ok, found.state, found.fix) == (True, "installed", "")


@pytest.mark.usefixtures("wide")
def test_a_missing_package(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "CORE", (*doctor.CORE, ABSENT))
    found = finding(ABSENT)
    assert (found.ok, found.optional, found.state) == (False, False, "missing")
    assert found.fix == f"pip install {ABSENT}"
    assert finding("jax").ok
    assert _run(["doctor"]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if ABSENT in line]
    assert line.split()[:3] == ["NO", ABSENT, "missing"]
    assert f"pip install {ABSENT}" in line


def test_a_device_that_does_not_work(monkeypatch):
    def fail(*_):
        raise RuntimeError("out of order")

    monkeypatch.setattr(jax, "devices", fail)
    found = finding("device")
    assert (found.ok, found.state) == (False, "RuntimeError: out of order")
    assert found.fix == "pip install -U jax"
    assert _run(["doctor"]) == 1


def test_no_jax_at_all(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    found = finding("device")
    assert not found.ok
    assert found.fix.startswith("pip install")


@pytest.mark.parametrize(("free", "ok"), [(0.1e9, False), (5e9, True)])
def test_a_full_disk(monkeypatch, free, ok):
    usage = collections.namedtuple("usage", "total used free")(1e12, 1e12 - free, free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    found = finding("free disk")
    assert found.ok is ok
    assert found.state == f"{free / 1e9:.1f} GB"
    assert ("free some space" in found.fix) is not ok
