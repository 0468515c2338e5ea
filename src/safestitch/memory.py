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
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    limits = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    try:
        text = _CGROUP.read_text().strip()
        limits += [int(text)] if text.isdigit() else []
    except OSError:
        pass
    return [limit - used for limit in limits]
