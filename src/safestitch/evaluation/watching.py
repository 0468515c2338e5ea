"""Watching a policy at several limits side by side: one episode each, from the same start."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from safestitch.evaluation.limits import parse_limit
from safestitch.evaluation.simulated import episode_seeds
from safestitch.evaluation.stage import stage_of
from safestitch.policy import Session, load
from safestitch.records import SafestitchError
from safestitch.sims import Simulator, make_own, make_simulator
from safestitch.sims.film import Caption, frame, png, write_gif, write_png
from safestitch.sims.pool import Source

FPS = 20.0


class Panel:
    """One episode at one limit."""

    def __init__(self, simulator: Simulator, session: Session, seed: int, title: str):
        self.simulator, self.session, self.title = simulator, session, title
        self.observation = simulator.reset(seed)
        self.steps = 0
        self.ended = False

    def step(self) -> None:
        """Take one action; nothing after the end."""
        if self.ended:
            return
        action = self.session.act(np.asarray(self.observation, np.float32))
        brought = self.simulator.step(action)
        self.session.observe(float(brought.reward), float(brought.cost))
        self.observation = brought.observation
        self.steps += 1
        self.ended = bool(brought.terminated or brought.truncated)

    @property
    def caption(self) -> Caption:
        """What is drawn below the picture."""
        s = self.session
        return Caption(s.limit, s.reward, s.cost, self.steps, self.title, self.ended)


class Size(NamedTuple):
    """Of each panel, in pixels."""

    width: int = 240
    height: int = 180


def watch(
    directory: Path,
    limits: list[str],
    out: Path,
    *,
    env: str | None = None,
    task: str | None = None,
    policy_seed: int | None = None,
    episode_seed: int = 0,
    every: int = 4,
    size: Size = Size(),  # noqa: B008 (immutable)
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Film one episode per limit: a clip (.gif), or a still of its middle (.png).

    Raises:
        SafestitchError: if the run has no simulator, or the file is of another kind.
    """
    if out.suffix not in (".gif", ".png"):
        raise SafestitchError(f"--out {out}: expected a name that ends in .gif or .png")
    if every < 1:
        raise SafestitchError(f"--every {every}: expected at least 1 step per frame")
    panels = begin(directory, limits, env, task, policy_seed, episode_seed)
    horizon = panels[0].session.policy.run.spec.horizon
    try:
        if out.suffix == ".png":
            write_png(out, _still(panels, horizon // 2, size))
        else:
            write_gif(out, list(_frames(panels, every, size, horizon, progress)), FPS)
    finally:
        for panel in panels:
            panel.simulator.close()


def still(directory: Path, limits: list[str], env: str | None = None) -> bytes:
    """A PNG of one episode per limit, half way through."""
    panels = begin(directory, limits, env, None, None, 0)
    try:
        return png(_still(panels, panels[0].session.policy.run.spec.horizon // 2, Size()))
    finally:
        for panel in panels:
            panel.simulator.close()


def begin(
    directory: Path,
    limits: list[str],
    env: str | None,
    task: str | None,
    policy_seed: int | None,
    episode_seed: int,
) -> list[Panel]:
    """One panel per limit, at the first step."""
    policy = load(directory, policy_seed)
    spec = policy.run.spec
    if task is not None and task != spec.task:
        raise SafestitchError(f"{directory} was trained on {spec.task}, not on {task}")
    stage = stage_of(policy.run, env)
    if not isinstance(stage, Source):
        raise SafestitchError(
            f"{spec.task} is built in and has no pictures: `safestitch report {directory}` draws "
            "its paths"
        )
    seed = int(episode_seeds(episode_seed, 1)[0])
    panels = []
    for text in limits:
        limit = parse_limit(text, spec.cost_range)
        simulator = make_own(env, spec.horizon) if env else make_simulator(spec.task)
        share = f" = {limit:g}" if text.strip().endswith("%") else ""
        panels.append(Panel(simulator, policy.start(limit), seed, f"limit {text}{share}"))
    return panels


def _frames(
    panels: list[Panel],
    every: int,
    size: Size,
    horizon: int,
    progress: Callable[[int, int], None] | None,
) -> Iterator:
    for step in range(horizon + 1):
        over = all(panel.ended for panel in panels)
        if step % every == 0 or over:
            yield _frame(panels, size)
            if progress:
                progress(horizon if over else step, horizon)
        if over:
            return
        for panel in panels:
            panel.step()


def _still(panels: list[Panel], steps: int, size: Size):
    for _ in range(steps):
        for panel in panels:
            panel.step()
    return _frame(panels, size)


def _frame(panels: list[Panel], size: Size):
    pictures = [panel.simulator.picture(*size) for panel in panels]
    return frame(pictures, [panel.caption for panel in panels])
