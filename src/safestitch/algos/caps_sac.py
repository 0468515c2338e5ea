"""CAPS-SAC: Constraint-Adaptive Policy Switching over heads of soft actor-critic + cloning.

Ledger: equations as numbered in `docs/algorithms/caps-sac.md`. The cost critics learn -c, so that
Q⁻ is minus the cost to go and the least of four is the pessimist for both signals.
    Eq. (1)       draw              a_k = tanh(μ_k + σ_k ε), and log π_k(a_k | s)
    Eq. (2)       backup            y_k = r + γ (1 - end) min Q'(s', a'_k) - α log π_k(a'_k | s')
    Eq. (3)       critic_loss       1/H Σ_k Σ_i E[ (Q_i(s, a) - y_k)^2 ]
    Eq. (4)       mixture           M_k = Q + k / ((H - 1) / 2) Q⁻;  Q⁻ for the last head
    Eq. (5)       policy_loss       Σ_k E[ α log π_k - 2.5 M_k / E|M_k| ] + (a_k - a)^2
    Eq. (6)       temperature_loss  Σ_k E[ α (-log π_k + dim a) ]
    Eq. (7), (8)  act               heads within the limit to go; `switching.py`

Where we differ from the released program:
    D1  Observations are standardised and actions mapped to [-1, 1], as for every method here.
    D2  `units` "data" (preset fast) measures rewards and costs by the data; "task" is as released.
Behaviours of the released program that its paper does not mention are fields: `cost_entropy`,
`discount_entropy`, `timeouts_end`.
"""

import dataclasses
import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree

from safestitch.algos import switching, transitions
from safestitch.algos.base import Algorithm, Metrics, check_kinds, check_range
from safestitch.algos.switching import Carry, choose_head, limit_to_go
from safestitch.algos.transitions import Data
from safestitch.learn import descend, follow, plain_adam, start_training
from safestitch.nn import MLP
from safestitch.records import Spec
from safestitch.scaling import Scaling

CRITICS = 4
FIRST_TEMPERATURE = 0.1


@dataclasses.dataclass(frozen=True)
class Config:
    """Defaults are those of the released program."""

    iterations: int = 100_000
    """Gradient steps."""
    batch: int = 512
    """Transitions per step."""
    learning_rate: float = 1e-4
    """Of Adam, betas (0.9, 0.999), for the heads and the temperature."""
    critic_learning_rate: float = 1e-3
    """Of Adam for the critics."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Cosine decays the learning rates to zero over all iterations."""
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
    value_weight: float = 2.5
    """Of the critics against cloning, in Eq. (5)."""
    units: transitions.Units = "task"
    """Units of rewards and costs: the task's, or the data's largest returns per step."""
    reward_scale: float = 0.1
    """Rewards are multiplied by this in the task's units."""
    cost_entropy: bool = True
    """The cost backup carries the entropy term too, as released: costs to go are biased by it."""
    discount_entropy: bool = False
    """Off as released: the entropy term of Eq. (2) stands outside of γ (1 - end)."""
    timeouts_end: bool = True
    """Values beyond the horizon are zero, as released; off: only beyond a termination."""

    def __post_init__(self):
        check_kinds(self)
        check_range(self, ("iterations", "batch", "hidden"), 1, 1e9)
        check_range(self, ("layers",), 2, 64)
        check_range(self, ("heads",), 2, 64)
        check_range(self, ("learning_rate", "critic_learning_rate", "reward_scale"), 1e-12, 1e3)
        check_range(self, ("discount", "follow"), 0, 1)
        check_range(self, ("value_weight",), 0, 1e3)


class Batch(NamedTuple):
    """Transitions (s, a, r, c, s'), and normal noise for the heads' actions at s and at s'."""

    s: Float[Array, "b o"]
    a: Float[Array, "b a"]
    r: Float[Array, " b"]
    c: Float[Array, " b"]
    s_next: Float[Array, "b o"]
    goes_on: Float[Array, " b"]
    noise: Float[Array, "b h a"]
    noise_next: Float[Array, "b h a"]


class Networks(NamedTuple):
    """Critics, heads, log α, each with its optimiser, and target copies of the critics."""

    reward_critics: PyTree
    cost_critics: PyTree
    policy: PyTree
    temperature: PyTree
    reward_targets: PyTree
    cost_targets: PyTree


class Acting(NamedTuple):
    """What acting needs."""

    policy: MLP
    reward_critics: tuple[MLP, ...]
    cost_critics: tuple[MLP, ...]


def sample(cfg: Config, data: Data, key: Key[Array, ""]) -> Batch:
    """Transitions, uniformly and with replacement, and noise."""
    for_rows, for_noise = jax.random.split(key)
    shape = (2, cfg.batch, cfg.heads, data.actions.shape[1])
    return Batch(*transitions.sample(cfg, data, for_rows), *jax.random.normal(for_noise, shape))


def heads_at(policy: MLP, s: Float[Array, "b o"], heads: int):
    """μ_k(s) and log σ_k(s) of every head; log σ within [-20, 2]."""
    mean, log_std = jnp.split(policy(s).reshape(len(s), heads, -1), 2, axis=-1)
    return mean, jnp.clip(log_std, -20.0, 2.0)


def draw(
    policy: MLP, s: Float[Array, "b o"], noise: Float[Array, "b h a"]
) -> tuple[Float[Array, "b h a"], Float[Array, "b h"]]:
    """Eq. (1): a_k = tanh(μ_k + σ_k ε), and log π_k(a_k | s) of every head."""
    mean, log_std = heads_at(policy, s, noise.shape[1])
    u = mean + jnp.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    squash = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))  # log of tanh's slope
    return jnp.tanh(u), jnp.sum(normal - squash, -1)


def least(critics: tuple[MLP, ...], s: Float[Array, "b o"], a: Float[Array, "b h a"]):
    """The least over critics of Q(s, a_k), for every head."""
    rows = jnp.repeat(s, a.shape[1], 0)
    values = [critic(rows, a.reshape(len(rows), -1))[:, 0] for critic in critics]
    # By pairs: the gradient of a min over an axis is 0 / 0 if a recomputed value differs by a bit.
    return functools.reduce(jnp.minimum, values).reshape(a.shape[:2])


def backup(
    cfg: Config, signal: Float[Array, " b"], q_next, entropy: Float[Array, "b h"], batch: Batch
) -> Float[Array, "b h"]:
    """Eq. (2): y_k = r + γ (1 - end) min Q'(s', a'_k) - α log π_k; the signal is r, or -c.

    Args:
        cfg: says where the entropy term stands.
        signal: r, or -c.
        q_next: min Q'(s', a'_k).
        entropy: -α log π_k(a'_k | s').
        batch: says where episodes end.
    """
    onward = cfg.discount * batch.goes_on[:, None]
    if cfg.discount_entropy:
        return signal[:, None] + onward * (q_next + entropy)
    return signal[:, None] + onward * q_next + entropy


def critic_loss(critics: tuple[MLP, ...], y: Float[Array, "b h"], batch: Batch):
    """Eq. (3): 1/H Σ_k Σ_i E[ (Q_i(s, a) - y_k)^2 ]."""
    errors = [critic(batch.s, batch.a) - y for critic in critics]
    return jnp.mean(sum(error**2 for error in errors))


def mixture(q_r: Float[Array, "b h"], q_c: Float[Array, "b h"]) -> Float[Array, "b h"]:
    """Eq. (4): M_k = Q + k / ((H - 1) / 2) Q⁻ for all heads but the last, and Q⁻ for that."""
    heads = q_r.shape[1]
    share = jnp.arange(heads, dtype=q_r.dtype)[None] / ((heads - 1) / 2)
    last = (jnp.arange(heads) == heads - 1)[None]
    return jnp.where(last, q_c, q_r + share * q_c)


def policy_loss(policy: MLP, critics, alpha: Float[Array, ""], batch: Batch, value_weight: float):
    """Eq. (5): Σ_k E[ α log π_k - 2.5 M_k / E|M_k| ] + (a_k - a)^2, the last a mean over all."""
    a, log_pi = draw(policy, batch.s, batch.noise)
    M = mixture(*(least(group, batch.s, a) for group in critics))
    size = jax.lax.stop_gradient(jnp.abs(M).mean(0)) + 1e-8
    cloning = jnp.mean((a - batch.a[:, None]) ** 2, axis=(0, 2))
    return jnp.sum(jnp.mean(alpha * log_pi, 0) - value_weight * M.mean(0) / size + cloning)


def temperature_loss(log_alpha: Float[Array, ""], log_pi: Float[Array, "b h"], act_dim: int):
    """Eq. (6): Σ_k E[ α (-log π_k + dim a) ]: entropy is held at minus the actions' dimensions."""
    return jnp.exp(log_alpha) * jnp.sum(jnp.mean(-log_pi + act_dim, 0))


def update(cfg: Config, state: Networks, batch: Batch) -> tuple[Networks, Metrics]:
    """Critics, then heads against the new critics, then temperature and targets."""
    step, critic_step = optimisers(cfg)
    alpha = jnp.exp(state.temperature.net)
    a_next, log_pi = draw(state.policy.net, batch.s_next, batch.noise_next)
    critics, targets, metrics = {}, {}, {"temperature": alpha}
    for name, signal in (("reward", batch.r), ("cost", -batch.c)):
        target = getattr(state, f"{name}_targets")
        with_entropy = name == "reward" or cfg.cost_entropy
        entropy = -alpha * log_pi if with_entropy else jnp.zeros_like(log_pi)
        y = backup(cfg, signal, least(target, batch.s_next, a_next), entropy, batch)
        critics[f"{name}_critics"], metrics[f"loss/{name}_critics"] = trained, _ = descend(
            getattr(state, f"{name}_critics"), critic_step, critic_loss, y, batch
        )
        targets[f"{name}_targets"] = follow(target, trained.net, cfg.follow)
    nets = tuple(trained.net for trained in critics.values())
    policy, metrics["loss/policy"] = descend(
        state.policy, step, policy_loss, nets, alpha, batch, cfg.value_weight
    )
    _, log_pi = draw(state.policy.net, batch.s, batch.noise)
    temperature, _ = descend(state.temperature, step, temperature_loss, log_pi, batch.a.shape[1])
    return Networks(policy=policy, temperature=temperature, **critics, **targets), metrics


def optimisers(cfg: Config) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    """Adam of heads and temperature, and of the critics."""
    decay = cfg.iterations if cfg.schedule == "cosine" else None
    return plain_adam(cfg.learning_rate, decay), plain_adam(cfg.critic_learning_rate, decay)


def init(cfg: Config, spec: Spec, key: Key[Array, ""]) -> Networks:
    """Fresh networks; targets begin as copies."""
    step, critic_step = optimisers(cfg)
    sizes = {"hidden": cfg.hidden, "layers": cfg.layers}
    keys = jax.random.split(key, 2 * CRITICS + 1)
    both = spec.obs_dim + spec.act_dim
    reward, cost = (
        tuple(MLP(both, 1, **sizes, key=k) for k in group)
        for group in (keys[:CRITICS], keys[CRITICS:-1])
    )
    policy = MLP(spec.obs_dim, 2 * cfg.heads * spec.act_dim, **sizes, key=keys[-1])
    return Networks(
        start_training(reward, critic_step),
        start_training(cost, critic_step),
        start_training(policy, step),
        start_training(jnp.log(jnp.float32(FIRST_TEMPERATURE)), step),
        reward_targets=jax.tree.map(jnp.copy, reward),
        cost_targets=jax.tree.map(jnp.copy, cost),
    )


def policy_of(state: Networks) -> Acting:
    """Heads, and the critics that choose among them."""
    return Acting(state.policy.net, state.reward_critics.net, state.cost_critics.net)


def act(
    cfg: Config, policy: Acting, scaling: Scaling, carry: Carry, obs: Float[Array, " o"]
) -> tuple[Float[Array, " a"], Carry]:
    """Eq. (7), (8): every head proposes tanh(μ_k); the critics and the limit to go choose."""
    s = scaling.observation(obs)[None]
    proposed = jnp.tanh(heads_at(policy.policy, s, cfg.heads)[0])
    earns = least(policy.reward_critics, s, proposed)[0]
    costs = jnp.maximum(-least(policy.cost_critics, s, proposed)[0], 0.0)
    limit = limit_to_go(carry.budget, carry.left, cfg.discount)
    head = choose_head(earns, costs, limit * transitions.units(cfg, scaling)[1])
    return scaling.action(proposed[0, head]), switching.take_step(carry)


ALGORITHM = Algorithm(
    name="caps-sac",
    Config=Config,
    presets={
        "paper": Config(),
        "fast": Config(
            iterations=10_000,
            batch=256,
            learning_rate=1e-3,
            schedule="cosine",
            hidden=256,
            units="data",
        ),
    },
    prepare=transitions.prepare,
    init=init,
    sample=sample,
    update=update,
    policy=policy_of,
    start=switching.start,
    act=act,
    observe=switching.observe,
    redial=switching.redial,
    threshold="test",
)
