"""What goes wrong with files: damage to their bytes, and hostile ones, by name.

Every mutation is a function of a generator and a directory that writes one file, or one directory
of the formats that are directories, and returns it.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from _hostile_hdf5 import REPLACED, hdf5_bomb, huge_everything, with_hdf5
from _hostile_logs import (
    csv_cells,
    csv_shapes,
    jsonl_values,
    npz_bomb,
    npz_lying_sizes,
    npz_members,
    parquet_bomb,
    parquet_types,
)  # fmt: skip
from _wholes import CANARY, Mutation, whole_files

from safestitch.data import load, writer


def truncate(draw: Random, content: bytes) -> bytes:
    return content[: draw.randrange(len(content))]


def flip_bits(draw: Random, content: bytes) -> bytes:
    damaged = bytearray(content)
    for _i in range(draw.choice((1, 1, 1, 4, 64))):
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def flip_head_bits(draw: Random, content: bytes) -> bytes:
    """Most formats keep what they declare at an end."""
    damaged = bytearray(content)
    near = draw.choice((64, 512, 2048))
    for _i in range(draw.choice((1, 2, 8))):
        place = draw.randrange(min(near, len(damaged)))
        damaged[place if draw.random() < 0.5 else -1 - place] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def extreme_numbers(draw: Random, content: bytes) -> bytes:
    """Sizes and addresses become huge, negative or zero."""
    damaged = bytearray(content)
    for _i in range(draw.choice((1, 1, 3))):
        value = draw.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1))
        width = draw.choice((2, 4, 8))
        place = draw.randrange(max(1, len(damaged) - width))
        damaged[place : place + width] = (value % 256**width).to_bytes(width, "little")
    return bytes(damaged)


def zero_block(draw: Random, content: bytes) -> bytes:
    size, place = draw.choice((16, 256, 4096)), draw.randrange(len(content))
    return content[:place] + bytes(len(content[place : place + size])) + content[place + size :]


def move_block(draw: Random, content: bytes) -> bytes:
    """A block is repeated, or lost."""
    a, b = sorted(draw.randrange(len(content)) for _i in range(2))
    b = min(b, a + 4096)
    return (
        content[:b] + content[a:b] + content[b:]
        if draw.random() < 0.5
        else content[:a] + content[b:]
    )


def noise_after(draw: Random, content: bytes) -> bytes:
    return content + draw.randbytes(draw.choice((1, 100, 10_000)))


def noise(draw: Random, content: bytes) -> bytes:
    return content[: draw.choice((0, 4, 8))] + draw.randbytes(draw.choice((0, 1, 64, 5000)))


DAMAGE = (
    truncate, flip_bits, flip_head_bits, extreme_numbers, zero_block, move_block, noise_after,
    noise,
)  # fmt: skip


def damage(how: Callable, suffix: str, wholes: list[bytes]) -> Mutation:
    def mutate(draw: Random, directory: Path, _: Path) -> Path:
        path = directory / f"file{suffix}"
        path.write_bytes(how(draw, draw.choice(wholes)))
        return path

    return mutate


def wrong_suffix(draw: Random, directory: Path, _: Path) -> Path:
    wholes = whole_files()
    suffix, other = draw.sample(sorted(wholes), 2)
    path = directory / f"file{suffix}"
    path.write_bytes(draw.choice(wholes[other]))
    return path


def bomb(make: Callable[[], bytes], suffix: str) -> Mutation:
    """A bomb as it is, or with a flipped bit."""

    def mutate(draw: Random, directory: Path, _: Path) -> Path:
        path = directory / f"file{suffix}"
        path.write_bytes(flip_head_bits(draw, make()) if draw.random() < 0.5 else make())
        return path

    return mutate


# --- formats that are directories ----------------------------------------------------------------


@functools.cache
def whole_directory(name: str) -> dict[str, bytes]:
    """Path inside it -> content."""
    with TemporaryDirectory() as made:
        source = Path(made, "whole.hdf5")
        source.write_bytes(whole_files()[".hdf5"][0])
        with writer(Path(made, name)) as target:
            target.append(load(source))
        files = [path for path in Path(made, name).rglob("*") if path.is_file()]
        return {str(path.relative_to(Path(made, name))): path.read_bytes() for path in files}


def in_directory(name: str, how: Callable) -> Mutation:
    """Damage to one file of a directory."""

    def mutate(draw: Random, directory: Path, outside: Path) -> Path:
        files = whole_directory(name)
        chosen = draw.choice(sorted(files))
        for inner, content in files.items():
            path = directory / name / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            if inner == chosen and how is linked:
                path.symlink_to(outside / f"{CANARY}.raw")
            else:
                path.write_bytes(how(draw, content) if inner == chosen else content)
        if how is lost:
            (directory / name / chosen).unlink()
        return directory / name

    return mutate


def linked(_: Random, content: bytes) -> bytes:
    """A file of the directory leads outside; done by `in_directory`."""
    return content


def lost(_: Random, content: bytes) -> bytes:
    """A file of the directory is missing; done by `in_directory`."""
    return content


# --- all of them ---------------------------------------------------------------------------------

OTHERS = (
    wrong_suffix, huge_everything, npz_members, npz_lying_sizes, csv_cells, csv_shapes,
    jsonl_values, parquet_types,
)  # fmt: skip
BOMBS = {".hdf5": hdf5_bomb, ".npz": npz_bomb, ".parquet": parquet_bomb}


def mutations() -> dict[str, Mutation]:
    """Name -> mutation."""
    made = {
        f"{suffix[1:]}: {how.__name__}": damage(how, suffix, wholes)
        for suffix, wholes in whole_files().items()
        for how in DAMAGE
    }
    made |= {f"hdf5: {change.__name__}": with_hdf5(change) for change in REPLACED}
    made |= {
        f"{name.lstrip('a.-').removesuffix('-v0')}: {how.__name__}": in_directory(name, how)
        for name in ("a.store", "a-minari-v0")
        for how in (*DAMAGE, linked, lost)
    }
    made |= {f"{suffix[1:]}: bomb": bomb(make, suffix) for suffix, make in BOMBS.items()}
    return made | {how.__name__.replace("_", ": ", 1): how for how in OTHERS}
