import subprocess
import sys

from safestitch.memory import available_memory

LIMITED = """
import resource
from safestitch.memory import available_memory
before = available_memory()
resource.setrlimit(resource.RLIMIT_{kind}, ({limit}, {limit}))
limited = available_memory()
held = bytearray(100_000_000)
print(before, limited, available_memory())
"""


def test_there_is_some():
    assert available_memory() > 10_000_000


def test_limits_of_the_process_count():
    for kind in ("DATA", "AS"):
        program = LIMITED.format(kind=kind, limit=2**30)
        output = subprocess.check_output([sys.executable, "-c", program], text=True)
        before, limited, after = map(int, output.split())
        assert limited < min(before, 2**30)
        assert 90_000_000 < limited - after < 150_000_000
