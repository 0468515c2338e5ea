"""Policies on simulated tasks for benchmarks: trained briefly on random episodes, kept on disk."""

from pathlib import Path

import numpy as np

from safestitch import runs
from safestitch.catalog import get_entry
from safestitch.episodes import Episodes
from safestitch.policy import Policies, load_policies
from safestitch.records import Spec
from safestitch.sims import make_simulator
from safestitch.training import train_on

EPISODES, ITERATIONS = 12, 300


def policies_for(task: str, seeds: int = 1) -> Policies:
    """A GAS policy of the sizes of the fast preset. What it earns is beside the point here."""
    out = Path("runs/bench") / f"{task}-random-{seeds}"
    if not runs.is_trained(out):
        spec = get_entry(task).spec
        train_on(random_episodes(spec), out, spec=spec, seeds=seeds, iterations=ITERATIONS)
    return load_policies(out)


def random_episodes(spec: Spec) -> Episodes:
    """Episodes of actions that are each held for a while."""
    random, rows = np.random.default_rng(0), []
    simulator = make_simulator(spec.task)
    for seed in range(EPISODES):
        observation, action = simulator.reset(seed), np.zeros(spec.act_dim, np.float32)
        for t in range(spec.horizon):
            if t % 10 == 0:
                action = random.uniform(-1, 1, spec.act_dim).astype(np.float32)
            step = simulator.step(action)
            ends = bool(step.terminated), bool(step.truncated) and not step.terminated
            rows.append((observation, action, step.reward, step.cost, *ends))
            observation = step.observation
            if any(ends):
                break
    simulator.close()
    columns = [np.asarray(column) for column in zip(*rows, strict=True)]
    return Episodes.of(*columns)
