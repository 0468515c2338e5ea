"""Milliseconds per iteration of every method at its published settings, beside the matrix rate.

    python bench/methods_speed.py [--seconds 60] [--methods gas cdt] [--preset paper]

share = floating-point operations of the method's matrix products, written out naively
        / time per iteration / matrix-multiply rate (2048x128 @ 128x128, float32, all cores)
Rounds alternate between methods, each against the matrix rate measured just before; figures are
medians over rounds. Where torch is installed, a CDT of the same sizes in eager torch runs beside.
"""

import argparse
import itertools
import statistics
import time

import _results
import jax
from train_speed import SPEC, made_up, matrix_rate

from safestitch.algos import ALGORITHMS
from safestitch.scaling import fit_scaling
from safestitch.training.loop import compile_chunk, fresh_checkpoint

TRANSITIONS = 60_000
OBS, ACT = SPEC.obs_dim, SPEC.act_dim


def mlp(rows: int, sizes: list[int], passes: int) -> float:
    """Operations of an MLP; 1 pass is forward, 3 are forward and backward."""
    products = sum(i * o for i, o in itertools.pairwise(sizes))
    return 2.0 * rows * products * passes


def gas_flop(c) -> float:
    """V^R, V^C, π with embeddings and concatenation; G beside."""
    total = 0.0
    for inputs, outputs in ((4, 1), (4, 1), (6, ACT)):
        hidden = [c.hidden] * (c.layers - 1)
        embeddings = 2.0 * c.batch * c.embedding * (OBS + inputs - 1)
        total += 3 * embeddings + mlp(c.batch, [c.embedding * inputs, *hidden, outputs], 3)
    return total


def bc_flop(c) -> float:
    return mlp(c.batch, [OBS] + [c.hidden] * (c.layers - 1) + [ACT], 3)


def caps_iql_flop(c) -> float:
    """Per signal: two critics (3 passes), their targets (1), V at s (3), at s' (1); the heads."""
    hidden = [c.hidden] * (c.layers - 1)
    critic, value = [OBS + ACT, *hidden, 1], [OBS, *hidden, 1]
    signal = 2 * mlp(c.batch, critic, 4) + mlp(c.batch, value, 4)
    return 2 * signal + mlp(c.batch, [OBS, *hidden, c.heads * ACT], 3)


def caps_sac_flop(c) -> float:
    """Per signal: four critics (3), targets at s' for every head (1), critics under heads (2)."""
    hidden = [c.hidden] * (c.layers - 1)
    critic = [OBS + ACT, *hidden, 1]
    signal = 4 * (mlp(c.batch, critic, 3) + mlp(c.heads * c.batch, critic, 3))
    return 2 * signal + mlp(c.batch, [OBS, *hidden, 2 * c.heads * ACT], 4)


def cdt_flop(c) -> float:
    """All tokens through all blocks, as a plain program does; embeddings are small."""
    tokens, d = 4 * c.context * c.batch, c.embedding
    attention = 2 * 2.0 * tokens * 4 * c.context * d
    block = 2.0 * tokens * 12 * d * d + attention
    ends = 2.0 * c.context * c.batch * d * (OBS + ACT + 2 + 2 * ACT + 2)
    return 3 * (c.blocks * block + ends)


FLOP = {
    "gas": gas_flop,
    "bc": bc_flop,
    "caps-iql": caps_iql_flop,
    "caps-sac": caps_sac_flop,
    "cdt": cdt_flop,
}


def training(name: str, preset: str):
    """A function that measures seconds per iteration of the real training program."""
    algorithm = ALGORITHMS[name]
    config = algorithm.presets[preset]
    iterations = 1 if FLOP[name](config) > 5e10 else 10
    episodes = made_up(TRANSITIONS)
    scaling = fit_scaling(episodes, SPEC)
    data = jax.device_put(algorithm.prepare(config, episodes, SPEC, scaling))
    chunk = compile_chunk(algorithm, config, iterations)
    checkpoint, _ = chunk(fresh_checkpoint(algorithm, config, SPEC, [0]), data)
    state = [jax.block_until_ready(checkpoint)]

    def measure() -> float:
        begin = time.perf_counter()
        state[0] = jax.block_until_ready(chunk(state[0], data)[0])
        return (time.perf_counter() - begin) / iterations

    return measure


def eager_torch(c):
    """A CDT step of these sizes in eager torch; None where torch is not installed."""
    try:
        import torch  # noqa: PLC0415 (only a comparison)  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    d, k = c.embedding, c.context
    layer = torch.nn.TransformerEncoderLayer(
        d, c.heads, 4 * d, c.dropout, "gelu", batch_first=True, norm_first=True
    )
    body = torch.nn.TransformerEncoder(layer, c.blocks, enable_nested_tensor=False)
    embed = [torch.nn.Linear(i, d) for i in (1, 1, OBS, ACT)]
    head = torch.nn.Linear(d, 2 * ACT)
    parameters = [p for m in (body, head, *embed) for p in m.parameters()]
    step = torch.optim.AdamW(parameters, lr=c.learning_rate, weight_decay=c.weight_decay)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(4 * k)

    def measure() -> float:
        begin = time.perf_counter()
        columns = [torch.randn(c.batch, k, i) for i in (1, 1, OBS, ACT)]
        parts = [e(x) for e, x in zip(embed, columns, strict=True)]
        x = body(torch.stack(parts, 2).reshape(c.batch, 4 * k, d), mask=causal, is_causal=True)
        mean, log_std = head(x.reshape(c.batch, k, 4, d)[:, :, 2]).chunk(2, -1)
        loss = -torch.distributions.Normal(mean, log_std.exp()).log_prob(columns[3]).mean()
        step.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, c.clip)
        step.step()
        return time.perf_counter() - begin

    measure()
    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description="speed of every method's training")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure")
    parser.add_argument("--methods", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--preset", default="paper", help="settings of each method")
    options = parser.parse_args()
    rate = matrix_rate()
    measures = {name: training(name, options.preset) for name in options.methods}
    torch_step = eager_torch(ALGORITHMS["cdt"].presets[options.preset])
    if torch_step:
        measures["cdt, eager torch"] = torch_step
    rounds: list[dict[str, tuple[float, float]]] = []
    end = time.monotonic() + options.seconds
    while time.monotonic() < end or not rounds:
        one = {}
        for name, measure in measures.items():
            before = rate()
            seconds = measure()
            one[name] = seconds, (before + rate()) / 2
        rounds.append(one)
    rows = []
    for name in measures:
        method = name.split(",")[0]
        flop = FLOP[method](ALGORITHMS[method].presets[options.preset])
        ms = 1e3 * statistics.median(r[name][0] for r in rounds)
        share = statistics.median(flop / r[name][0] / r[name][1] for r in rounds)
        rows.append({"method": name, "GFLOP": flop / 1e9, "ms": ms, "share of matrix rate": share})
    _results.show(f"training, preset {options.preset}, one seed, {len(rounds)} rounds", rows)
    if not torch_step:
        _results.console.print("eager torch: not installed, skipped")
    _results.finish(methods=rows, preset=options.preset, rounds=len(rounds))


if __name__ == "__main__":
    main()
