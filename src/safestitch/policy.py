"""A trained policy in the hand: load a run, start an episode at a limit, act, observe, redial."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from safestitch import runs
from safestitch.algos import get_algorithm
from safestitch.algos.base import Algorithm, Request
from safestitch.records import RunError, SafestitchError
from safestitch.scaling import Scaling, blank_scaling


@dataclasses.dataclass(frozen=True, eq=False)
class Policies:
    """The finished policies of a run: all seeds stacked, one scaling, one config."""

    run: runs.Run
    algorithm: Algorithm
    config: Any
    networks: PyTree
    """Stacked over seeds."""
    scaling: Scaling


def load_policies(directory: Path) -> Policies:
    """Everything a run learned.

    Raises:
        RunError: if the run is missing, unfinished, damaged or of another version.
    """
    run = runs.require_trained(directory)
    algorithm, config = recall(run)

    def networks_of(key):
        return algorithm.policy(algorithm.init(config, run.spec, key))

    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), len(run.seeds)))
    like = (jax.eval_shape(jax.vmap(networks_of), keys), blank_scaling(run.spec))
    (networks, scaling), _ = runs.load_tree(directory / runs.POLICY, like)
    return Policies(run, algorithm, config, networks, scaling)


def recall(run: runs.Run) -> tuple[Algorithm, Any]:
    """The algorithm and config named in a run.

    Raises:
        RunError: if this version does not know them.
    """
    algorithm = get_algorithm(run.algorithm)
    try:
        return algorithm, algorithm.Config(**run.config)
    except TypeError as error:
        raise RunError(
            f"the run's config does not fit this version of {run.algorithm}: {error}. Use the "
            f"version it was made with (safestitch {run.versions.get('safestitch')})"
        ) from None


def load(directory: str | Path, seed: int | None = None) -> "Policy":
    """Load one policy of a finished run; without a seed, the run's first."""
    policies = load_policies(Path(directory))
    seeds = policies.run.seeds
    chosen = seeds[0] if seed is None else seed
    if chosen not in seeds:
        raise SafestitchError(f"{directory} has no seed {seed}: it holds {seeds}")
    index = seeds.index(chosen)
    network = jax.tree.map(lambda leaf: leaf[index], policies.networks)
    return Policy(
        policies.run, policies.algorithm, policies.config, network, policies.scaling, chosen
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Policy:
    """One trained policy. Its cost limit is chosen per episode: `policy.start(limit=20)`."""

    run: runs.Run
    algorithm: Algorithm
    config: Any
    network: PyTree
    scaling: Scaling
    seed: int

    def __repr__(self) -> str:
        return f"Policy({self.algorithm.name} on {self.run.spec.task}, seed {self.seed})"

    def start(self, limit: float, target_reward: float | None = None) -> "Session":
        """Begin an episode under a cost limit; the target reward is chosen unless given."""
        if target_reward is not None and not math.isfinite(target_reward):
            raise SafestitchError(f"the target reward must be a finite number, got {target_reward}")
        request = Request(
            jnp.float32(check_limit(limit)),
            jnp.float32(math.nan if target_reward is None else target_reward),
        )
        return Session(self, float(limit), request)

    @functools.cached_property
    def _act(self):
        return jax.jit(functools.partial(self.algorithm.act, self.config))

    @functools.cached_property
    def _observe(self):
        return jax.jit(functools.partial(self.algorithm.observe, self.config))


class Session:
    """One episode: act, observe what it brought, change the limit at any step.

    Example:
        session = policy.start(limit=20)
        action = session.act(obs)
        session.observe(reward, cost)
        session.limit = 10
    """

    def __init__(self, policy: Policy, limit: float, request: Request):
        self.policy = policy
        self.reward = 0.0
        """Reward observed so far."""
        self.cost = 0.0
        """Cost observed so far."""
        self._limit = limit
        self._carry = policy.algorithm.start(policy.config, policy.network, policy.scaling, request)

    @property
    def limit(self) -> float:
        """The cost limit of the whole episode, in the task's units."""
        return self._limit

    @limit.setter
    def limit(self, new: float) -> None:
        new = check_limit(new)
        p = self.policy
        self._carry = p.algorithm.redial(
            p.config, p.scaling, self._carry, jnp.float32(self._limit), jnp.float32(new)
        )
        self._limit = new

    @property
    def remaining(self) -> float:
        """Cost that may still be spent; negative once the limit is broken."""
        return self._limit - self.cost

    def act(self, obs: Float[np.ndarray, " o"] | Float[Array, " o"]) -> Float[np.ndarray, " a"]:
        """The action for this observation, deterministic."""
        obs = np.asarray(obs, np.float32)
        expected = (self.policy.run.spec.obs_dim,)
        if obs.shape != expected or not np.isfinite(obs).all():
            raise SafestitchError(
                f"expected a finite observation of shape {expected}, got shape {obs.shape}: {obs}"
            )
        p = self.policy
        action, self._carry = p._act(p.network, p.scaling, self._carry, obs)
        return np.asarray(action)

    def observe(self, reward: float, cost: float) -> None:
        """Tell the session what its last action brought."""
        if not (math.isfinite(reward) and math.isfinite(cost) and cost >= 0):
            raise SafestitchError(
                f"expected a finite reward and a cost >= 0, got reward {reward} and cost {cost}"
            )
        self.reward += float(reward)
        self.cost += float(cost)
        p = self.policy
        self._carry = p._observe(p.scaling, self._carry, jnp.float32(reward), jnp.float32(cost))


def check_limit(limit: float) -> float:
    """A cost limit must be a number, finite, >= 0."""
    try:
        value = float(limit)
    except (TypeError, ValueError):
        raise SafestitchError(f"the cost limit {limit!r} is not a number") from None
    if not math.isfinite(value) or value < 0:
        raise SafestitchError(f"the cost limit must be a finite number >= 0, got {limit}")
    return value
