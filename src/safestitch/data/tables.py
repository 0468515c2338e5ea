"""Any log as a table: by the ending of its file, or a frame handed over in Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from safestitch.data.arrow import open_parquet
from safestitch.data.binary import open_frame, open_hdf5, open_npz
from safestitch.data.blocks import Table
from safestitch.data.text import open_csv, open_jsonl
from safestitch.names import unknown
from safestitch.records import DataError

READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": open_csv,
    ".tsv": open_csv,
    ".parquet": open_parquet,
    ".jsonl": open_jsonl,
    ".ndjson": open_jsonl,
    ".npz": open_npz,
    ".h5": open_hdf5,
    ".hdf5": open_hdf5,
}


def open_table(source: Any) -> Table:
    """A file by its ending, a pandas or polars frame, or a dictionary of arrays.

    Raises:
        DataError: if it is no file that can be read.
    """
    if not isinstance(source, str | Path):
        return open_frame(source)
    path = Path(source)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(unknown("kind of file", path.suffix or path.name, READERS))
    try:
        if not path.is_file():
            raise DataError(f"no file {path}")
        if not path.stat().st_size:
            raise DataError(f"{path.name} is empty")
        table = reader(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    if not table.columns:
        raise DataError(f"{path.name} holds no columns")
    return table
