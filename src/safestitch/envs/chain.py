"""StitchChain: a corridor whose best policy is known for every limit and is in no episode.

Twenty cells, one a step. On each cell the robot aims (action 1) at a mark that depends on the cell
and on the episode's wind, and picks a lane (action 0): the toll lane doubles the cell's reward and
costs 1. A perfect aim earns 1, so with a limit L the optimum is 20 + floor(L).

The data were logged at two entrances. Those who came by the main door aim well in the first half
and badly in the second; those who came by the side door walk ten empty cells, join in the middle
and aim well in the second half. Policies start at the main door: the best of them is stitched.
"""

import jax
import jax.numpy as jnp
import numpy as np

from safestitch.envs.base import Task, roll_behaviours
from safestitch.episodes import Episodes
from safestitch.records import Picture, Spec

CELLS = 20
HALF = CELLS // 2
AIM_WIDTH = 0.5  # an aim this far off earns nothing

SPEC = Spec("StitchChain", obs_dim=3, act_dim=2, horizon=CELLS, cost_range=float(CELLS))


def _mark(cell, wind):
    """Where to aim on a cell."""
    return 0.6 * jnp.sin(2.0 * jnp.pi * cell / 7.0) + wind


def reset(key):
    """Main door; state is (by the side door, cell, wind, lane)."""
    wind = jax.random.uniform(key, (), minval=-0.3, maxval=0.3)
    return jnp.stack([0.0, 0.0, wind, 0.0])


def observe(state):
    """(still in the side corridor, cell, wind): lanes are forgotten."""
    side, cell, wind, _ = state
    return jnp.stack([jnp.where(cell < HALF, side, 0.0), cell / CELLS, wind])


def step(state, action):
    """Aim and lane on this cell, then on to the next; the side corridor earns nothing."""
    side, cell, wind, _ = state
    lane, aim = jnp.clip(action, -1.0, 1.0)
    miss = (aim - _mark(cell, wind)) / AIM_WIDTH
    in_corridor = (side > 0.5) & (cell < HALF)
    skill = jnp.where(in_corridor, 0.0, jnp.maximum(0.0, 1.0 - miss**2))
    toll = lane > 0.0
    reward = skill * jnp.where(toll, 2.0, 1.0)
    after = jnp.stack([side, cell + 1.0, wind, lane])
    return after, reward, toll.astype(jnp.float32), jnp.asarray(False)


def behaviour(parameters, state, t, key):
    """Tolls first in each half, skilled in one half only.

    Parameters: tolls in the first and in the second half, aim error in either, action noise.
    """
    tolls_first, tolls_second, error_first, error_second, noise = parameters
    second = t >= HALF
    paid = jnp.where(second, t - HALF < tolls_second, t < tolls_first)
    error = jnp.where(second, error_second, error_first)
    jitter = noise * jax.random.normal(key, (2,))
    lane = jnp.where(paid, 0.7, -0.7) + jnp.clip(jitter[0], -0.5, 0.5)
    return jnp.stack([lane, _mark(state[1], state[2]) + error + jitter[1]])


def optimum(limit: float) -> float:
    """Perfect aim on all cells, and a toll wherever the limit allows one."""
    return CELLS + min(float(np.floor(limit)), float(CELLS))


def make_data(seed: int, episodes: int = 1500) -> Episodes:
    """Half of the episodes by each door, none of them good in both halves."""
    rng = np.random.default_rng(seed)
    side = rng.uniform(size=episodes) < 0.5
    sign = rng.choice([-1.0, 1.0], episodes)
    sloppy = sign * rng.uniform(0.45, 0.9, episodes)
    skilled = np.zeros(episodes)
    parameters = np.stack(
        [
            rng.integers(0, HALF + 1, episodes),
            rng.integers(0, HALF + 1, episodes),
            np.where(side, sloppy, skilled),
            np.where(side, skilled, sloppy),
            rng.uniform(0.0, 0.15, episodes),
        ],
        axis=1,
    ).astype(np.float32)
    start_key, noise_key = jax.random.split(jax.random.key(seed))
    starts = jax.vmap(reset)(jax.random.split(start_key, episodes))
    starts = starts.at[:, 0].set(jnp.asarray(side, jnp.float32))
    return roll_behaviours(
        step, observe, behaviour, starts, jnp.asarray(parameters), CELLS, noise_key
    )


STITCH_CHAIN = Task(
    spec=SPEC,
    reset=reset,
    observe=observe,
    step=step,
    make_data=make_data,
    position=lambda state: state[jnp.array([1, 3])],
    picture=Picture(
        x_label="cell",
        y_label="lane",
        zones=((-np.inf, np.inf, 0.0, np.inf),),
        zone_label="the toll lane (above 0) costs 1 a cell",
    ),
    optimum=optimum,
)
