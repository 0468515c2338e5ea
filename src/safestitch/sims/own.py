"""The user's own gymnasium environment, through the same door as the field's tasks.

Its cost is `info["cost"]`, or the third of six values returned by `step` as Safety-Gymnasium does.
"""

import importlib
import math
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from safestitch.records import SafestitchError, Spec
from safestitch.sims.base import Step
from safestitch.sims.mends import quiet

COST_ADVICE = (
    'give it in info["cost"], or return six values: observation, reward, cost, terminated, '
    "truncated, info"
)


class Own:
    """An environment made by `package.module:function`, or of a gymnasium id.

    Args:
        source: what makes it.
        horizon: steps of a full episode; read off the environment's time limit unless given.
    """

    def __init__(self, source: str, horizon: int | None = None):
        self.source = source
        self.env = _made(source)
        self.spec = _spec(source, self.env, horizon)
        self._steps = 0

    def reset(self, seed: int) -> Float[np.ndarray, " o"]:
        """Begin an episode with the environment's own seeding."""
        self._steps = 0
        outcome = self._called("reset", seed=int(seed))
        if not isinstance(outcome, tuple) or len(outcome) != 2:
            raise self._error(f"reset returned {_shape_of(outcome)}, expected (observation, info)")
        return self._observation(outcome[0])

    def step(self, action: Float[np.ndarray, " a"]) -> Step:
        """Take one action, within the bounds of the action space."""
        space = self.env.action_space
        self._steps += 1
        outcome = self._called("step", np.clip(action, space.low, space.high).astype(space.dtype))
        if not isinstance(outcome, tuple) or len(outcome) not in (5, 6):
            raise self._error(
                f"step returned {_shape_of(outcome)}, expected five or six values: observation, "
                "reward, (cost,) terminated, truncated, info"
            )
        observation, reward, *cost, terminated, truncated, info = outcome
        if not cost and "cost" not in info:
            raise self._error(f"step returned no cost: {COST_ADVICE}")
        step = Step(
            self._observation(observation),
            self._number("reward", reward),
            self._number("cost", cost[0] if cost else info["cost"]),
            bool(terminated),
            bool(truncated),
        )
        if self._steps >= self.spec.horizon and not (step.terminated or step.truncated):
            raise self._error(
                f"the episode goes on after {self.spec.horizon} steps, the horizon: end it there "
                f"(gymnasium.wrappers.TimeLimit(env, {self.spec.horizon})), or give the true "
                "length with --horizon"
            )
        return step

    def position(self) -> tuple[float, float]:
        """Not known."""
        return math.nan, math.nan

    def picture(self, width: int, height: int) -> UInt8[np.ndarray, "h w 3"]:
        """The environment's own rgb_array; make it with render_mode="rgb_array"."""
        from safestitch.sims.film import fitted  # noqa: PLC0415 (only pictures need it)

        drawn = self._called("render")
        if not isinstance(drawn, np.ndarray) or drawn.ndim != 3 or drawn.shape[2] != 3:
            raise self._error(
                f"render returned {_shape_of(drawn)}, expected an array (height, width, 3): make "
                'the environment with render_mode="rgb_array"'
            )
        return fitted(drawn.astype(np.uint8), width, height)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _called(self, name: str, *arguments: Any, **options: Any) -> Any:
        try:
            return getattr(self.env, name)(*arguments, **options)
        except Exception as error:  # whatever a user's code raises, say where
            raise self._error(f"{name} raised {type(error).__name__}: {error}") from error

    def _observation(self, observation: Any) -> Float[np.ndarray, " o"]:
        values = np.asarray(observation, np.float64)
        if values.shape != (self.spec.obs_dim,):
            raise self._error(
                f"an observation of shape {values.shape}, expected ({self.spec.obs_dim},) as its "
                "observation_space says"
            )
        return values

    def _number(self, name: str, value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            raise self._error(f"the {name} is {value!r}, expected a number") from None

    def _error(self, what: str) -> SafestitchError:
        return SafestitchError(f"{self.source}, step {self._steps}: {what}")


def _made(source: str) -> Any:
    module, _, attribute = source.rpartition(":")
    try:
        found = importlib.import_module(module) if module else None
    except Exception as error:  # a user's module may fail in any way
        raise SafestitchError(
            f"--env {source}: importing {module} failed with {type(error).__name__}: {error}. "
            "Expected package.module:function, the module importable from here"
        ) from error
    try:
        if found is not None and hasattr(found, attribute):
            return getattr(found, attribute)()
        return _gymnasium(source).make(attribute, disable_env_checker=True)
    except SafestitchError:
        raise
    except Exception as error:  # a user's function, or an unknown id
        raise SafestitchError(
            f"--env {source}: making the environment failed with {type(error).__name__}: {error}. "
            "Expected package.module:function, or the id of a registered gymnasium environment"
        ) from error


def _gymnasium(source: str) -> Any:
    try:
        with quiet():
            return importlib.import_module("gymnasium")
    except ImportError:
        raise SafestitchError(
            f"--env {source} is looked up in gymnasium, which is not installed: pip install "
            "'gymnasium>=0.29.1'"
        ) from None


def _spec(source: str, env: Any, horizon: int | None) -> Spec:
    observations, actions = env.observation_space, env.action_space
    for name, space in (("observation_space", observations), ("action_space", actions)):
        if (
            getattr(space, "shape", None) is None
            or len(space.shape) != 1
            or not hasattr(space, "low")
        ):
            raise SafestitchError(
                f"{source}: its {name} is {space}, expected a Box of one dimension: flatten it "
                "(gymnasium.wrappers.FlattenObservation), and use continuous actions"
            )
    if not (np.isfinite(actions.low).all() and np.isfinite(actions.high).all()):
        raise SafestitchError(f"{source}: its action_space {actions} is unbounded: give it bounds")
    declared = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    steps = horizon or declared
    if not steps:
        raise SafestitchError(
            f"{source}: how long is an episode? Give --horizon, or make the environment with a "
            "time limit (gymnasium.wrappers.TimeLimit)"
        )
    return Spec(
        task=source,
        obs_dim=observations.shape[0],
        act_dim=actions.shape[0],
        horizon=int(steps),
        cost_range=0.0,
        action_low=float(actions.low.min()),
        action_high=float(actions.high.max()),
    )


def _shape_of(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return repr(value)[:80]
