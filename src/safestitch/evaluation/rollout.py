"""Policies x limits x episodes of a built-in task, rolled out as one batch."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from safestitch.algos.base import Request
from safestitch.envs import Task
from safestitch.policy import Policies


class Rollout(NamedTuple):
    """What every episode brought; axes are seeds, limits, episodes."""

    rewards: Float[np.ndarray, "s l e"]
    costs: Float[np.ndarray, "s l e"]


class Paths(NamedTuple):
    """Where the robot went, and which steps cost; the last axes are steps and (x, y)."""

    positions: Float[np.ndarray, "s l e t 2"]
    costs: Float[np.ndarray, "s l e t"]


def episode_keys(seed: int, episodes: int) -> Key[Array, " e"]:
    """Start keys of the first episodes: number i is the same however many are asked for."""
    root = jax.random.key(seed)
    return jax.vmap(functools.partial(jax.random.fold_in, root))(jnp.arange(episodes))


def rollout(
    policies: Policies,
    task: Task,
    limits: list[float],
    episodes: int,
    *,
    target_reward: float | None = None,
    seed: int = 0,
) -> tuple[Rollout, Paths]:
    """Roll out every seed at every limit from the same start states (paired comparison)."""
    target = float("nan") if target_reward is None else target_reward
    requests = Request(jnp.asarray(limits, jnp.float32), jnp.full(len(limits), target, jnp.float32))
    results = _compiled(policies.algorithm, policies.config, task)(
        policies.networks, policies.scaling, requests, episode_keys(seed, episodes)
    )
    rewards, costs, positions = (np.asarray(x) for x in results)
    return (
        Rollout(rewards.sum(-1, dtype=np.float64), costs.sum(-1, dtype=np.float64)),
        Paths(positions, costs),
    )


@functools.lru_cache(maxsize=8)
def _compiled(algorithm, config, task: Task):
    def episode(network, scaling, request, key):
        def step(status, _):
            state, carry, alive = status
            position = task.position(state)
            action, carry = algorithm.act(config, network, scaling, carry, task.observe(state))
            state, reward, cost, terminated = task.step(state, action)
            reward, cost = jnp.where(alive, reward, 0.0), jnp.where(alive, cost, 0.0)
            carry = algorithm.observe(config, scaling, carry, reward, cost)
            return (state, carry, alive & ~terminated), (reward, cost, position)

        carry = algorithm.start(config, network, scaling, request)
        begin = (task.reset(key), carry, jnp.asarray(True))
        return jax.lax.scan(step, begin, None, length=task.spec.horizon)[1]

    over_episodes = jax.vmap(episode, in_axes=(None, None, None, 0))
    over_limits = jax.vmap(over_episodes, in_axes=(None, None, 0, None))
    over_seeds = jax.vmap(over_limits, in_axes=(0, None, None, None))
    return jax.jit(over_seeds)
