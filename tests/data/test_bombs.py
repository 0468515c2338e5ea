"""Sizes that files may unpack to."""

from pathlib import Path

import pytest

from safestitch.data.bombs import refuse_bomb
from safestitch.records import DataError


def test_what_a_file_may_unpack_to():
    path = Path("a.npz")
    path.write_bytes(bytes(1_000_000))
    refuse_bomb(path, 25_000_000)  # 100 times a million bytes
    with pytest.raises(DataError, match=r"a\.npz has 1,000,000 bytes and declares 100,000,004"):
        refuse_bomb(path, 25_000_001)


def test_small_files_may_unpack_to_more():
    path = Path("a.npz")
    path.write_bytes(b"x")
    refuse_bomb(path, 2**24)
    with pytest.raises(DataError, match="without compression"):
        refuse_bomb(path, 2**24 + 1)
