"""Metrics as CSV always, as TensorBoard events on request."""

import contextlib
import csv
from pathlib import Path

import numpy as np

from safestitch import runs
from safestitch.files import write_atomic
from safestitch.records import RunError, SafestitchError


class MetricsLog:
    """Appends one row per seed and logging interval; rows after a resumed step are dropped."""

    def __init__(self, out: Path, seeds: list[int], *, after: int, tensorboard: bool):
        self.seeds = seeds
        self.path = out / runs.METRICS
        self.fields: list[str] = []
        self.writers = _tensorboard_writers(out, seeds, after) if tensorboard else []
        _drop_rows_after(self.path, after)

    def __enter__(self):
        self.file = open(self.path, "a", newline="")
        self.rows = csv.writer(self.file)
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.file.close()
        for writer in self.writers:
            writer.close()

    def write(self, step: int, metrics: dict[str, np.ndarray]) -> None:
        """Record one value per seed for every metric."""
        names = sorted(metrics)
        try:
            if self.file.tell() == 0:
                self.rows.writerow(["step", "seed", *names])
            for i, seed in enumerate(self.seeds):
                self.rows.writerow([step, seed, *(repr(float(metrics[n][i])) for n in names)])
            self.file.flush()
        except OSError as error:
            raise RunError(
                f"cannot write {self.path}: {error.strerror}. The last checkpoint is whole: make "
                f"room and go on with `safestitch train --resume {self.path.parent}`"
            ) from None
        for i, writer in enumerate(self.writers):
            for name in names:
                writer.add_scalar(name, float(metrics[name][i]), step)


def _drop_rows_after(path: Path, step: int) -> None:
    """Forget what was logged past the checkpoint, and a last line that a kill cut short."""
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    kept = whole[:1] if step else []
    kept += [line for line in whole[1:] if _step_of(line, path) <= step]
    write_atomic(path, b"".join(kept))


def _step_of(line: bytes, path: Path) -> int:
    number = line.split(b",", 1)[0]
    if not number.isdigit():
        raise RunError(
            f"{path} is damaged: {line[:40]!r} is not a row of metrics. Delete that file"
        )
    return int(number)


def _tensorboard_writers(out: Path, seeds: list[int], after: int):
    try:
        from tensorboardX import SummaryWriter  # noqa: PLC0415 (an extra, imported here only)
    except ImportError:
        raise SafestitchError(
            "--tensorboard needs an extra: install it with `pip install 'safestitch[tensorboard]'`"
        ) from None
    return [
        SummaryWriter(str(out / "tensorboard" / f"seed{seed}"), purge_step=after or None)
        for seed in seeds
    ]
