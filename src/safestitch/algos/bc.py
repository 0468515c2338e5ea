"""BC: behaviour cloning of all episodes, of the safe ones, or of those near the frontier. A floor.

Ledger: equations as numbered in `docs/algorithms/bc.md`
    Eq. (1)  is_safe       C <= L
    Eq. (2)  near_frontier  |R - p(C)| <= w (R_max - R_min), p a polynomial through the frontier
    Eq. (3)  clone_loss    E[ (π(s) - a)^2 ], mean over the actions' dimensions

Where we differ from the released program (OSRL):
    D1  Observations are standardised and actions mapped to [-1, 1], as for every method here.
    D2  The limit of "safe" is a share of the task's cost range unless given as a cost.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from safestitch.algos.base import Algorithm, Metrics, Request, check_kinds, check_range, pick
from safestitch.episodes import Episodes, frontier
from safestitch.learn import Trained, descend, plain_adam, start_training
from safestitch.nn import MLP
from safestitch.records import SafestitchError, Spec
from safestitch.scaling import AnyArray, Scaling


@dataclasses.dataclass(frozen=True)
class Config:
    """Defaults are those of the released program."""

    iterations: int = 100_000
    """Gradient steps."""
    batch: int = 512
    """Steps of the data per gradient step."""
    learning_rate: float = 1e-3
    """Of Adam, betas (0.9, 0.999)."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Cosine decays the learning rate to zero over all iterations."""
    layers: int = 3
    """Linear layers, the output included."""
    hidden: int = 256
    """Width of a layer."""
    clone: Literal["all", "safe", "frontier"] = "all"
    """Which episodes are cloned."""
    limit: float = 0.1
    """Largest cost of an episode that counts as safe."""
    limit_unit: Literal["share", "cost"] = "share"
    """Whether `limit` is a share of the task's cost range or a cost per episode."""
    width: float = 0.2
    """w of Eq. (2): how far from the frontier, as a share of the range of rewards."""

    def __post_init__(self):
        check_kinds(self)
        check_range(self, ("iterations", "batch", "hidden"), 1, 1e9)
        check_range(self, ("layers",), 2, 64)
        check_range(self, ("learning_rate",), 1e-12, 1e3)
        check_range(self, ("limit",), 0, 1 if self.limit_unit == "share" else 1e38)
        check_range(self, ("width",), 0, 1)


class Data(NamedTuple):
    """The data as training sees them."""

    observations: Float[AnyArray, "n o"]
    actions: Float[AnyArray, "n a"]
    rows: Int[AnyArray, " n"]
    """Rows of the chosen episodes come first; the rest is not drawn."""
    chosen: Int[AnyArray, ""]
    """How many of `rows` are drawn from."""


class Batch(NamedTuple):
    """Steps of the data."""

    s: Float[Array, "b o"]
    a: Float[Array, "b a"]


class Frontier(NamedTuple):
    """What Eq. (2) needs of all the data."""

    polynomial: Float[np.ndarray, " d"]
    """Highest power first."""
    spread: float
    """R_max - R_min."""


def is_safe(cost_returns: Float[AnyArray, " e"], limit: float) -> Bool[AnyArray, " e"]:
    """Eq. (1): C <= L."""
    return cost_returns <= limit


def fit_frontier(episodes: Episodes) -> Frontier:
    """The polynomial of least degree, 2 at most, that explains 90% of the frontier's variance."""
    costs, rewards = frontier(episodes.returns, episodes.cost_returns)
    total = ((rewards - rewards.mean()) ** 2).sum()
    found = rewards.mean(keepdims=True)
    for degree in range(1, min(3, len(costs))):
        # Fitted to shares of the largest cost: powers of the costs themselves may be huge.
        powers = np.arange(degree, -1, -1.0)
        found = np.polyfit(costs / costs[-1], rewards, degree) / costs[-1] ** powers
        if ((rewards - np.polyval(found, costs)) ** 2).sum() <= 0.1 * total:
            break
    return Frontier(found, float(np.ptp(episodes.returns)))


def near_frontier(
    returns: Float[AnyArray, " e"],
    cost_returns: Float[AnyArray, " e"],
    fitted: Frontier,
    width: float,
) -> Bool[AnyArray, " e"]:
    """Eq. (2): |R - p(C)| <= w (R_max - R_min)."""
    return np.abs(returns - np.polyval(fitted.polynomial, cost_returns)) <= width * fitted.spread


def choose(cfg: Config, episodes: Episodes, spec: Spec, fitted=None) -> Bool[np.ndarray, " e"]:
    """Which episodes are cloned."""
    if cfg.clone == "safe":
        unit = spec.cost_range if cfg.limit_unit == "share" else 1.0
        return is_safe(episodes.cost_returns, cfg.limit * unit)
    if cfg.clone == "frontier":
        fitted = fitted or fit_frontier(episodes)
        return near_frontier(episodes.returns, episodes.cost_returns, fitted, cfg.width)
    return np.ones(len(episodes), bool)


def survey(cfg: Config, episodes: Episodes, spec: Spec, scaling: Scaling):  # noqa: ARG001
    """The frontier of all data, for blocks that see a part; raises if nothing would be chosen."""
    fitted = fit_frontier(episodes) if cfg.clone == "frontier" else None
    _require(choose(cfg, episodes, spec, fitted), cfg, episodes)
    return fitted or ()


def prepare(cfg: Config, episodes: Episodes, spec: Spec, scaling: Scaling, facts=None) -> Data:
    """Scale, and put the rows of the chosen episodes first.

    A block of larger data may hold none of them: then its least costly episode stands in.
    """
    kept = choose(cfg, episodes, spec, facts)
    if facts is None:
        _require(kept, cfg, episodes)
    elif not kept.any():
        kept[episodes.cost_returns.argmin()] = True
    rows = np.flatnonzero(np.repeat(kept, episodes.lengths)).astype(np.int32)
    return Data(
        observations=scaling.observation(episodes.observations),
        actions=scaling.unscale_action(episodes.actions),
        rows=np.pad(rows, (0, episodes.steps - len(rows))),
        chosen=np.int32(len(rows)),
    )


def _require(kept: Bool[np.ndarray, " e"], cfg: Config, episodes: Episodes) -> None:
    if not kept.any():
        raise SafestitchError(
            f"no episode has a cost of at most {cfg.limit:g} ({cfg.limit_unit}); the least costly "
            f"has {episodes.cost_returns.min():g}: raise limit, or clone all data"
        )


def sample(cfg: Config, data: Data, key: Key[Array, ""]) -> Batch:
    """Steps of the chosen episodes, uniformly."""
    row = data.rows[pick(jax.random.bits(key, (cfg.batch,)), data.chosen)]
    return Batch(data.observations[row], data.actions[row])


def act_as(net: MLP, s: Float[Array, "b o"]) -> Float[Array, "b a"]:
    """π(s), in [-1, 1]."""
    return jnp.tanh(net(s))


def clone_loss(net: MLP, batch: Batch) -> Float[Array, ""]:
    """Eq. (3): E[ (π(s) - a)^2 ], mean over the actions' dimensions."""
    return jnp.mean((act_as(net, batch.s) - batch.a) ** 2)


def optimiser(cfg: Config) -> optax.GradientTransformation:
    """Adam."""
    return plain_adam(cfg.learning_rate, cfg.iterations if cfg.schedule == "cosine" else None)


def update(cfg: Config, state: Trained, batch: Batch) -> tuple[Trained, Metrics]:
    """One step of descent."""
    state, loss = descend(state, optimiser(cfg), clone_loss, batch)
    return state, {"loss/policy": loss}


def init(cfg: Config, spec: Spec, key: Key[Array, ""]) -> Trained:
    """A fresh policy."""
    net = MLP(spec.obs_dim, spec.act_dim, hidden=cfg.hidden, layers=cfg.layers, key=key)
    return start_training(net, optimiser(cfg))


def start(cfg: Config, policy: MLP, scaling: Scaling, request: Request) -> tuple[()]:  # noqa: ARG001
    """Nothing to remember: the policy knows neither limit nor target."""
    return ()


def act(
    cfg: Config,  # noqa: ARG001
    policy: MLP,
    scaling: Scaling,
    carry: tuple[()],
    obs: Float[Array, " o"],
) -> tuple[Float[Array, " a"], tuple[()]]:
    """Deterministic: a = π(s)."""
    return scaling.action(act_as(policy, scaling.observation(obs)[None])[0]), carry


def observe(cfg: Config, scaling: Scaling, carry: tuple[()], reward, cost) -> tuple[()]:  # noqa: ARG001
    """Nothing to remember."""
    return carry


def redial(cfg: Config, scaling: Scaling, carry: tuple[()], old, new) -> tuple[()]:  # noqa: ARG001
    """A new limit changes nothing: it was chosen with the data."""
    return carry


ALGORITHM = Algorithm(
    name="bc",
    Config=Config,
    presets={
        "paper": Config(),
        "fast": Config(iterations=10_000, batch=256, schedule="cosine"),
    },
    prepare=prepare,
    init=init,
    sample=sample,
    update=update,
    policy=lambda state: state.net,
    start=start,
    act=act,
    observe=observe,
    redial=redial,
    threshold="train",
    survey=survey,
)
