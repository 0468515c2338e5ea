"""How much memory there is to use."""

import os
import resource
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup/memory.max")


def available_memory() -> int:
    """Bytes this process may still take without swapping: the least of system and limits."""
    known = [_system(), *_limits()]
    return max(0, min(known))


def _system() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _limits() -> list[int]:
    """What the limits of the process and its container leave; none where nothing is limited."""
    status = _status()
    left = []
    for kind, used in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            left.append(limit - status.get(used, 0))
    try:
        text = _CGROUP.read_text().strip()
        left += [int(text) - status.get("RssAnon", 0)] if text.isdigit() else []
    except OSError:
        pass
    return left


def _status() -> dict[str, int]:
    """Sizes of this process, bytes; mapped files do not count into VmData and RssAnon."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    sizes = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) * 1024 for name, size, _ in sizes}
