import json
import struct
import sys
import zipfile
from pathlib import Path

import h5py
import hypothesis
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import strategies as st

from safestitch.data import arrow, blocks, text
from safestitch.data.blocks import Block, Place
from safestitch.data.tables import open_table
from safestitch.records import DataError

TEXTS = frozenset({"id"})


def read(source, place: Place | None = None) -> list[Block]:
    table = open_table(source)
    return list(table.read(list(table.columns), TEXTS, place or Place()))


def joined(found: list[Block]) -> dict[str, np.ndarray]:
    return {n: np.concatenate([b.columns[n] for b in found]) for n in found[0].columns}


def frame(rows: int = 7) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": rng.standard_normal(rows).astype(np.float32),
            "n": rng.integers(-5, 5, rows),
            "flag": rng.random(rows) < 0.5,
            "id": [f"run {i // 3}" for i in range(rows)],
        }
    )


def write(kind: str, data: pd.DataFrame) -> object:
    if kind == "pandas":
        return data
    if kind == "polars":
        return pl.from_pandas(data)
    if kind == "dictionary":
        return {name: data[name].to_numpy() for name in data.columns}
    path = Path(f"log.{kind}")
    if kind == "csv":
        data.to_csv(path, index=False)
    elif kind == "tsv":
        data.to_csv(path, index=False, sep="\t")
    elif kind == "parquet":
        data.to_parquet(path)
    elif kind == "jsonl":
        data.to_json(path, orient="records", lines=True, double_precision=15)
    else:
        x, n, flag, names = (data[name].to_numpy() for name in data.columns)
        np.savez(path, x=x, n=n, flag=flag, id=names.astype(str))
    return path


KINDS = ("csv", "tsv", "parquet", "jsonl", "npz", "pandas", "polars", "dictionary")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("with_arrow", [True, False], ids=["arrow", "plain"])
def test_every_format_gives_the_same_numbers(kind, with_arrow, monkeypatch):
    data = frame()
    source = write(kind, data)
    if not with_arrow and kind != "parquet":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("BLOCK_BYTES", "BLOCK_VALUES"):
        for module in (blocks, text):
            monkeypatch.setattr(module, name, 8 if name == "BLOCK_VALUES" else 60, raising=False)
    found = read(source)
    assert len(found) > 1 and [b.first for b in found][:2] == [0, len(found[0])]
    columns = joined(found)
    for name in ("x", "n", "flag"):
        np.testing.assert_array_equal(
            columns[name].astype(np.float32), data[name].to_numpy().astype(np.float32)
        )
    assert list(columns["id"]) == list(data["id"])
    # going on from the end of any block gives the rest
    for i, block in enumerate(found[:-1]):
        rest = joined(read(source, block.after))
        np.testing.assert_array_equal(rest["n"], joined(found[i + 1 :])["n"])


def test_wide_columns():
    wide = np.arange(6.0).reshape(3, 2)
    np.savez("a.npz", obs=wide, turned=np.asfortranarray(wide), note=np.array(5), other=np.ones(2))
    pl.DataFrame({"obs": wide.tolist()}).write_parquet("a.parquet")
    pl.DataFrame({"obs": wide}, schema={"obs": pl.Array(pl.Float64, 2)}).write_parquet("b.parquet")
    Path("a.jsonl").write_text("".join(json.dumps({"obs": list(r)}) + "\n" for r in wide))
    lists = pd.DataFrame({"obs": [list(r) for r in wide]})
    for source in ("a.npz", "a.parquet", "b.parquet", "a.jsonl", lists, {"obs": wide}):
        assert open_table(source).columns["obs"] == 2
        np.testing.assert_array_equal(joined(read(source))["obs"], wide)
    assert set(open_table("a.npz").columns) == {"obs", "turned"}
    np.testing.assert_array_equal(joined(read("a.npz"))["turned"], wide)


def test_nested_json():
    Path("a.jsonl").write_text('{"obs": {"x": 1, "v": {"y": 2}}, "r": null}\n\n{"obs": {"x": 3}}')
    table = open_table("a.jsonl")
    assert table.columns == {"obs.x": 1, "obs.v.y": 1, "r": 1}
    found = read("a.jsonl")
    columns = joined(found)
    np.testing.assert_array_equal(columns["obs.x"], [1, 3])
    np.testing.assert_array_equal(columns["obs.v.y"], [2, np.nan])
    assert np.isnan(columns["r"]).all()
    assert [b.where(i) for b in found for i in range(len(b))] == ["line 1", "line 3"]


cells = st.sampled_from(
    ["1", "-2.5", "1e3", "", "NaN", "true", "False", "inf", " 4 ", '"5"', "1e400"]
)


@hypothesis.given(st.lists(st.tuples(cells, cells), min_size=1, max_size=6), st.booleans())
def test_both_csv_readers_agree(rows, ends_with_newline):
    content = "\n".join(f"{a},{b}" for a, b in rows) + "\n" * ends_with_newline
    names = ["a", "b"]
    exact, lines = text._parse_csv(Path("x"), content.encode(), 2, names, names, frozenset(), ",")
    fast = arrow.parse_csv(content.encode(), names, names, frozenset(), ",", text.MISSING)
    assert lines == list(range(2, 2 + len(rows)))
    if fast is not None:
        for name in names:
            np.testing.assert_array_equal(fast[name], exact[name])


def test_csv_lines_are_counted_through_quotes_and_blanks(monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 16)
    Path("a.csv").write_bytes(
        b'\xef\xbb\xbfx;note\r\n1;"two\nlines; here"\r\n\r\n3;plain\r\n4;"a""b"'
    )
    table = open_table("a.csv")
    found = list(table.read(["x"], frozenset(), Place()))
    assert [b.where(i) for b in found for i in range(len(b))] == ["line 3", "line 5", "line 6"]
    np.testing.assert_array_equal(joined(found)["x"], [1, 3, 4])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"x,id\n1,a\nabc,b\n", "line 3: column x: expected a number, got 'abc'"),
        (b'x,id\n"1,5",a\n', "line 2: column x: .* \\(write decimals with a point\\)"),
        (b"x,id\n1_0,a\n", "line 2: column x: expected a number, got '1_0'"),
        (b"x,id\n1,a\n1,2,3\n", "line 3: 3 cells, but the header has 2"),
        (b"x,id\n1\n", "line 2: 1 cells, but the header has 2"),
        (b"1,2\n3,4\n", "the first line holds numbers"),
        (b"x,x\n3,4\n", "two columns are named 'x'"),
        (b"\nx\n", "the first line is empty"),
        (b"\xff\xfex\x00", "UTF-16"),
        (b"x,id\n\xff,a\n", "line 2: not UTF-8"),
        (b'x,id\n1,"open\n', "line 2: unexpected end of data"),
        (b"x" * 1_000_001, "the first line is over 1 MB"),
    ],
    ids=lambda x: repr(x)[:30],
)
def test_broken_csv(content, words):
    Path("a.csv").write_bytes(content)
    with pytest.raises(DataError, match=words):
        read("a.csv")


def test_a_line_without_end(monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 100)
    monkeypatch.setattr(text, "LONGEST_LINE", 1000)
    Path("a.csv").write_bytes(b"x\n" + b"1" * 2000)
    with pytest.raises(DataError, match="line 2: over 0 MB without an end"):
        read("a.csv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"x": 1}\n{"x": \n', "line 2: not JSON"),
        ('{"x": 1}\n[1]\n', "line 2: expected a JSON object"),
        ('{"x": 1}\n{"x": "a"}\n', "line 2: column x: expected a number, got 'a'"),
        ('{"x": [1, 2]}\n{"x": [1]}\n', "line 2: column x: expected a list of 2 numbers"),
        ('{"x": 1}\n{"x": [1, 2]}\n', "line 2: column x: expected a"),
        ('{"x": 1}\n{"x": ' + "9" * 400 + "}\n", "line 2: column x: expected a number"),
        ("[" * 100_000, "line 1: not JSON"),
    ],
    ids=lambda x: repr(x)[:30],
)
def test_broken_json_lines(content, words):
    Path("a.jsonl").write_text(content)
    with pytest.raises(DataError, match=words):
        read("a.jsonl")


def npy(descr: str, shape: str, body: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body


def npz(**members: bytes) -> None:
    with zipfile.ZipFile("a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (npy("'<f8'", "(1000000000000,)", b"1"), "declares shape .*, which is not what it holds"),
        (npy("'<f8'", "(2, 1000000000)"), "1000000000 numbers in a row, expected 1 to"),
        (npy("'<f8'", "(2, -1)"), "-1 numbers in a row"),
        (npy("'<f8'", "(-1,)"), "declares shape"),
        (npy("'|O'", "(1,)", b"xxxxxxxx"), "pickled objects, which are never loaded"),
        (npy("'<c16'", "(1,)", bytes(16)), "type complex128"),
        (npy("'<f8'", "(2, 2, 1)", bytes(32)), "give one row a step"),
        (npy("[('a', '<f8')]", "(1,)", bytes(8)), "save it as plain numbers"),
        (b"not an array at all", "damaged or not an NPZ"),
        (npy("__import__('os')", "(1,)"), "damaged or not an NPZ"),
    ],
    ids=lambda x: repr(x)[-40:],
)
def test_hostile_npz(member, words):
    npz(x=member)
    with pytest.raises(DataError, match=words):
        read("a.npz")


def test_a_zip_bomb_costs_one_block():
    npz(x=npy("'<f8'", "(100000000,)") + b"")
    raw = bytearray(Path("a.npz").read_bytes())
    # the directory lies about the size: 800 MB out of a hundred bytes
    at = raw.rindex(b"PK\x01\x02")
    struct.pack_into("<I", raw, at + 24, 800_000_128)
    Path("a.npz").write_bytes(raw)
    with pytest.raises(DataError, match="declares more bytes than"):
        read("a.npz")


@pytest.mark.parametrize("kind", ["npz", "parquet", "h5"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_files_cut_short(kind, share):
    if kind == "h5":
        with h5py.File("log.h5", "w") as file:
            for name in ("observations", "actions", "rewards", "costs", "terminals", "timeouts"):
                file[name] = np.zeros((500, 2) if name.endswith("ions") else 500)
    else:
        write(kind, frame(500))
    path = Path(f"log.{kind}")
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(DataError, match=rf"log\.{kind}"):
        read(path)


def test_hdf5_follows_no_link_out_of_the_file():
    names = ("observations", "actions", "rewards", "costs", "terminals", "timeouts")
    with h5py.File("other.h5", "w") as other:
        other["x"] = np.zeros(3)
    with h5py.File("a.h5", "w") as file:
        for name in names:
            file[name] = h5py.ExternalLink("other.h5", "x")
    with pytest.raises(DataError, match="observations is a link to elsewhere"):
        open_table("a.h5")


def test_hdf5_that_declares_what_it_does_not_hold():
    with h5py.File("a.h5", "w") as file:
        for name in ("observations", "actions", "rewards", "costs", "terminals", "timeouts"):
            shape = (10**12, 3) if name.endswith("ions") else (10**12,)
            file.create_dataset(name, shape, "f4", chunks=True)
    with pytest.raises(DataError, match="observations declares 12000000000000 bytes"):
        open_table("a.h5")


def test_sources_that_cannot_be_read():
    Path("a.txt").touch()
    Path("a.csv").touch()
    Path("b.csv").mkdir()
    for source, words in [
        ("a.txt", r"unknown kind of file '\.txt'.*\.csv"),
        ("a.csv", r"a\.csv is empty"),
        ("b.csv", r"no file b\.csv"),
        ("c.csv", r"no file c\.csv"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, "columns of different lengths"),
    ]:
        with pytest.raises(DataError, match=words):
            open_table(source)
    with pytest.raises(DataError, match="column a: expected numbers"):
        read({"a": np.array(["x", "y"])})


def test_parquet_without_pyarrow(monkeypatch):
    write("parquet", frame())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'safestitch\[logs\]'"):
        open_table("log.parquet")


def test_text_where_numbers_are_wanted():
    pl.DataFrame({"x": ["a", "b"]}).write_parquet("a.parquet")
    with pytest.raises(DataError, match=r"column x: expected numbers, got (large_)?string"):
        read("a.parquet")
    pl.DataFrame({"x": [[1.0, 2.0], [3.0]]}).write_parquet("b.parquet")
    with pytest.raises(DataError, match="expected lists of 2 numbers"):
        read("b.parquet")
