"""CAPS-IQL: Constraint-Adaptive Policy Switching over heads of implicit Q-learning.

Ledger: equations as numbered in `docs/algorithms/caps-iql.md`. The cost critics learn -c, so that
Q⁻ and V⁻ are minus the cost to go and the least of two is the pessimist for both signals.
    Eq. (1)       value_loss        E[ |τ - 1(u < 0)| u^2 ],  u = min Q'(s, a) - V(s)
    Eq. (2)       backup            y = r + γ (1 - end) V(s')
    Eq. (3)       critic_loss       mean over the twins of E[ (Q(s, a) - y)^2 ]
    Eq. (4)       advantage_weight  W = min(e^{β A}, 100)
    Eq. (5)       head_weights      W_r,  W_r + k / ((H - 1) / 2) W_c,  W_c
    Eq. (6)       policy_loss       1/H Σ_h E[ w_h (-log π_h(a | s)) ]
    Eq. (7), (8)  act               heads within the limit to go; `switching.py`

Where we differ from the released program:
    D1  Observations are standardised and actions mapped to [-1, 1], as for every method here.
    D2  `units` "data" (preset fast) measures rewards and costs by the data; "task" is as released.
Behaviours of the released program that its paper does not mention are fields: `learn_std`,
`timeouts_end`, `schedule`.
"""

import dataclasses
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree

from safestitch.algos import switching, transitions
from safestitch.algos.asking import expectile_weight
from safestitch.algos.base import Algorithm, Metrics, check_kinds, check_range
from safestitch.algos.switching import Carry, choose_head, limit_to_go
from safestitch.algos.transitions import Batch
from safestitch.learn import descend, follow, plain_adam, start_training
from safestitch.nn import MLP
from safestitch.records import Spec
from safestitch.scaling import Scaling

LARGEST_WEIGHT = 100.0


@dataclasses.dataclass(frozen=True)
class Config:
    """Defaults are those of the released program."""

    iterations: int = 100_000
    """Gradient steps."""
    batch: int = 512
    """Transitions per step."""
    learning_rate: float = 3e-4
    """Of Adam, betas (0.9, 0.999), for all networks."""
    schedule: Literal["released", "constant", "cosine"] = "released"
    """Released: the policy's learning rate follows a cosine over a million iterations, however many
    there are. Cosine: all decay to zero over all iterations."""
    layers: int = 3
    """Linear layers of each network, the output included."""
    hidden: int = 512
    """Width of a layer."""
    heads: int = 2
    """H: the first head is for reward, the last for cost."""
    discount: float = 0.99
    """γ."""
    follow: float = 0.005
    """Share of the way that target critics move in a step."""
    expectile: float = 0.7
    """τ of Eq. (1)."""
    beta: float = 3.0
    """β of Eq. (4) for reward."""
    beta_cost: float = 3.0
    """β of Eq. (4) for cost."""
    units: transitions.Units = "task"
    """Units of rewards and costs: the task's, or the data's largest returns per step."""
    reward_scale: float = 0.1
    """Rewards are multiplied by this in the task's units."""
    learn_std: bool = False
    """Learn σ of each head; off as released, where σ stays 1 and heads are weighted regressions."""
    timeouts_end: bool = True
    """Values beyond the horizon are zero, as released; off: only beyond a termination."""

    def __post_init__(self):
        check_kinds(self)
        check_range(self, ("iterations", "batch", "hidden"), 1, 1e9)
        check_range(self, ("layers",), 2, 64)
        check_range(self, ("heads",), 2, 64)
        check_range(self, ("learning_rate", "reward_scale"), 1e-12, 1e3)
        check_range(self, ("discount", "follow"), 0, 1)
        check_range(self, ("expectile",), 1e-6, 1)
        check_range(self, ("beta", "beta_cost"), 0, 1e3)


class Heads(eqx.Module):
    """π_1 .. π_H: one trunk, a Gaussian head each."""

    net: MLP
    log_std: Float[Array, "h a"]


class Networks(NamedTuple):
    """Twin critics, values and heads, each with its optimiser, and target copies of the critics."""

    reward_critics: PyTree
    cost_critics: PyTree
    reward_value: PyTree
    cost_value: PyTree
    policy: PyTree
    reward_targets: PyTree
    cost_targets: PyTree


class Acting(NamedTuple):
    """What acting needs."""

    policy: Heads
    reward_critics: tuple[MLP, ...]
    cost_critics: tuple[MLP, ...]


def least(critics: tuple[MLP, ...], s: Float[Array, "b o"], a: Float[Array, "b a"]):
    """The least over critics of Q(s, a)."""
    return jnp.stack([critic(s, a)[:, 0] for critic in critics]).min(0)


def means(policy: Heads, s: Float[Array, "b o"]) -> Float[Array, "b h a"]:
    """μ_h(s) of every head, in [-1, 1]."""
    return jnp.tanh(policy.net(s)).reshape(len(s), *policy.log_std.shape)


def log_density(policy: Heads, batch: Batch) -> Float[Array, "b h"]:
    """The logarithm of π_h(a | s), of every head."""
    std = jnp.exp(policy.log_std)[None]
    deviation = (batch.a[:, None] - means(policy, batch.s)) / std
    return -jnp.sum(0.5 * deviation**2 + jnp.log(std) + 0.5 * jnp.log(2 * jnp.pi), -1)


def value_loss(net: MLP, q: Float[Array, " b"], s: Float[Array, "b o"], expectile: float):
    """Eq. (1): E[ |τ - 1(u < 0)| u^2 ], u = Q - V(s)."""
    u = q - net(s)[:, 0]
    return jnp.mean(jax.lax.stop_gradient(expectile_weight(expectile, u)) * u**2)


def backup(signal: Float[Array, " b"], v_next: Float[Array, " b"], batch: Batch, discount: float):
    """Eq. (2): y = r + γ (1 - end) V(s'); the signal is r, or -c."""
    return signal + discount * batch.goes_on * v_next


def critic_loss(critics: tuple[MLP, ...], y: Float[Array, " b"], batch: Batch) -> Float[Array, ""]:
    """Eq. (3): mean over the twins of E[ (Q(s, a) - y)^2 ]."""
    errors = [critic(batch.s, batch.a)[:, 0] - y for critic in critics]
    return jnp.mean(jnp.stack(errors) ** 2)


def advantage_weight(advantage: Float[Array, " b"], beta: float) -> Float[Array, " b"]:
    """Eq. (4): W = min(e^{β A}, 100)."""
    return jnp.minimum(jnp.exp(beta * advantage), LARGEST_WEIGHT)


def head_weights(
    w_r: Float[Array, " b"], w_c: Float[Array, " b"], heads: int
) -> Float[Array, "b h"]:
    """Eq. (5): W_r for the first head, W_c for the last, W_r + k / ((H - 1) / 2) W_c between."""
    between = [w_r + k / ((heads - 1) / 2) * w_c for k in range(1, heads - 1)]
    return jnp.stack([w_r, *between, w_c], axis=1)


def policy_loss(policy: Heads, weights: Float[Array, "b h"], batch: Batch, learn_std: bool):
    """Eq. (6): 1/H Σ_h E[ w_h (-log π_h(a | s)) ]."""
    if not learn_std:
        policy = Heads(policy.net, jax.lax.stop_gradient(policy.log_std))
    return -jnp.mean(weights * log_density(policy, batch))


def update(cfg: Config, state: Networks, batch: Batch) -> tuple[Networks, Metrics]:
    """Values, critics, heads; advantages and backups from the values before this step."""
    critics_step, policy_step = optimisers(cfg)
    critics, values, targets, weights, metrics = {}, {}, {}, {}, {}
    for name, signal, beta in (("reward", batch.r, cfg.beta), ("cost", -batch.c, cfg.beta_cost)):
        value, trained = getattr(state, f"{name}_value"), getattr(state, f"{name}_critics")
        target = getattr(state, f"{name}_targets")
        y = backup(signal, value.net(batch.s_next)[:, 0], batch, cfg.discount)
        q = least(target, batch.s, batch.a)
        advantage = q - value.net(batch.s)[:, 0]
        weights[name] = advantage_weight(advantage, beta)
        values[f"{name}_value"], metrics[f"loss/{name}_value"] = descend(
            value, critics_step, value_loss, q, batch.s, cfg.expectile
        )
        trained, metrics[f"loss/{name}_critics"] = descend(
            trained, critics_step, critic_loss, y, batch
        )
        critics[f"{name}_critics"] = trained
        targets[f"{name}_targets"] = follow(target, trained.net, cfg.follow)
        metrics[f"weight/{name}"] = weights[name].mean()
    of_heads = head_weights(weights["reward"], weights["cost"], cfg.heads)
    policy, metrics["loss/policy"] = descend(
        state.policy, policy_step, policy_loss, of_heads, batch, cfg.learn_std
    )
    return Networks(policy=policy, **critics, **values, **targets), metrics


def optimisers(cfg: Config) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    """Adam of critics and values, and of the policy."""
    if cfg.schedule == "released":
        return plain_adam(cfg.learning_rate, None), plain_adam(cfg.learning_rate, 1_000_000)
    both = plain_adam(cfg.learning_rate, cfg.iterations if cfg.schedule == "cosine" else None)
    return both, both


def init(cfg: Config, spec: Spec, key: Key[Array, ""]) -> Networks:
    """Fresh networks; targets begin as copies."""
    critics_step, policy_step = optimisers(cfg)
    sizes = {"hidden": cfg.hidden, "layers": cfg.layers}
    keys = jax.random.split(key, 7)
    both = spec.obs_dim + spec.act_dim
    reward, cost = (
        tuple(MLP(both, 1, **sizes, key=k) for k in pair) for pair in (keys[:2], keys[2:4])
    )
    values = [MLP(spec.obs_dim, 1, **sizes, key=k) for k in keys[4:6]]
    net = MLP(spec.obs_dim, cfg.heads * spec.act_dim, **sizes, key=keys[6])
    return Networks(
        *(start_training(net, critics_step) for net in (reward, cost, *values)),
        policy=start_training(Heads(net, jnp.zeros((cfg.heads, spec.act_dim))), policy_step),
        reward_targets=jax.tree.map(jnp.copy, reward),
        cost_targets=jax.tree.map(jnp.copy, cost),
    )


def policy_of(state: Networks) -> Acting:
    """Heads, and the critics that choose among them."""
    return Acting(state.policy.net, state.reward_critics.net, state.cost_critics.net)


def act(
    cfg: Config, policy: Acting, scaling: Scaling, carry: Carry, obs: Float[Array, " o"]
) -> tuple[Float[Array, " a"], Carry]:
    """Eq. (7), (8): every head proposes its mean; the critics and the limit to go choose."""
    s = scaling.observation(obs)[None]
    proposed = means(policy.policy, s)[0]
    at = jnp.repeat(s, cfg.heads, 0)
    earns = least(policy.reward_critics, at, proposed)
    costs = -least(policy.cost_critics, at, proposed)
    limit = limit_to_go(carry.budget, carry.left, cfg.discount)
    head = choose_head(earns, costs, limit * transitions.units(cfg, scaling)[1])
    return scaling.action(proposed[head]), switching.take_step(carry)


ALGORITHM = Algorithm(
    name="caps-iql",
    Config=Config,
    presets={
        "paper": Config(),
        "fast": Config(
            iterations=15_000,
            batch=256,
            learning_rate=1e-3,
            schedule="cosine",
            hidden=256,
            units="data",
        ),
    },
    prepare=transitions.prepare,
    init=init,
    sample=transitions.sample,
    update=update,
    policy=policy_of,
    start=switching.start,
    act=act,
    observe=switching.observe,
    redial=switching.redial,
    threshold="test",
)
