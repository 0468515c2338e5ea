"""GAS: Goal-Assisted Stitching (arXiv 2602.05323). One training, every cost limit.

Ledger: paper -> function
    TSRA (unnumbered)  segments          R_{t:Γ}, C_{t:Γ} by prefix sums; t' = t + T - Γ
    Reshaping          top_segments      D^q: the top q of reward returns per cost return
    Eq. (8)            relabel           R^ ~ U((1-δ)R, (1+δ)R),  C^ ~ U(C, C^max)
    Eq. (9)            reward_advantage  A^R = 1(V^C < C^) R - V^R
    Eq. (10)           reward_goal_loss  E[ |α - 1(A^R < 0)| (A^R)^2 ]
    Eq. (11)           cost_advantage    A^C = C - V^C
    Eq. (12)           cost_goal_loss    E[ |α - 1(A^R < 0)| (A^C)^2 ]
    Eq. (13)           policy_loss       E[ 1(V^C < C^) |α - 1(A^R < 0)| (π - a)^2 ]
    Alg. 1             update            advantages, then one step each for V^R, V^C, π

Where the paper is silent or we add something; `docs/algorithms/gas.md` says why and what it gives:
    D1  t is uniform over the data's steps and Γ uniform over t .. the episode's last step.
    D2  D^q compares segments of like cost and like length; zero cost is a bin of its own.
    D3  Inputs: observations standardised, R and C divided by the data's largest returns, t' / T.
    D4  One AdamW and one gradient clip per network; actions through tanh.
    D5  Acting: the paper picks target rewards by hand. A budget goal G(s, C^, t') and a cost floor
        B(s, t') are trained beside its networks: they know what can be had, at every step.
    D6  `modes` > 1 (preset fast): π proposes several actions and takes one by chance (`modes.py`);
        the square of Eq. (13) is then a soft minimum over them.
    D7  `leeway` < 1 (preset fast): budgets of Eq. (8) stay near the cost, and say when to spend.
    D8  `near` > 0 (preset steady): π sees exp(-C^ / near) too, to tell small budgets apart.
    D9  `pace` (presets steady, patient): π sees R^ and C^ per step that is left, too.
    D10 `aftermath` (preset wary): whoever fell earns nothing until the horizon; t' says so.
    D11 `par` (preset wary): D^q holds what is best from where it began, not what is best of all.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree, UInt

from safestitch.algos import asking, modes
from safestitch.algos.asking import expectile_weight
from safestitch.algos.base import Algorithm, Metrics, Request, check_kinds, check_range, pick
from safestitch.algos.reshaping import survey, top_segments
from safestitch.algos.segments import Data, draw_ends, measure, segments
from safestitch.episodes import Episodes
from safestitch.learn import clipped_adamw, descend, start_training
from safestitch.nn import EmbeddedMLP
from safestitch.records import Spec
from safestitch.scaling import AnyArray, Scaling

SHORTEST = 0.05
"""Share of the horizon that a pace is taken over at least: at the very end it says little."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Defaults are the paper's table; every ablation is a field."""

    iterations: int = 400_000
    """Gradient steps."""
    batch: int = 2048
    """Segments per step."""
    learning_rate: float = 1e-4
    """Of AdamW, betas (0.9, 0.999)."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Cosine decays the learning rate to zero over all iterations."""
    layers: int = 7
    """Linear layers of each network, the output included."""
    hidden: int = 128
    """Width of a layer of the goals."""
    policy_width: int = 1
    """How many times as wide π is."""
    embedding: int = 64
    """Width of the linear embedding of each input."""
    clip: float = 0.25
    """Largest gradient norm."""
    weight_decay: float = 1e-4
    """Of AdamW."""
    alpha: float = 0.8
    """α of Eq. (10), (12), (13): 0.5 stitches nothing, towards 1 only the best data count."""
    delta: float = 0.1
    """δ of Eq. (8): how far the requested reward strays from the true one."""
    leeway: float = 1.0
    """How far budgets of Eq. (8) stray from the true cost, of the way to C^max (D7)."""
    whole: float = 0.0
    """Share of segments that end with their episode, the others anywhere (D1); 1: no TSRA."""
    aftermath: bool = False
    """A fall lasts until the horizon (D10); off: it ends a segment like any other step."""
    relabel: bool = True
    """Requests by Eq. (8); off: R^ = R and C^ = C."""
    reshape: bool = True
    """Draw from D^q too; off: ε = 0."""
    q: float = 0.1
    """Share of reward returns, per cost return, that D^q keeps."""
    par: float = 0.0
    """D^q goes by what R is above this expectile of R from like states (D11); 0: by R itself."""
    epsilon: float = 0.5
    """ε: probability that a sample comes from D^q."""
    modes: int = 1
    """Actions that π proposes; 1: the square of Eq. (13) as it is (D6)."""
    spread: float = 0.2
    """Two actions nearer than this in each dimension, of [-1, 1], count as one (D6)."""
    rare: float = 0.03
    """Actions of less than this share of the likeliest one's weight are never taken (D6)."""
    near: float = 0.0
    """Budgets up to about this share of C^max are shown to π magnified (D8); 0: they are not."""
    pace: bool = False
    """Show π what is asked for per step that is left, too (D9)."""
    budget_expectile: float = 0.99
    """Expectile of the budget goal G (D5)."""
    many: bool = False
    """G learns many expectiles at once; `budget_expectile` may then be chosen when acting."""
    budget_batch: int = 256
    """Segments per step that train G."""
    target: asking.Rule = "frontier"
    """How the request is chosen when acting (D5)."""
    thrift: float = 0.03
    """Share of G that is given up where that spares a small budget; less of a larger one (D5)."""
    modesty: float = 0.0
    """Share of G that is not asked for where nothing is left to spend; less with more (D5)."""
    reserve: float = 0.02
    """Share of C^max that is kept back from the limit (D5)."""
    haste: float = 1.0
    """How far a request moves in one step, of the way to what the rule says (D5); 1: all."""

    def __post_init__(self):
        check_kinds(self)
        check_range(self, ("iterations", "batch", "hidden", "embedding", "budget_batch"), 1, 1e9)
        check_range(self, ("layers",), 2, 64)
        check_range(self, ("modes", "policy_width"), 1, 64)
        check_range(self, ("learning_rate", "clip", "spread"), 1e-12, 1e3)
        shares = "delta", "epsilon", "par", "modesty", "whole", "thrift", "reserve", "near"
        check_range(self, ("weight_decay", *shares), 0, 1)
        check_range(self, ("alpha", "q", "rare", "leeway", "budget_expectile", "haste"), 1e-6, 1)


class Batch(NamedTuple):
    """Segments, in the paper's letters; t is t' / T, `budget` what is shown to G."""

    s: Float[Array, "b o"]
    a: Float[Array, "b a"]
    R: Float[Array, " b"]
    C: Float[Array, " b"]
    R_hat: Float[Array, " b"]
    C_hat: Float[Array, " b"]
    t: Float[Array, " b"]
    budget: Float[Array, " b"]


class Networks(NamedTuple):
    """V^R, V^C, π, G and B: each with its optimiser in training, bare in acting."""

    reward_goal: PyTree
    cost_goal: PyTree
    policy: PyTree
    budget_goal: PyTree
    cost_floor: PyTree


def prepare(cfg: Config, episodes: Episodes, spec: Spec, scaling: Scaling, facts=None) -> Data:
    """Scale, take prefix sums, choose D^q: by itself, or by the facts of data it is a block of."""
    data = measure(episodes, spec, scaling, cfg.aftermath)._replace(
        observations=scaling.observation(episodes.observations),
        actions=scaling.unscale_action(episodes.actions),
    )
    return data._replace(**top_segments(cfg, data, facts)) if cfg.reshape else data


def relabel(
    cfg: Config, R: Float[Array, " b"], C: Float[Array, " b"], u: Float[Array, "2 b"]
) -> tuple[Float[Array, " b"], Float[Array, " b"]]:
    """Eq. (8), from uniform draws u: R^ within δ of R (either sign), C^ between C and C^max = 1."""
    if not cfg.relabel:
        return R, C
    return R * (1.0 + cfg.delta * (2.0 * u[0] - 1.0)), C + cfg.leeway * (1.0 - C) * u[1]


def sample(cfg: Config, data: Data, key: Key[Array, ""]) -> Batch:
    """A batch from D and, with probability ε, from D^q."""
    bits = jax.random.bits(key, (7, cfg.batch))  # one generator to compile instead of many
    u = (bits[:5] >> 8).astype(jnp.float32) * 2.0**-24
    row = pick(bits[5], len(data.rewards))
    end = draw_ends(cfg.whole, data, row, u[0])
    if cfg.reshape:
        top = pick(bits[6], len(data.top_rows))
        from_top = u[1] < cfg.epsilon
        row = jnp.where(from_top, data.top_rows[top], row)
        end = jnp.where(from_top, data.top_ends[top], end)
    R, C, t = segments(data, row, end)
    R_hat, C_hat = relabel(cfg, R, C, u[2:4])
    s, a = data.observations[row], data.actions[row]
    return Batch(s, a, R, C, R_hat, C_hat, t, asking.tight_budget(C, u[4]))


def goal(net: EmbeddedMLP, s, R_hat, C_hat, t) -> Float[Array, " b"]:
    """V^R or V^C at (s, R^, C^, t')."""
    return net(s, *(x[:, None] for x in (R_hat, C_hat, t)))[:, 0]


def act_as(net: EmbeddedMLP, s, R_hat, C_hat, v_r, v_c, t, *, cfg: Config) -> modes.Proposals:
    """π at (s, R^, C^, V^R, V^C, t'), of so many modes."""
    scalars = [R_hat, C_hat, v_r, v_c, t] + [jnp.exp(-C_hat / cfg.near)] * (cfg.near > 0)
    left = jnp.maximum(1.0 - t, SHORTEST)
    scalars += [R_hat / left, C_hat / left] * cfg.pace
    return modes.proposals(net(s, *(x[:, None] for x in scalars)), cfg.modes)


def within(v_c: Float[Array, " b"], C_hat: Float[Array, " b"]) -> Float[Array, " b"]:
    """1(V^C < C^), strict as in Eq. (9) and (13)."""
    return (v_c < C_hat).astype(v_c.dtype)


def reward_advantage(v_r: Float[Array, " b"], v_c: Float[Array, " b"], batch: Batch):
    """Eq. (9): A^R = 1(V^C < C^) R - V^R."""
    return within(v_c, batch.C_hat) * batch.R - v_r


def reward_goal_loss(net: EmbeddedMLP, v_c: Float[Array, " b"], batch: Batch, alpha: float):
    """Eq. (10): E[ |α - 1(A^R < 0)| (A^R)^2 ]; trains V^R."""
    A = reward_advantage(goal(net, batch.s, batch.R_hat, batch.C_hat, batch.t), v_c, batch)
    weight = jax.lax.stop_gradient(expectile_weight(alpha, A))
    return jnp.mean(weight * A**2)


def cost_advantage(v_c: Float[Array, " b"], batch: Batch) -> Float[Array, " b"]:
    """Eq. (11): A^C = C - V^C."""
    return batch.C - v_c


def cost_goal_loss(net: EmbeddedMLP, A_r: Float[Array, " b"], batch: Batch, alpha: float):
    """Eq. (12): E[ |α - 1(A^R < 0)| (A^C)^2 ]; trains V^C. The weight takes the sign of A^R."""
    A = cost_advantage(goal(net, batch.s, batch.R_hat, batch.C_hat, batch.t), batch)
    return jnp.mean(expectile_weight(alpha, A_r) * A**2)


def policy_loss(net: EmbeddedMLP, v_r, v_c, batch: Batch, cfg: Config) -> Float[Array, ""]:
    """Eq. (13): E[ 1(V^C < C^) |α - 1(A^R < 0)| (π - a)^2 ]; trains π."""
    request = batch.R_hat, batch.C_hat, v_r, v_c, batch.t
    proposed = act_as(net, batch.s, *request, cfg=cfg)
    weight = expectile_weight(cfg.alpha, reward_advantage(v_r, v_c, batch))
    square = modes.error(proposed, batch.a, cfg.spread)
    return jnp.mean(within(v_c, batch.C_hat) * weight * square)


def update(cfg: Config, state: Networks, batch: Batch) -> tuple[Networks, Metrics]:
    """Alg. 1: every loss sees the networks from before this step."""
    v_r = goal(state.reward_goal.net, batch.s, batch.R_hat, batch.C_hat, batch.t)
    v_c = goal(state.cost_goal.net, batch.s, batch.R_hat, batch.C_hat, batch.t)
    A_r = reward_advantage(v_r, v_c, batch)
    step = optimiser(cfg)
    reward_goal, l_r = descend(state.reward_goal, step, reward_goal_loss, v_c, batch, cfg.alpha)
    cost_goal, l_c = descend(state.cost_goal, step, cost_goal_loss, A_r, batch, cfg.alpha)
    policy, l_pi = descend(state.policy, step, policy_loss, v_r, v_c, batch, cfg)
    few = asking.Segments(batch.s, batch.R, batch.C, batch.t, batch.budget)
    few = jax.tree.map(lambda x: x[: cfg.budget_batch], few)
    advisors = asking.Advisors(state.budget_goal, state.cost_floor)
    advisors, losses = asking.train_advisors(advisors, step, few, cfg.budget_expectile)
    metrics = {
        "loss/reward_goal": l_r,
        "loss/cost_goal": l_c,
        "loss/policy": l_pi,
        **losses,
        "share/within_budget": within(v_c, batch.C_hat).mean(),
        "share/good": (A_r >= 0).mean(dtype=jnp.float32),
    }
    return Networks(reward_goal, cost_goal, policy, *advisors), metrics


def optimiser(cfg: Config) -> optax.GradientTransformation:
    """AdamW behind a gradient clip (D4)."""
    decay = cfg.iterations if cfg.schedule == "cosine" else None
    return clipped_adamw(cfg.learning_rate, cfg.weight_decay, cfg.clip, decay)


def init(cfg: Config, spec: Spec, key: Key[Array, ""]) -> Networks:
    """Fresh networks; scalars R^, C^, t', V^R, V^C are inputs of size 1."""
    shapes = {  # scalars, outputs
        "reward_goal": (3, 1),
        "cost_goal": (3, 1),
        "policy": (5 + (cfg.near > 0) + 2 * cfg.pace, modes.outputs(cfg.modes, spec.act_dim)),
    }
    *keys, last = jax.random.split(key, 4)
    sizes = {"embedding": cfg.embedding, "hidden": cfg.hidden, "layers": cfg.layers}
    trained = {}
    for (name, (scalars, outputs)), k in zip(shapes.items(), keys, strict=True):
        sizes["hidden"] = cfg.hidden * (cfg.policy_width if name == "policy" else 1)
        net = EmbeddedMLP([spec.obs_dim] + [1] * scalars, outputs, **sizes, key=k)
        trained[name] = start_training(net, optimiser(cfg))
    sizes |= {"hidden": cfg.hidden, "layers": min(cfg.layers, 4)}
    advisors = asking.start_advisors(spec.obs_dim, optimiser(cfg), last, cfg.many, **sizes)
    return Networks(**trained, **advisors._asdict())


def policy_of(state: Networks) -> Networks:
    """The networks without their optimisers."""
    return Networks(*(trained.net for trained in state))


class Carry(NamedTuple):
    """What is still asked for, in units of the data's largest returns."""

    R_hat: Float[Array, ""]
    """Requested reward-to-go; NaN until first chosen."""
    C_hat: Float[Array, ""]
    """Limit minus cost so far; negative once it is overspent."""
    t: Float[Array, ""]
    """Steps taken / T."""
    fixed: Bool[Array, ""]
    """Whether the user chose the target reward."""
    C_asked: Float[AnyArray, ""] = np.float32(0)
    """The budget asked for last, minus the cost since."""
    luck: UInt[AnyArray, ""] = np.uint32(0)
    """From the episode's first observation: how chance falls (D6)."""


def start(cfg: Config, policy: Networks, scaling: Scaling, request: Request) -> Carry:  # noqa: ARG001
    """The beginning of an episode."""
    R_hat = request.target_reward / scaling.reward_unit
    C_hat = asking.budget_of(cfg, scaling, request.cost_limit)
    t, luck = jnp.zeros_like(C_hat), jnp.zeros_like(C_hat, jnp.uint32)
    return Carry(R_hat, C_hat, t, ~jnp.isnan(R_hat), jnp.zeros_like(C_hat), luck)


def act(
    cfg: Config, policy: Networks, scaling: Scaling, carry: Carry, obs: Float[Array, " o"]
) -> tuple[Float[Array, " a"], Carry]:
    """The action of π(s, R^, C^, V^R, V^C, t') for the request of this step (D5)."""
    s = scaling.observation(obs)
    advisors = asking.Advisors(policy.budget_goal, policy.cost_floor)
    asked, budget = asking.advise(cfg, advisors, carry, s, carry.t, cfg.modesty)
    carry = asking.ease(cfg.haste, carry, asked._replace(C_asked=budget))
    request = carry.R_hat, carry.C_asked, carry.t
    luck = jnp.where(carry.t == 0, modes.luck(obs), carry.luck)
    chance = modes.dice(luck, jnp.round(carry.t * scaling.horizon))
    action = modes.choose(follow(cfg, policy, s[None], *request), cfg.rare, chance)
    return scaling.action(action), carry._replace(t=carry.t + 1 / scaling.horizon, luck=luck)


def follow(cfg: Config, policy: Networks, s: Float[Array, "1 o"], *request: Float[Array, ""]):
    """What π proposes for the request R^, C^ at t'."""
    R_hat, C_hat, t = (x[None] for x in request)
    v_r = goal(policy.reward_goal, s, R_hat, C_hat, t)
    v_c = goal(policy.cost_goal, s, R_hat, C_hat, t)
    return act_as(policy.policy, s, R_hat, C_hat, v_r, v_c, t, cfg=cfg)


def observe(cfg: Config, scaling: Scaling, carry: Carry, reward, cost) -> Carry:
    """R^, C^ and the budget asked for lose what the step brought."""
    carry = asking.observe(cfg, scaling, carry, reward, cost)
    return carry._replace(C_asked=carry.C_asked - cost / scaling.cost_unit)


def redial(cfg: Config, scaling: Scaling, carry: Carry, old, new) -> Carry:
    """A new limit in mid-episode: the budget moves, a chosen reward is chosen anew."""
    budget = asking.budget_of(cfg, scaling, new) - asking.budget_of(cfg, scaling, old)
    return asking.moved(carry, budget)


SMALL = Config(15_000, batch=256, learning_rate=1e-3, schedule="cosine", layers=4, policy_width=2)
FAST = dataclasses.replace(SMALL, delta=0.03, leeway=0.1, whole=0.5, q=0.03, epsilon=0.8, modes=4)
CAREFUL = dataclasses.replace(FAST, iterations=30_000, budget_expectile=0.95, reserve=0.05)
# Robots that fall or stray: more of the data and longer, by what is best from where they are.
WARY = dataclasses.replace(FAST, iterations=30_000, q=0.1, par=0.9, aftermath=True)
WARY = dataclasses.replace(WARY, thrift=0.1, modesty=0.2, haste=0.01)
# Where a slip is not mended: requests that say more and do not swing.
STEADY = dataclasses.replace(FAST, q=0.1, many=True, near=0.05, delta=0.01, leeway=0.03)
STEADY = dataclasses.replace(STEADY, budget_expectile=0.9, reserve=0.05, haste=0.03, pace=True)
# Long episodes that end otherwise than they begin: a wide policy that is told what pace is asked.
PATIENT = dataclasses.replace(FAST, iterations=30_000, batch=512, policy_width=4, pace=True)
PATIENT = dataclasses.replace(PATIENT, haste=0.01)

ALGORITHM = Algorithm(
    name="gas",
    Config=Config,
    presets={
        "paper": Config(),
        "fast": FAST,
        "careful": CAREFUL,
        "wary": WARY,
        "steady": STEADY,
        "patient": PATIENT,
    },
    prepare=prepare,
    init=init,
    sample=sample,
    update=update,
    policy=policy_of,
    start=start,
    act=act,
    observe=observe,
    redial=redial,
    threshold="test",
    survey=survey,
)
