"""What plays the first steps of a training: chance, or a teacher where chance finds nothing.

Any behaviours of the task can be the teacher (`--teacher`): a learner that begins with what they do
is soon past them, and the way that they took is not gone again. Two tasks have one by themselves.

AntCircle starts far from the circle where its reward is, and an ant that falls over never gets
there: learning from random steps found nothing in 200,000. Its robot is that of AntRun, which is
learned easily. The teacher is the runner that ships for AntRun, shown the world from a frame whose
x axis points where it should go: it then runs along the circle, within the bounds if the cost
weighs something. The learner sees what that brings and goes on by itself.

SwimmerVelocity pays next to nothing until both joints swing in turn, a wave along the body, and
learners that look less than hundreds of steps ahead settle for a wriggle of a tenth of the reward.
Its teacher is a gait linear in the observation, found by 160 episodes of random search (step along
differences of mirrored perturbations, Mania et al. 2018): 340 of reward. It breaks the limit of
speed at every other step; swimming evenly is left to the learner.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from safestitch.behaviours import snapshots
from safestitch.behaviours.actor import Actor, act
from safestitch.behaviours.snapshots import Behaviours
from safestitch.sims.pool import Source

Teacher = Callable[
    [Float[np.ndarray, "n o"], Float[np.ndarray, " n"], np.random.Generator],
    Float[np.ndarray, "n a"],
]
"""(observations, lambdas, random numbers) -> actions in [-1, 1]."""

LOOSENESS = 0.5
"""Of a teacher's own noise: enough to show more than one way."""
RADIUS, BOUND = 7.0, 6.0
"""Of the circle that pays, and |x| beyond which the cost is 1, in metres."""
MARGIN, CAREFUL = 1.2, 0.3
"""How far inside the bound a careful ant begins to turn, in metres; careful from this lambda on."""
ATTRACTION, REPULSION = 0.4, 1.5
"""Per metre off the circle and beyond the margin, against 1 along the circle."""

GAIT = np.array(
    [[0.5, -0.1, -0.8, 0.1, 0.5, -0.5, 0.1, -0.3], [-0.5, 0.6, -0.1, 0.4, 0.5, -0.5, 0.4, 0.2]],
    np.float32,
)
"""Torques of the swimmer's two joints by what it observes: three angles, the velocity of its tip
(x, y), three angular velocities."""


def teacher_of(source: Source, behaviours: Behaviours | None = None) -> Teacher:
    """Who plays before the learner does: the ablest of some behaviours, or what suits the task."""
    if behaviours is not None:
        return functools.partial(_shown, behaviours[ablest(behaviours)])
    match None if source.own else source.spec.task:
        case "AntCircle":
            return functools.partial(_steered, _runner())
        case "SwimmerVelocity":
            return _swimming
        case _:
            return functools.partial(_chance, source.spec.act_dim)


def ablest(behaviours: Behaviours) -> int:
    """The snapshot that does best by what learners maximise, over all lambdas of its measurement.

    Rewards are in units of the largest measured, costs in steps. The last where nothing is known.
    """
    measured = [m for m in behaviours.moments if m.lambdas]
    unit = max((abs(r) for m in measured for r in m.rewards), default=0.0) or 1.0

    def worth(index: int) -> tuple[float, int]:
        moment = behaviours.moments[index]
        if not moment.lambdas:
            return -math.inf, index
        lam, rewards, costs = map(np.array, (moment.lambdas, moment.rewards, moment.costs))
        gain = rewards / unit - lam * costs / behaviours.spec.horizon
        return float(np.mean(gain / (1.0 + lam))), index

    return max(range(len(behaviours)), key=worth)


def _shown(
    actor: Actor,
    obs: Float[np.ndarray, "n o"],
    lam: Float[np.ndarray, " n"],
    random: np.random.Generator,
) -> Float[np.ndarray, "n a"]:
    noise = random.standard_normal((len(obs), actor.biases[-1].shape[-1] // 2), np.float32)
    return np.asarray(_act(actor, obs, lam, np.float32(LOOSENESS) * noise))


_act = jax.jit(act)


def _chance(act_dim: int, obs, _, random: np.random.Generator) -> Float[np.ndarray, "n a"]:
    return random.uniform(-1.0, 1.0, (len(obs), act_dim)).astype(np.float32)


def _swimming(
    obs: Float[np.ndarray, "n 8"], lam: Float[np.ndarray, " n"], random: np.random.Generator
) -> Float[np.ndarray, "n 2"]:
    """The gait, unsteady, and weaker the more the cost weighs."""
    torques = obs @ GAIT.T + 0.1 * random.standard_normal((len(obs), 2), np.float32)
    return torques.clip(-1.0, 1.0) / (1.0 + lam[:, None])


def _runner() -> Actor:
    """The most able actor of AntRun."""
    behaviours = snapshots.load(snapshots.shipped("AntRun"))
    return behaviours[max(range(len(behaviours)), key=lambda i: behaviours.moments[i].step)]


def _steered(
    runner: Actor,
    obs: Float[np.ndarray, "n o"],
    lam: Float[np.ndarray, " n"],
    random: np.random.Generator,
) -> Float[np.ndarray, "n a"]:
    noise = random.standard_normal((len(obs), runner.biases[-1].shape[-1] // 2), np.float32)
    return np.asarray(_run_along(runner, obs, lam, noise))


@jax.jit
def _run_along(
    runner: Actor, obs: Float[Array, "n o"], lam: Float[Array, " n"], noise: Float[Array, "n a"]
) -> Float[Array, "n a"]:
    place = 10.0 * obs[:, :2]  # observed in tens of metres
    seen = turned(obs[:, : len(runner.obs_mean)], heading(place, lam))
    return act(runner, seen, jnp.zeros_like(lam), noise)  # AntRun's cost is another one


def heading(place: Float[Array, "n 2"], lam: Float[Array, " n"]) -> Float[Array, " n"]:
    """Direction to run in, radians from the x axis: clockwise, to the circle, within bounds."""
    x, y = place.T
    distance = jnp.maximum(jnp.hypot(x, y), 1e-3)
    outward = jnp.clip(ATTRACTION * (RADIUS - distance), -1.0, 1.0)
    beyond = jnp.where(lam >= CAREFUL, jnp.maximum(jnp.abs(x) - (BOUND - MARGIN), 0.0), 0.0)
    along_x = (y + outward * x) / distance - REPULSION * beyond * jnp.sign(x)
    along_y = (-x + outward * y) / distance
    return jnp.arctan2(along_y, along_x)


def turned(obs: Float[Array, "n 33"], angle: Float[Array, " n"]) -> Float[Array, "n 33"]:
    """What an ant would observe at the start of AntRun if `angle` were the direction of its track.

    An observation is place (3), velocity (3), orientation as a quaternion (x, y, z, w), angular
    velocity (3), and what belongs to the body. The first three of these are seen from the world.
    """
    cos, sin = jnp.cos(angle), jnp.sin(angle)

    def vector(v: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
        x, y, z = v.T
        return jnp.stack([cos * x + sin * y, cos * y - sin * x, z], -1)

    c, s = jnp.cos(angle / 2), jnp.sin(angle / 2)
    x, y, z, w = obs[:, 6:10].T
    q = jnp.stack([c * x + s * y, c * y - s * x, c * z - s * w, c * w + s * z], -1)
    q = jnp.where(q[:, 3:] < 0, -q, q)  # q and -q are one orientation; the runner knows w > 0
    place = jnp.zeros((len(obs), 2))
    height, body = obs[:, 2:3], obs[:, 13:]
    return jnp.concatenate([place, height, vector(obs[:, 3:6]), q, vector(obs[:, 10:13]), body], -1)
