"""What was begun with which command, and how long it took: one small file per reproduction."""

import time
from pathlib import Path
from typing import Any

from safestitch import runs
from safestitch.records import SafestitchError
from safestitch.reproducing.jobs import Job

LEDGER = "jobs.json"


class Ledger:
    """Job -> command, attempts, seconds. One process writes it, held by the reproduction's lock."""

    def __init__(self, directory: Path):
        self.path = directory / LEDGER
        self.found: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            found = runs.read_json(self.path)
            sound = isinstance(found, dict) and all(isinstance(v, dict) for v in found.values())
            if not sound:
                raise SafestitchError(f"{self.path} is damaged: delete it, and it is made anew")
            self.found = found

    def check(self, jobs: list[Job]) -> None:
        """Raise if a training was begun with another command: it would pass for the one asked for.

        Raises:
            SafestitchError: names what differs, and what to do.
        """
        for job in jobs:
            before = self.found.get(job.name, {}).get("words", list(job.words))
            if job.kind == "train" and before != list(job.words) and (job.resume() is not None):
                raise SafestitchError(
                    f"{job.name} was begun as `safestitch {' '.join(map(str, before))}`, and is "
                    f"now asked for as `safestitch {' '.join(job.words)}`: delete {job.words[-1]}, "
                    "or choose another --out"
                )

    def begin(self, job: Job) -> None:
        """A process is about to start."""
        entry = self.found.setdefault(job.name, {"attempts": 0, "seconds": 0.0})
        entry["words"] = list(job.words)
        entry["attempts"] = int(entry.get("attempts", 0)) + 1
        entry["started"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        runs.write_json(self.path, self.found)

    def end(self, job: Job, seconds: float) -> None:
        """A process has ended. Time of one that was killed with us is not known and not counted."""
        entry = self.found[job.name]
        entry["seconds"] = round(float(entry.get("seconds", 0.0)) + seconds, 1)
        runs.write_json(self.path, self.found)

    def expected(self, job: Job, finished: list[Job]) -> float | None:
        """Seconds a job should take: as its like took, or as the plan says; None if unknown."""
        method = job.name.split(".", 1)[-1]  # without the task
        taken = {other.name: self.found.get(other.name, {}).get("seconds") for other in finished}
        for like in (f".{method}", f".{job.kind}"):
            known = [s for name, s in taken.items() if s and name.endswith(like)]
            if known:
                return sum(known) / len(known)
        return job.seconds
