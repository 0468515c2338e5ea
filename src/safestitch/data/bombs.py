"""Small files that would fill the memory, or keep a processor busy for hours, once unpacked."""

from pathlib import Path

from safestitch.records import DataError

RATIO = 100
"""Times its own size that a file may unpack to: numbers that were measured hardly compress."""
ALWAYS = 1 << 26
"""Bytes that any file may unpack to."""


def refuse_bomb(path: str | Path, values: int) -> None:
    """Raise if a file declares more numbers than its bytes can mean.

    Args:
        path: The file.
        values: Numbers it declares, of all the arrays that will be read; 4 bytes each, unpacked.

    Raises:
        DataError: names both sizes.
    """
    packed, unpacked = Path(path).stat().st_size, 4 * values
    if unpacked > max(ALWAYS, RATIO * packed):
        raise DataError(
            f"{path} has {packed:,} bytes and declares {unpacked:,}, over {RATIO} times "
            "as much: no log is like that, so it is not unpacked. If it is sound, save it without "
            "compression"
        )
