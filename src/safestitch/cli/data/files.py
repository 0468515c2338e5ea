"""Where verbs read data from."""

from pathlib import Path

from safestitch.episodes import Episodes


def read(source: str) -> Episodes:
    """Episodes of a file, or of the public data set of that name."""
    from safestitch.data import dsrl, places

    path = Path(source) if Path(source).suffix or Path(source).exists() else places.find(source)
    return dsrl.read(path, final_observations=True)
