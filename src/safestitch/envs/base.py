"""What a built-in task is: pure functions of one state, batched by whoever calls them."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from safestitch.episodes import Episodes
from safestitch.records import Picture, Spec


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """A task in pure JAX. States are flat arrays; costs are >= 0, lower is better."""

    spec: Spec
    reset: Callable[[Key[Array, ""]], Float[Array, " s"]]
    observe: Callable[[Float[Array, " s"]], Float[Array, " o"]]
    step: Callable[
        [Float[Array, " s"], Float[Array, " a"]],
        tuple[Float[Array, " s"], Float[Array, ""], Float[Array, ""], Bool[Array, ""]],
    ]
    """state, action -> next state, reward, cost, terminated."""
    make_data: Callable[[int], Episodes]
    """seed -> logged episodes of scripted behaviours."""
    position: Callable[[Float[Array, " s"]], Float[Array, "2"]]
    """Where the robot is drawn."""
    picture: Picture
    optimum: Callable[[float], float] | None = None
    """The most reward any policy can earn within a cost limit, where it is known."""


def roll_behaviours(
    task_step: Callable,
    observe: Callable,
    behaviour: Callable,
    starts: Float[Array, "e s"],
    parameters: Float[Array, "e p"],
    horizon: int,
    key: Key[Array, ""],
) -> Episodes:
    """Log one full-length episode per start state and row of behaviour parameters."""

    def episode(start, parameter, episode_key):
        def one_step(state, t):
            step_key = jax.random.fold_in(episode_key, t)
            action = behaviour(parameter, state, t.astype(jnp.float32), step_key)
            action = jnp.clip(action, -1.0, 1.0)
            after, reward, cost, _ = task_step(state, action)
            return after, (observe(state), action, reward, cost)

        return jax.lax.scan(one_step, start, jnp.arange(horizon))[1]

    keys = jax.random.split(key, len(starts))
    columns = jax.jit(jax.vmap(episode))(starts, parameters, keys)
    observations, actions, rewards, costs = (np.asarray(c) for c in columns)
    episodes = len(starts)
    truncated = np.zeros((episodes, horizon), bool)
    truncated[:, -1] = True
    return Episodes.of(
        observations.reshape(episodes * horizon, -1),
        actions.reshape(episodes * horizon, -1),
        rewards.reshape(-1),
        costs.reshape(-1),
        np.zeros(episodes * horizon, bool),
        truncated.reshape(-1),
    )
