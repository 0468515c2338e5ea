"""Every simulated task in one picture, after a few random steps, and the time that each takes.

python bench/contact_sheet.py --out sheet.png
"""

import argparse
import time
from pathlib import Path

import numpy as np
from _results import finish, show

from safestitch.catalog import catalog
from safestitch.sims import Simulator, film, make_simulator

WIDTH, HEIGHT = 240, 180
STEPS, HELD = 60, 10  # random actions, each held for some steps so that robots get somewhere


def walked(task: str, seed: int) -> Simulator:
    """A simulator in the middle of an episode of random actions."""
    simulator = make_simulator(task)
    generator = np.random.default_rng(seed)
    simulator.reset(seed)
    action = np.zeros(simulator.spec.act_dim, np.float32)
    for t in range(STEPS):
        if t % HELD == 0:
            action = generator.uniform(-1, 1, len(action)).astype(np.float32)
        if simulator.step(action).terminated:
            break
    return simulator


def photographed(simulator: Simulator, repeats: int) -> tuple[np.ndarray, dict[str, float]]:
    """A picture, and the milliseconds of the first one and of those that follow (medians).

    Processor time beside the clock's: one picture uses one core, and only the clock sees what else
    the machine is doing.
    """
    picture, clock, processor = np.empty(0), [], []
    for _ in range(repeats + 1):
        before = time.perf_counter(), time.process_time()
        picture = simulator.picture(WIDTH, HEIGHT)
        clock.append(1000 * (time.perf_counter() - before[0]))
        processor.append(1000 * (time.process_time() - before[1]))
    later = {"ms": float(np.median(clock[1:])), "processor_ms": float(np.median(processor[1:]))}
    return picture, {"first_ms": clock[0], **later}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("contact_sheet.png"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    pictures, rows = {}, []
    for entry in catalog().values():
        simulator = walked(entry.task, options.seed)
        pictures[entry.task], times = photographed(simulator, options.repeats)
        simulator.close()
        rows.append({"task": entry.task, "suite": entry.suite, **times})
    film.write_png(options.out, film.contact_sheet(pictures, columns=6))
    show(f"Milliseconds per picture of {WIDTH} x {HEIGHT}", rows)
    finish(width=WIDTH, height=HEIGHT, tasks=rows)


if __name__ == "__main__":
    main()
