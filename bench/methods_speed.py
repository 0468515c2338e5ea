"""Milliseconds per iteration of every method at its published settings, beside the matrix rate.

    pip download --no-deps osrl-lib && unzip osrl_lib-*.whl -d osrl
    pip install torch gymnasium tqdm
    python bench/methods_speed.py [--seconds 60] [--methods gas cdt] [--preset paper] [--osrl osrl]

share = floating-point operations of the method's matrix products, written out naively
        / time per iteration / matrix-multiply rate (2048x128 @ 128x128, float32, all cores)
Rounds alternate between methods, each against the matrix rate measured just before; figures are
medians over rounds. With `--osrl`, a step of OSRL's own CDT of the same sizes is measured beside.
"""

import argparse
import importlib
import itertools
import statistics
import sys
import time
import types
from pathlib import Path

import _results
import jax
from train_speed import SPEC, made_up, matrix_rate

from safestitch.algos import ALGORITHMS
from safestitch.algos.modes import outputs as outputs_of
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
    total, shown = 0.0, 6 + (c.near > 0) + 2 * c.pace
    policy = shown, outputs_of(c.modes, ACT), c.policy_width
    for inputs, outputs, width in ((4, 1, 1), (4, 1, 1), policy):
        hidden = [width * c.hidden] * (c.layers - 1)
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


def osrl_step(directory: Path, c):
    """A function that measures a training step of OSRL's own CDT, eager torch, of these sizes.

    Only the modules of the method are run: the package wants versions of 2023. Batches are made
    beforehand, which spares it the sampling that ours includes.
    """
    import torch  # noqa: PLC0415 (only a comparison)  # pyright: ignore[reportMissingImports]

    for name in ("osrl", "osrl.algorithms", "osrl.common"):
        package = types.ModuleType(name)
        package.__path__ = [str(directory.joinpath(*name.split(".")))]
        sys.modules[name] = package
    logger = type("Logger", (), {"store": lambda *_, **__: None})
    loggers = types.ModuleType("fsrl.utils")
    vars(loggers).update(DummyLogger=logger, WandbLogger=logger)
    sys.modules.update({"fsrl": types.ModuleType("fsrl"), "fsrl.utils": loggers})
    theirs = importlib.import_module("osrl.algorithms.cdt")
    dropouts = ("attention_dropout", "residual_dropout", "embedding_dropout")
    model = theirs.CDT(
        OBS,
        ACT,
        max_action=1.0,
        seq_len=c.context,
        episode_len=SPEC.horizon,
        embedding_dim=c.embedding,
        num_layers=c.blocks,
        num_heads=c.heads,
        use_rew=True,
        use_cost=True,
        cost_transform=True,
        stochastic=True,
        target_entropy=-ACT,
        **dict.fromkeys(dropouts, c.dropout),
    )
    trainer = theirs.CDTTrainer(
        model,
        None,
        learning_rate=c.learning_rate,
        weight_decay=c.weight_decay,
        clip_grad=c.clip,
        loss_cost_weight=0.02,
    )
    steps = c.batch, c.context
    one = torch.ones(steps)
    now = torch.arange(c.context).repeat(c.batch, 1)
    batch = (torch.randn(*steps, OBS), torch.rand(*steps, ACT), one, one, now, one, one[:, 0], one)

    def measure() -> float:
        begin = time.perf_counter()
        trainer.train_one_step(*batch)
        return time.perf_counter() - begin

    measure()
    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description="speed of every method's training")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure")
    parser.add_argument("--methods", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--preset", default="paper", help="settings of each method")
    parser.add_argument("--osrl", type=Path, help="directory of the unpacked wheel; needs torch")
    options = parser.parse_args()
    rate = matrix_rate()
    measures = {name: training(name, options.preset) for name in options.methods}
    if options.osrl:
        measures["cdt, OSRL"] = osrl_step(options.osrl, ALGORITHMS["cdt"].presets[options.preset])
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
    figures = {"methods": rows, "preset": options.preset, "rounds": len(rounds)}
    if options.osrl and "cdt" in options.methods:
        ratios = [r["cdt, OSRL"][0] / r["cdt"][0] for r in rounds]
        figures["OSRL's time / ours"] = statistics.median(ratios)
    _results.finish(**figures)


if __name__ == "__main__":
    main()
