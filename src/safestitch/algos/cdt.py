"""CDT: the Constrained Decision Transformer (arXiv 2302.07351). One training, every cost limit.

Ledger: equations as numbered in `docs/algorithms/cdt.md`
    Eq. (1)-(4)  prepare           requests beyond the frontier and who stands in (`augmenting.py`);
                                   P(episode) ~ max(0, c_cap - C) (`windows.py`)
    Eq. (5)      tokens            per step (R^, c_offset - C^, s, a), plus the time's embedding
    Eq. (6)      likelihood        mean log N(a; μ, σ) over steps and dimensions of the actions
    Eq. (7)      entropy           mean H(N(μ, σ))
    Eq. (8)      cost_loss         mean of -log p(c_t > 0 | tokens up to a_t)
    Eq. (9)      policy_loss       -(Eq. 6 + τ Eq. 7) + 0.02 Eq. 8
    Eq. (10)     temperature_loss  τ (H - H*)

Where we differ from the released program (OSRL):
    D1  Observations are standardised and actions mapped to [-1, 1], as for every method here.
    D2  Acting: the authors set target rewards by hand. By default the target is chosen as for GAS:
        a budget goal G and a cost floor B are trained beside the transformer (`asking.py`).
        `target` "table" takes the authors' own.
    D3  The cost class is c > 0; the state prediction, whose published weight is 0, is left out.
    D4  `units` "data" (preset fast) measures returns by the data's largest; "task" is as released.
"""

import dataclasses
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, UInt

from safestitch.algos import asking, augmenting, segments
from safestitch.algos.base import Algorithm, Metrics, Request, check_kinds, check_range, pick
from safestitch.algos.windows import (
    Data,
    Window,
    cut_windows,
    empty_window,
    per_unit,
    remember,
    tabulate,
)
from safestitch.episodes import Episodes
from safestitch.learn import (
    clipped_adamw,
    descend,
    descend_in_parts,
    plain_adam,
    split,
    start_training,
)
from safestitch.records import SafestitchError, Spec
from safestitch.scaling import Scaling
from safestitch.transformer import Dropout, Linear, Transformer

BESIDE = {"embedding": 64, "hidden": 128, "layers": 4}  # sizes of G and B: of GAS's
FIRST_TEMPERATURE = 0.1
PART = 64  # windows whose gradient is taken at once


@dataclasses.dataclass(frozen=True)
class Config:
    """Defaults are those of the released program."""

    iterations: int = 100_000
    """Gradient steps."""
    batch: int = 2048
    """Windows per step."""
    learning_rate: float = 1e-4
    """Of AdamW, betas (0.9, 0.999)."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Cosine decays the learning rate to zero over all iterations."""
    warm_up: int = 500
    """Iterations over which the learning rate rises."""
    weight_decay: float = 1e-4
    """Of AdamW."""
    clip: float = 0.25
    """Largest gradient norm."""
    context: int = 10
    """K: steps of a window."""
    embedding: int = 128
    """Width of a token."""
    blocks: int = 3
    """Blocks of the transformer."""
    heads: int = 8
    """Heads of attention."""
    dropout: float = 0.1
    """Share of values dropped in training."""
    cost_weight: float = 0.02
    """Of Eq. (8) in Eq. (9)."""
    entropy_target: Literal["released", "per_dimension"] = "released"
    """H*: minus the number of action dimensions, though H is a mean over them; or -1."""
    augment: float = 0.2
    """Share of episodes added with requests beyond the frontier."""
    pairing: augmenting.Pairing = "released"
    """Released: part of those requests go to another's episode; kept: each to its own."""
    hand_set: bool = True
    """Numbers set by hand for relabelling, where there are any; off: measured by the data."""
    units: Literal["task", "data"] = "task"
    """Units of returns: the task's as released, or shares of the data's largest."""
    reward_scale: float = 0.1
    """Rewards are multiplied by this in the task's units."""
    cost_offset: float = 50.0
    """Costs are shown as this minus C^, in the units chosen."""
    cost_cap: float = 70.0
    """Episodes of this cost and above are never drawn, in the units chosen."""
    target: Literal["frontier", "again", "first", "rising", "table"] = "frontier"
    """How the requested reward is chosen when acting (D2)."""
    budget_expectile: float = 0.99
    """Expectile of the budget goal G."""
    budget_batch: int = 256
    """Segments per step that train G and B."""
    whole: float = 0.5
    """Share of the segments that train G and B that end with their episode, the others anywhere."""
    thrift: float = 0.03
    """Share of G that is given up where that spares a small budget; less of a larger one."""
    reserve: float = 0.02
    """Share of C^max that is kept back from the limit, except with "table"."""

    def __post_init__(self):
        check_kinds(self)
        sizes = ("iterations", "batch", "embedding", "budget_batch", "warm_up")
        check_range(self, sizes, 1, 1e9)
        check_range(self, ("context", "blocks", "heads"), 1, 1000)
        check_range(self, ("learning_rate", "clip", "reward_scale"), 1e-12, 1e3)
        shares = ("augment", "whole", "thrift", "reserve")
        check_range(self, ("weight_decay", *shares), 0, 1)
        check_range(self, ("dropout",), 0, 0.99)
        check_range(self, ("budget_expectile",), 1e-6, 1)
        check_range(self, ("cost_weight", "cost_offset", "cost_cap"), 0, 1e9)
        if self.embedding % self.heads:
            raise SafestitchError(
                f"embedding is {self.embedding}: expected a multiple of heads ({self.heads})"
            )


class Batch(NamedTuple):
    """Windows, and segments for G and B."""

    window: Window
    costly: Float[Array, "b k"]
    valid: Float[Array, "b k"]
    seed: UInt[Array, " b"]
    """Of the dropout."""
    segments: asking.Segments


class Network(eqx.Module):
    """Embeddings, transformer, and the heads that read it."""

    reward: Linear
    cost: Linear
    state: Linear
    action: Linear
    time: Float[Array, "t d"]
    body: Transformer
    mean_std: Linear
    cost_class: Linear


class Networks(NamedTuple):
    """Transformer, log τ, G and B, with their optimisers in training; hand-set targets."""

    policy: PyTree
    temperature: PyTree
    advisors: asking.Advisors
    table: Float[Array, "2 p"]


def prepare(cfg: Config, episodes: Episodes, spec: Spec, scaling: Scaling) -> Data:
    """Eq. (1)-(4): episodes, copies with requests beyond the frontier, how often each is drawn."""
    known = augmenting.hand_set().get(spec.task) if cfg.hand_set else None
    numbers = known or augmenting.measured(episodes.returns)
    returns = episodes.returns, episodes.cost_returns
    added = augmenting.relabel_episodes(*returns, numbers, cfg.augment, cfg.pairing)
    return tabulate(cfg, episodes, spec, scaling, added)


def sample(cfg: Config, data: Data, key: Key[Array, ""]) -> Batch:
    """Windows of episodes by Eq. (4), from any step on; segments uniformly."""
    bits = jax.random.bits(key, (6, cfg.batch))
    u = (bits[:4] >> 8).astype(jnp.float32) * 2.0**-24
    window, costly, valid = cut_windows(cfg, data, u[0], u[1])
    row = pick(bits[4], len(data.steps.rewards))
    end = segments.draw_ends(cfg.whole, data.steps, row, u[2])
    R, C, t = segments.segments(data.steps, row, end)
    s, budget = data.steps.observations[row], asking.tight_budget(C, u[3])
    return Batch(window, costly, valid, bits[5], asking.Segments(s, R, C, t, budget))


def tokens(cfg: Config, net: Network, window: Window) -> Float[Array, "b n d"]:
    """Eq. (5): per step (R^, c_offset - C^, s, a), each plus the embedding of its time."""
    shown = (window.R_hat[..., None], (cfg.cost_offset - window.C_hat)[..., None])
    parts = [net.reward(shown[0]), net.cost(shown[1]), net.state(window.s), net.action(window.a)]
    each = jnp.stack(parts, axis=2) + net.time[window.time][:, :, None]
    return each.reshape(len(each), -1, cfg.embedding)


def read(cfg: Config, net: Network, window: Window, drop: Dropout | None = None):
    """μ, log σ at the states' tokens, and logits of the cost class at the actions'."""
    x = net.body(tokens(cfg, net, window), (4, 2), heads=cfg.heads, drop=drop)  # of 4 the last 2
    at_state, at_action = x[:, 0::2], x[:, 1::2]
    mean, log_std = jnp.split(net.mean_std(at_state), 2, axis=-1)
    return mean, log_std, net.cost_class(at_action)


def over_valid(x: Float[Array, "b k a"], valid: Float[Array, "b k"]) -> Float[Array, ""]:
    """Mean over valid steps and dimensions."""
    return jnp.sum(x * valid[..., None]) / (jnp.sum(valid) * x.shape[-1])


def likelihood(mean, log_std, batch: Batch) -> Float[Array, ""]:
    """Eq. (6): mean log N(a; μ, σ) over steps and dimensions of the actions."""
    deviation = (batch.window.a - mean) * jnp.exp(-log_std)
    return over_valid(-0.5 * (deviation**2 + jnp.log(2 * jnp.pi)) - log_std, batch.valid)


def entropy(log_std, batch: Batch) -> Float[Array, ""]:
    """Eq. (7): mean H(N(μ, σ)) over steps and dimensions."""
    return over_valid(log_std + 0.5 * (1.0 + jnp.log(2 * jnp.pi)), batch.valid)


def cost_loss(logits: Float[Array, "b k 2"], batch: Batch) -> Float[Array, ""]:
    """Eq. (8): mean of -log p(c_t > 0 | tokens up to a_t), over all steps, valid or not."""
    log_p = jax.nn.log_softmax(logits)
    found = jnp.where(batch.costly > 0, log_p[..., 1], log_p[..., 0])
    return -jnp.mean(found * batch.valid)


def policy_loss(
    net: Network, cfg: Config, tau: Float[Array, ""], batch: Batch, share: Float[Array, ""]
):
    """Eq. (9): -(Eq. 6 + τ Eq. 7) + 0.02 Eq. 8; also Eq. (7) by itself.

    Of a part of a batch, `share` is how many valid steps it has, by the mean of all parts.
    """
    drop = Dropout(batch.seed, cfg.dropout) if cfg.dropout else None
    mean, log_std, logits = read(cfg, net, batch.window, drop)
    H = share * entropy(log_std, batch)
    likely = share * likelihood(mean, log_std, batch)
    return -(likely + tau * H) + cfg.cost_weight * cost_loss(logits, batch), H


def temperature_loss(log_tau: Float[Array, ""], H: Float[Array, ""], target: float):
    """Eq. (10): τ (H - H*)."""
    return jnp.exp(log_tau) * (H - target)


def update(cfg: Config, state: Networks, batch: Batch) -> tuple[Networks, Metrics]:
    """One step each for the transformer, its temperature, G and B."""
    tau = jnp.exp(state.temperature.net)
    parts = split(batch, PART)
    valid = parts.valid.sum((1, 2))
    policy, (loss, H) = descend_in_parts(
        state.policy, optimiser(cfg), policy_loss, cfg, tau, parts=(parts, valid / valid.mean())
    )
    wanted = -float(batch.window.a.shape[-1]) if cfg.entropy_target == "released" else -1.0
    plain = plain_adam(cfg.learning_rate, None)
    temperature, _ = descend(state.temperature, plain, temperature_loss, H, wanted)
    few = jax.tree.map(lambda x: x[: cfg.budget_batch], batch.segments)
    advisors, metrics = asking.train_advisors(
        state.advisors, optimiser_beside(cfg), few, cfg.budget_expectile
    )
    metrics |= {"loss/policy": loss, "entropy": H, "temperature": tau}
    return Networks(policy, temperature, advisors, state.table), metrics


def optimiser(cfg: Config) -> optax.GradientTransformation:
    """AdamW behind a gradient clip; the learning rate rises over the first iterations."""

    def rate(k):
        k = jnp.asarray(k, jnp.float32)
        falling = 0.5 + 0.5 * jnp.cos(jnp.pi * k / cfg.iterations)
        rising = jnp.minimum((k + 1.0) / cfg.warm_up, 1.0)
        return cfg.learning_rate * rising * (falling if cfg.schedule == "cosine" else 1.0)

    return clipped_adamw(rate, cfg.weight_decay, cfg.clip, None)


def optimiser_beside(cfg: Config) -> optax.GradientTransformation:
    """Of G and B: as in GAS's fast preset."""
    return clipped_adamw(1e-3, cfg.weight_decay, cfg.clip, cfg.iterations)


def init(cfg: Config, spec: Spec, key: Key[Array, ""]) -> Networks:
    """Fresh networks."""
    table = augmenting.targets_of(spec.task) if cfg.target == "table" else np.zeros((2, 2), "f4")
    keys, d = jax.random.split(key, 9), cfg.embedding
    net = Network(
        reward=Linear(1, d, key=keys[0]),
        cost=Linear(1, d, key=keys[1]),
        state=Linear(spec.obs_dim, d, key=keys[2]),
        action=Linear(spec.act_dim, d, key=keys[3]),
        time=0.02 * jax.random.normal(keys[4], (spec.horizon + cfg.context, d)),
        body=Transformer(d, cfg.blocks, key=keys[5]),
        mean_std=Linear(d, 2 * spec.act_dim, key=keys[6]),
        cost_class=Linear(d, 2, key=keys[7]),
    )
    return Networks(
        start_training(net, optimiser(cfg)),
        start_training(jnp.log(jnp.float32(FIRST_TEMPERATURE)), plain_adam(1.0, None)),
        asking.start_advisors(spec.obs_dim, optimiser_beside(cfg), keys[8], **BESIDE),
        jnp.asarray(table),
    )


def policy_of(state: Networks) -> Networks:
    """The networks without their optimisers."""
    advisors = asking.Advisors(*(trained.net for trained in state.advisors))
    return Networks(state.policy.net, state.temperature.net, advisors, state.table)


class Carry(NamedTuple):
    """What is asked for, in units of the data's largest returns, and what was done last."""

    R_hat: Float[Array, ""]
    """Planned reward-to-go, the request or a little more; NaN until first chosen."""
    C_hat: Float[Array, ""]
    """Limit minus cost so far; negative once it is overspent."""
    fixed: Bool[Array, ""]
    """Whether the target reward was given by hand."""
    step: Int[Array, ""]
    window: Window
    """The last K steps, a batch of one; while there are fewer, later places are not read."""


def budget_of(cfg: Config, scaling: Scaling, limit: Float[Array, ""]) -> Float[Array, ""]:
    """The budget of a whole episode: as GAS's, but the bare limit with hand-set targets."""
    bare = cfg.target == "table"
    return limit / scaling.cost_unit if bare else asking.budget_of(cfg, scaling, limit)


def start(cfg: Config, policy: Networks, scaling: Scaling, request: Request) -> Carry:
    """The beginning of an episode, with an empty window."""
    target = request.target_reward
    if cfg.target == "table":
        hand_set = augmenting.read_table(policy.table, request.cost_limit)
        target = jnp.where(jnp.isnan(target), hand_set, target)
    R_hat = target / scaling.reward_unit
    sizes = [linear.weight.shape[0] for linear in (policy.policy.state, policy.policy.action)]
    window = empty_window(cfg.context, *sizes)
    C_hat = budget_of(cfg, scaling, request.cost_limit)
    fixed, step = ~jnp.isnan(R_hat), jnp.zeros((), jnp.int32)
    return Carry(R_hat, C_hat, fixed, step, window)


def act(
    cfg: Config, policy: Networks, scaling: Scaling, carry: Carry, obs: Float[Array, " o"]
) -> tuple[Float[Array, " a"], Carry]:
    """Deterministic: the mean at the newest state's token, within the actions' range."""
    net, s = policy.policy, scaling.observation(obs)
    budget = carry.C_hat
    if cfg.target != "table":
        now = carry.step.astype(jnp.float32) / scaling.horizon
        carry, budget = asking.advise(cfg, policy.advisors, carry, s, now)
    unit_r, unit_c = per_unit(cfg, scaling)
    time = jnp.minimum(carry.step, len(net.time) - 1)
    shown = (carry.R_hat * unit_r, budget * unit_c, s, jnp.zeros(carry.window.a.shape[-1]), time)
    window, place = remember(carry.window, carry.step, shown)
    action = jnp.clip(read(cfg, net, window)[0][0, place], -1.0, 1.0)
    window = window._replace(a=window.a.at[0, place].set(action))
    return scaling.action(action), carry._replace(step=carry.step + 1, window=window)


def redial(cfg: Config, scaling: Scaling, carry: Carry, old, new) -> Carry:
    """A new limit in mid-episode: the budget moves, a chosen reward is chosen anew."""
    return asking.moved(carry, budget_of(cfg, scaling, new) - budget_of(cfg, scaling, old))


ALGORITHM = Algorithm(
    name="cdt",
    Config=Config,
    presets={
        "paper": Config(),
        "fast": Config(
            iterations=8_000,
            batch=128,
            learning_rate=1e-3,
            schedule="cosine",
            embedding=64,
            heads=4,
            entropy_target="per_dimension",
            pairing="kept",
            hand_set=False,
            units="data",
            cost_offset=1.0,
            cost_cap=1.1,
        ),
    },
    prepare=prepare,
    init=init,
    sample=sample,
    update=update,
    policy=policy_of,
    start=start,
    act=act,
    observe=asking.observe,
    redial=redial,
    threshold="test",
)
