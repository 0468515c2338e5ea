"""Running jobs in processes: some at once, each with its log, none twice, until all are finished.

Whatever happens to this process, what it started ends with it (see `leash`), and the lock of the
directory is shared with them: whoever holds it knows that nothing else is at work there.
"""

import contextlib
import dataclasses
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from safestitch.records import SafestitchError
from safestitch.reproducing.jobs import Job
from safestitch.reproducing.leash import PATIENCE
from safestitch.reproducing.ledger import Ledger

TICK = 0.1
"""Seconds between looks at the processes."""
TAIL = 15
"""Lines of a log shown of a job that failed."""
LEASH = (sys.executable, "-m", "safestitch.reproducing.leash")


@dataclasses.dataclass(frozen=True)
class State:
    """Where a reproduction is."""

    finished: int
    failed: int
    total: int
    running: tuple[str, ...]
    left: float | None
    """Seconds, as far as it is known."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """A job that ended without what it was to make."""

    job: Job
    why: str
    log: Path
    tail: str
    """The last lines of its log."""


@dataclasses.dataclass
class _Running:
    job: Job
    process: subprocess.Popen
    log: IO[bytes]
    since: float
    first: int
    """Where its part of the log begins."""


def run_jobs(
    jobs: Sequence[Job],
    directory: Path,
    *,
    at_once: int = 1,
    say: Callable[[str], None] = lambda _: None,
    tick: Callable[[State], None] = lambda _: None,
    leash: Sequence[str] = LEASH,
) -> list[Failure]:
    """Run what is not finished; what depends on a failed job is left out.

    Raises:
        SafestitchError: if another process is at work here, or the plan has changed.
        KeyboardInterrupt: on Ctrl-C, after the jobs under way have saved what they have.
    """
    with _held(directory, say) as lock:
        ledger = Ledger(directory)
        ledger.check(list(jobs))
        with _Crew(directory, ledger, lock, tuple(leash), say) as crew:
            return _run(list(jobs), crew, at_once, tick)


def _run(
    jobs: list[Job], crew: "_Crew", at_once: int, tick: Callable[[State], None]
) -> list[Failure]:
    finished = [job for job in jobs if job.is_finished()]
    if finished:
        crew.say(f"{len(finished)} of {len(jobs)} jobs are finished already")
    waiting = [job for job in jobs if job not in finished]
    failures: list[Failure] = []
    while waiting or crew.running:
        for job, failure in crew.ended():
            if failure:
                failures.append(failure)
                waiting = _without_dependents(waiting, job, crew.say)
            else:
                finished.append(job)
        names = {job.name for job in finished}
        there = {job.name for job in jobs}  # one that is not in this plan is none of our business
        for job in [j for j in waiting if not (set(j.after) & there) - names]:
            if len(crew.running) < at_once:
                waiting.remove(job)
                crew.start(job)
        left = crew.left(waiting, finished, at_once)
        running = tuple(each.job.name for each in crew.running)
        tick(State(len(finished), len(failures), len(jobs), running, left))
        if crew.running:
            time.sleep(TICK)
    return failures


def _without_dependents(waiting: list[Job], failed: Job, say: Callable[[str], None]) -> list[Job]:
    lost = {failed.name}
    for job in waiting:  # in the order of the plan: what a job needs stands before it
        if lost & set(job.after):
            lost.add(job.name)
            say(f"{job.name} is left out: it needs {failed.name}")
    return [job for job in waiting if job.name not in lost]


class _Crew:
    """The processes under way."""

    def __init__(
        self,
        directory: Path,
        ledger: Ledger,
        lock: int,
        leash: tuple[str, ...],
        say: Callable[[str], None],
    ):
        self.logs, self.ledger, self.lock = directory / "logs", ledger, lock
        self.leash, self.say = leash, say
        self.running: list[_Running] = []

    def __enter__(self):
        self.logs.mkdir(exist_ok=True)
        return self

    def start(self, job: Job) -> None:
        """Start a job, or go on with it."""
        words = job.resume() or job.words
        self.ledger.begin(job)
        log = open(self.logs / f"{job.name}.log", "ab")  # noqa: SIM115 (closed when it ends)
        log.write(f"$ safestitch {shlex.join(words)}\n".encode())
        log.flush()
        process = subprocess.Popen(
            [*self.leash, *words],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is ours to hand on
            pass_fds=(self.lock,),
        )
        self.running.append(_Running(job, process, log, time.monotonic(), log.tell()))
        self.say(f"{'going on with' if words != job.words else 'started'} {job.name}")

    def ended(self) -> Iterator[tuple[Job, Failure | None]]:
        """Jobs whose process has ended since the last look."""
        for each in [r for r in self.running if r.process.poll() is not None]:
            self._close(each)
            seconds = time.monotonic() - each.since
            self.ledger.end(each.job, seconds)
            code = each.process.returncode
            if code == 0 and each.job.is_finished():
                self.say(f"finished {each.job.name} in {duration(seconds)}")
                yield each.job, None
            else:
                why = f"ended with code {code}" if code else "ended without its result"
                self.say(f"{each.job.name} failed: it {why}")
                log = Path(each.log.name)
                yield each.job, Failure(each.job, why, log, _tail(log, each.first))

    def left(self, waiting: list[Job], finished: list[Job], at_once: int) -> float | None:
        """Seconds until all is finished, by what the finished jobs took; None if unknown."""
        now = time.monotonic()
        total = 0.0
        for job, spent in [
            *((job, 0.0) for job in waiting),
            *((each.job, now - each.since) for each in self.running),
        ]:
            expected = self.ledger.expected(job, finished)
            if expected is None or spent > expected:  # longer than its like: nobody knows
                return None
            total += expected - spent
        return total / at_once

    def __exit__(self, kind, *_) -> None:
        """Let go of what is still running: it saves and ends. A second Ctrl-C ends it at once."""
        if not self.running:
            return
        self.say(f"stopping {len(self.running)} jobs: they save what they have")
        for each in self.running:
            _let_go(each.process)
        try:
            for each in self.running:
                each.process.wait(PATIENCE + 10)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            for each in self.running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(each.process.pid, signal.SIGKILL)  # its own session, ours to end
                each.process.wait()
        for each in list(self.running):
            self._close(each)

    def _close(self, each: _Running) -> None:
        self.running.remove(each)
        _let_go(each.process)
        each.log.close()


def _let_go(process: subprocess.Popen) -> None:
    if process.stdin:
        process.stdin.close()


def _tail(log: Path, first: int) -> str:
    """The last lines of what a job wrote, from byte `first` on."""
    with open(log, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(first, size - 20_000))
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-TAIL:])


@contextlib.contextmanager
def _held(directory: Path, say: Callable[[str], None]) -> Iterator[int]:
    """Hold a directory; jobs of a reproduction that was killed are waited for, not joined.

    The lock belongs to the open file, which the jobs share, so it is free when all have ended.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = open(directory / ".lock", "a+")  # noqa: SIM115 (closed below: it is the lock)
    except OSError as error:
        raise SafestitchError(f"cannot write to {directory}: {error.strerror}") from None
    with handle:
        for waited in range(int(PATIENCE + 10)):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                handle.seek(0)
                holder = handle.read(20).strip()
                if holder.isdigit() and _is_alive(int(holder)):
                    break_off = f"{directory} is being run by process {holder}: wait for it"
                    raise SafestitchError(f"{break_off}, or choose another --out") from None
                if not waited:
                    say("waiting for jobs of a stopped reproduction to end")
                time.sleep(1.0)
        else:
            raise SafestitchError(f"{directory} is in use by jobs that do not end: end them first")
        handle.seek(0)
        handle.truncate()
        handle.write(str(os.getpid()))
        handle.flush()
        yield handle.fileno()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def duration(seconds: float) -> str:
    """A time as people say it.

    Example:
        >>> duration(42), duration(125), duration(7500)
        ('42 s', '2 min 05 s', '2 h 05 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
