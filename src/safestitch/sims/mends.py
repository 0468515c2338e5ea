"""What the two suites need to run on Python 3.11, numpy 2 and gymnasium 0.29, and to run fast.

Each mend names its reason and the version at which it can be dropped. Both suites are imported
here and nowhere else. No mend changes a number: `tests/sims` steps each task through the mended
suite and through the original package and compares bit by bit.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import os
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np


@functools.cache
def bullet() -> tuple[Any, Any]:
    """`gymnasium` with the tasks of bullet_safety_gym registered, and its environment class."""
    with quiet():
        import gymnasium  # noqa: PLC0415 (an extra)

        importlib.import_module("bullet_safety_gym")
        builder: Any = importlib.import_module("bullet_safety_gym.envs.builder")
    builder.RedirectStream = leave_streams_alone
    return gymnasium, builder.EnvironmentBuilder


@functools.cache
def safety_gymnasium() -> Any:
    """The package `safety_gymnasium`, importable and with all agents working."""
    with quiet(), copied_array_defaults(), stand_in_for_multi_agent():
        package = importlib.import_module("safety_gymnasium")
    number_joints_by_int()
    return package


def mujoco() -> Any:
    """The engine of safety_gymnasium."""
    return importlib.import_module("mujoco")


# --- imports -----------------------------------------------------------------------------------


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence what is printed while importing or building.

    pybullet prints its build time from C, gymnasium warns of deprecations of its own. For good:
    neither package is maintained.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(sys.__stdout__ or sys.stdout),
            contextlib.redirect_stderr(sys.__stderr__ or sys.stderr),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for descriptor, original in zip((1, 2), kept, strict=True):
            os.dup2(original, descriptor)
            os.close(original)
        os.close(nowhere)


def leave_streams_alone(*_: Any) -> contextlib.nullcontext:
    """Do not redirect streams by hand, as bullet_safety_gym does whenever it connects.

    Its way fails where standard output is not a file: in notebooks, in tests. `quiet` does the
    same in a way that works. For good: the package is not maintained.
    """
    return contextlib.nullcontext()


@contextlib.contextmanager
def copied_array_defaults() -> Iterator[None]:
    """Let dataclasses have arrays as defaults, each instance a copy.

    Python 3.11 refuses unhashable defaults, which the geoms of safety-gymnasium have for colours
    and groups (all releases up to 1.2.0). Can be dropped when a release writes default_factory.
    """
    original = dataclasses._get_field  # type: ignore[attr-defined]  # the only place to step in

    def with_factory(cls, name, *rest):
        default = getattr(cls, name, None)
        if isinstance(default, np.ndarray):
            setattr(cls, name, dataclasses.field(default_factory=default.copy))
        return original(cls, name, *rest)

    dataclasses._get_field = with_factory  # type: ignore[attr-defined]
    try:
        yield
    finally:
        dataclasses._get_field = original  # type: ignore[attr-defined]


@contextlib.contextmanager
def stand_in_for_multi_agent() -> Iterator[None]:
    """Import without gymnasium-robotics, which only the multi-agent tasks need.

    It brings PettingZoo and prints a long notice with every process, and its releases that fit
    mujoco 2.3 do not fit current PettingZoo. Can be dropped with safety-gymnasium itself.
    """
    if importlib.util.find_spec("gymnasium_robotics") is not None:
        yield
        return
    leaf = "gymnasium_robotics.envs.multiagent_mujoco.mujoco_multi"
    parts = leaf.split(".")
    names = [".".join(parts[: i + 1]) for i in range(len(parts))]
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    sys.modules[leaf].MultiAgentMujocoEnv = object  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def number_joints_by_int() -> None:
    """Give `model.jnt()` a number where safety-gymnasium 1.0.0 gives an array of one.

    mujoco's bindings refuse it on numpy 2; the Car agent could not be built. Can be dropped when a
    release indexes `objid[0]`.
    """
    agents = importlib.import_module("safety_gymnasium.bases.base_agent")
    original = agents.BaseAgent._init_jnt_sensors

    class Model:
        def __init__(self, model):
            self._model = model

        def jnt(self, number):
            return self._model.jnt(int(np.asarray(number).item()))

        def __getattr__(self, name):
            return getattr(self._model, name)

    def with_ints(agent) -> None:
        engine = agent.engine
        agent.engine = types.SimpleNamespace(model=Model(engine.model))
        try:
            original(agent)
        finally:
            agent.engine = engine

    agents.BaseAgent._init_jnt_sensors = with_ints


# --- speed -------------------------------------------------------------------------------------


@contextlib.contextmanager
def without_sky() -> Iterator[None]:
    """Build a Circle world without its six star pictures, and read its assets only once.

    safety-gymnasium compiles the world anew in each reset and decodes 18 MB of sky each time: 1.1 s
    where 10 ms are enough. Physics does not see the sky. Can be dropped when a release caches.
    """
    world: Any = importlib.import_module("safety_gymnasium.world")
    original = world.yaml
    world.yaml = types.SimpleNamespace(load=lambda *_, **__: _assets(), FullLoader=None)
    try:
        yield
    finally:
        world.yaml = original


@functools.cache
def _assets() -> dict[str, Any]:
    import yaml  # noqa: PLC0415 (an extra)

    world = importlib.import_module("safety_gymnasium.world")
    with open(os.path.join(world.BASE_DIR, "configs", "assets.yaml"), encoding="utf-8") as file:
        assets = yaml.safe_load(file)
    gradient = {"@type": "skybox", "@builtin": "gradient", "@width": "1", "@height": "6"}
    assets["textures"]["skybox"] = gradient
    return assets


def bind_functions(client: Any) -> None:
    """Look the functions of a Bullet client up once instead of fifty times a step.

    pybullet_utils' client builds a partial at each access: a fifth of the time of a step. Can be
    dropped when it caches them.
    """
    import pybullet  # noqa: PLC0415 (an extra)

    for name in dir(pybullet):
        if name != "disconnect" and isinstance(getattr(pybullet, name), types.BuiltinFunctionType):
            setattr(client, name, getattr(client, name))


def load_without_visuals(client: Any) -> None:
    """Load robots without their visual meshes, which only pictures need: 8 ms instead of 400."""
    import pybullet  # noqa: PLC0415 (an extra)

    load = client.loadURDF

    def load_lean(*arguments, flags=0, **options):
        return load(*arguments, flags=flags | pybullet.URDF_IGNORE_VISUAL_SHAPES, **options)

    client.loadURDF = load_lean


STATE_CHANGES = (
    "stepSimulation",
    "restoreState",
    "resetBasePositionAndOrientation",
    "resetBaseVelocity",
    "resetJointState",
)


def remember_states(env: Any) -> None:
    """Ask Bullet for the state of the robot once a step instead of twenty times.

    bullet_safety_gym asks anew for each number it needs: half the time of a step. What was asked is
    kept until something moves. Can be dropped when the package keeps it.
    """
    memory: dict[Any, Any] = {}

    def forgetting(change):
        def changed(*arguments, **options):
            memory.clear()
            return change(*arguments, **options)

        return changed

    def remembered(ask):
        def answer():
            found = memory.get(ask)
            if found is None:
                found = memory[ask] = ask()
                found.flags.writeable = False
            return found

        return answer

    for name in STATE_CHANGES:
        setattr(env.bc, name, forgetting(getattr(env.bc, name)))
    robot, root = env.agent, env.agent.root_link
    for part in (robot, *robot.joint_list, *([root] if root else [])):
        part.get_state = remembered(part.get_state)
    if root:  # a ball has one part only
        root.get_quaternion = remembered(root.get_quaternion)


def leave_window_alone(env: Any) -> None:
    """Do not move the camera and the warning light of a window that is not there, at each step."""

    def note(violates: bool) -> None:
        env.agent._violates_constraints = violates

    env.agent.violates_constraints = note
    env.world.camera.update = lambda **_: None
