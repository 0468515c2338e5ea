"""Milliseconds per GAS iteration at the paper's sizes, and the share of the machine's matrix rate.

    python bench/train_speed.py [--seconds 60]

share = 4.43 GFLOP (the paper's three networks, forward and backward, written out naively)
        / time per iteration / matrix-multiply rate (2048x128 @ 128x128, float32, all cores)
A share above 1 means that work was saved, not that the processor was beaten: embeddings and first
layer are fused exactly (nn.py). Everything is measured in alternating rounds of one run, because
machines are noisy; the figures are medians over rounds, each round against its own matrix rate.
"""

import argparse
import itertools
import resource
import statistics
import time

import _results
import jax
import jax.numpy as jnp
import numpy as np

from safestitch.algos import gas
from safestitch.algos.gas import ALGORITHM
from safestitch.episodes import Episodes
from safestitch.records import Spec
from safestitch.scaling import fit_scaling
from safestitch.training.loop import compile_chunk, fresh_checkpoint

NAIVE_FLOP = 4.43e9
SPEC = Spec("speed", obs_dim=8, act_dim=2, horizon=300, cost_range=100.0)
TRANSITIONS = 435_000
PRODUCTS = 200


def made_up(transitions: int) -> Episodes:
    """Random full-length episodes of the paper's CarCircle shape."""
    rng = np.random.default_rng(0)
    n = transitions // SPEC.horizon * SPEC.horizon
    truncated = np.zeros((n // SPEC.horizon, SPEC.horizon), bool)
    truncated[:, -1] = True
    return Episodes.of(
        rng.standard_normal((n, 8), np.float32),
        rng.uniform(-1, 1, (n, 2)).astype(np.float32),
        rng.uniform(0, 3, n).astype(np.float32),
        (rng.uniform(size=n) < 0.2).astype(np.float32),
        np.zeros(n, bool),
        truncated.reshape(-1),
    )


def matrix_rate():
    """A function that measures FLOP/s of a chain of 2048x128 @ 128x128 products, unrolled by 20."""
    weight = jnp.eye(128) + 1e-3

    @jax.jit
    def chain(x):
        return jax.lax.fori_loop(0, PRODUCTS, lambda _, y: y @ weight, x, unroll=20)

    x = jnp.ones((2048, 128)) * 1e-3
    chain(x).block_until_ready()

    def measure() -> float:
        begin = time.perf_counter()
        chain(x).block_until_ready()
        return PRODUCTS * 2 * 2048 * 128 * 128 / (time.perf_counter() - begin)

    return measure


def training(transitions: int, iterations: int):
    """A function that measures seconds per iteration of the real training program."""
    config = gas.Config()  # the paper's settings
    episodes = made_up(transitions)
    scaling = fit_scaling(episodes, SPEC)
    data = jax.device_put(ALGORITHM.prepare(config, episodes, SPEC, scaling))
    size = sum(getattr(episodes, c).nbytes for c in ("observations", "actions", "rewards", "costs"))
    chunk = compile_chunk(ALGORITHM, config, iterations)
    checkpoint, _ = chunk(fresh_checkpoint(ALGORITHM, config, SPEC, [0]), data)
    state = [jax.block_until_ready(checkpoint)]

    def measure() -> float:
        begin = time.perf_counter()
        state[0] = jax.block_until_ready(chunk(state[0], data)[0])
        return (time.perf_counter() - begin) / iterations

    return measure, size


def eager_torch():
    """OSRL's way: eager torch, one sample at a time; None where torch is not installed."""
    try:
        import torch  # noqa: PLC0415 (only a comparison)  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None

    def network(inputs: int, outputs: int):
        widths = [64 * inputs] + [128] * 6 + [outputs]
        layers: list = []
        for i, o in itertools.pairwise(widths):
            layers += [torch.nn.Linear(i, o), torch.nn.ReLU()]
        embeddings = [torch.nn.Linear(8 if k == 0 else 1, 64) for k in range(inputs)]
        return torch.nn.ModuleList(embeddings), torch.nn.Sequential(*layers[:-1])

    nets = [network(4, 1), network(4, 1), network(6, 2)]
    steps = [torch.optim.AdamW([*e.parameters(), *m.parameters()], lr=1e-4) for e, m in nets]
    episodes = made_up(TRANSITIONS)
    rng = np.random.default_rng(0)

    def value(net, *inputs):
        embeddings, layers = net
        return layers(torch.cat([e(x) for e, x in zip(embeddings, inputs, strict=True)], -1))

    def one_sample():
        i = rng.choice(episodes.steps - 1)
        return (*(x[i] for x in (episodes.observations, episodes.actions)), rng.uniform(size=4))

    def measure() -> float:
        begin = time.perf_counter()
        samples = [one_sample() for _ in range(2048)]
        s, a, u = (
            torch.as_tensor(np.stack(x), dtype=torch.float32) for x in zip(*samples, strict=True)
        )
        requests = [u[:, k : k + 1] for k in range(3)]
        v_r, v_c = value(nets[0], s, *requests), value(nets[1], s, *requests)
        weight = torch.where(u[:, 3:] < v_r.detach(), 0.2, 0.8)
        action = value(nets[2], s, *requests, v_r.detach(), v_c.detach()).tanh()
        losses = [weight * (u[:, 3:] - v_r) ** 2, weight * (u[:, :1] - v_c) ** 2]
        losses.append(weight * ((action - a) ** 2).sum(-1, keepdim=True))
        for loss, step, (embeddings, layers) in zip(losses, steps, nets, strict=True):
            step.zero_grad()
            loss.mean().backward()
            parameters = [*embeddings.parameters(), *layers.parameters()]
            torch.nn.utils.clip_grad_norm_(parameters, 0.25)
            step.step()
        return time.perf_counter() - begin

    measure()
    return measure


def peak_memory() -> int:
    """Largest resident size of this process so far, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="speed of GAS training")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure")
    seconds = parser.parse_args().seconds
    train, data_bytes = training(TRANSITIONS, iterations=20)
    train()
    memory = peak_memory()  # before anything else is built
    rate = matrix_rate()
    train_large, _ = training(10 * TRANSITIONS, iterations=20)
    torch_step = eager_torch()
    rounds: list[dict[str, float]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(rounds) < 5:
        before = rate()
        one = {"ms": 1e3 * train(), "ms_large": 1e3 * train_large()}
        one["rate"] = (before + rate()) / 2
        one["share"] = NAIVE_FLOP / one["ms"] * 1e3 / one["rate"]
        one["growth"] = one["ms_large"] / one["ms"]
        if torch_step:
            one["ms_torch"] = 1e3 * torch_step()
        rounds.append(one)
    median = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
    limit = 2 * data_bytes + 500e6
    rows = [
        {"figure": "ms per iteration", "value": median["ms"], "goal": ""},
        {"figure": "matrix rate, GFLOP/s", "value": median["rate"] / 1e9, "goal": ""},
        {"figure": "share of the matrix rate", "value": median["share"], "goal": ">= 1.0"},
        {"figure": "time at 10x the transitions", "value": median["growth"], "goal": "<= 1.1"},
        {"figure": "peak memory, MB", "value": memory / 1e6, "goal": f"<= {limit / 1e6:.0f}"},
    ]
    if torch_step:
        rows.append({"figure": "eager torch, ms", "value": median["ms_torch"], "goal": ""})
    _results.show(
        f"GAS, batch 2048, 7 x 128, {TRANSITIONS:,} transitions, {len(rounds)} rounds", rows
    )
    if not torch_step:
        _results.console.print("eager torch: not installed, skipped")
    _results.finish(
        ms_per_iteration=median["ms"],
        matrix_gflops=median["rate"] / 1e9,
        share=median["share"],
        growth_at_10x=median["growth"],
        peak_memory_mb=memory / 1e6,
        memory_goal_mb=limit / 1e6,
        torch_ms=median.get("ms_torch"),
        rounds=len(rounds),
    )


if __name__ == "__main__":
    main()
