"""Files that were made to fill the memory are refused before they do; honest ones are read, whatever their form."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from fedsim.errors import UserError
from fedsim.files.room import open_parquet, read_arrow

ROWS = 400_000
Write = Callable[[Any, Path], None]


def zeros() -> Any:
    return pa.table({name: pa.repeat(0.0, ROWS) for name in ("a", "b", "c")})


def repeated(kind: Any = None) -> Any:
    """Rows that repeat one text of a megabyte."""
    rows, text = np.zeros(10, np.int32), pa.array(["x" * 1_000_000])
    column = pa.DictionaryArray.from_arrays(pa.array(rows), text)
    return pa.table({"a": column if kind is None else column.cast(kind), "b": rows})


def structs() -> Any:
    """Rows that repeat one image of a megabyte."""
    return pa.table({"a": pa.array([{"bytes": b"x" * 1_000_000}] * 10)})


def lists() -> Any:
    return pa.table({"a": pa.array([["x" * 1_000_000] * 10])})


def honest() -> Any:
    words = pa.array([f"client {n % 1000}" for n in range(10_000)])
    images = [{"bytes": f"{n}".encode(), "path": f"{n}.png"} for n in range(10_000)]
    tokens = [[f"{n}", "x"] for n in range(10_000)]
    return pa.table({"a": words, "b": words.dictionary_encode(), "c": tokens, "d": images})


def ipc(**options: Any) -> Write:
    def write(table: Any, path: Path) -> None:
        opened = pa.ipc.new_stream if options.pop("stream", False) else pa.ipc.new_file
        with opened(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
            file.write_table(table)

    return write


def read(path: Path) -> Any:
    content = pa.py_buffer(path.read_bytes())
    if path.suffix == ".arrow":
        return read_arrow(content, path)
    return [open_parquet(each, path).read() for each in (content, path)][1]


WRITERS: dict[str, Write] = {
    "x.parquet": pq.write_table,
    "x.arrow": ipc(compression="zstd"),
    "lz4.arrow": ipc(compression="lz4"),
    "plain.arrow": ipc(),
    "stream.arrow": ipc(compression="zstd", stream=True),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    "make", [zeros, repeated, lambda: repeated(pa.string()), lists, structs, honest]
)
def test_what_would_fill_the_memory_is_refused_before_it_is_read(
    make: Callable[[], Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path = make(), tmp_path / name
    WRITERS[name](table, path)
    monkeypatch.setenv("FEDSIM_MAX_UNPACKED", "8MB")
    # Of a plain file, only what is more than itself fills the memory unforeseen.
    if make is not honest and (table.nbytes > 2 * path.stat().st_size or make in (zeros, repeated)):
        with pytest.raises(UserError, match=r"unpacks to more than .*\n.*FEDSIM_MAX_UNPACKED"):
            read(path)
        monkeypatch.delenv("FEDSIM_MAX_UNPACKED")
    assert read(path).num_rows == table.num_rows


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (pa.binary(1_000_000), {}),
        (pa.string(), {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}),
    ],
)
def test_other_encodings_that_repeat_are_refused(
    kind: Any, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": pa.array(["x" * 1_000_000] * 20).cast(kind)}), path, **options)
    monkeypatch.setenv("FEDSIM_MAX_UNPACKED", "8MB")
    with pytest.raises(UserError, match="unpacks to more than 0"):
        read(path)


@pytest.mark.parametrize("name", WRITERS)
def test_joined_files_and_what_follows_their_end_are_refused(name: str, tmp_path: Path) -> None:
    WRITERS[name](honest(), path := tmp_path / name)
    content = path.read_bytes()
    for more in (content, b"garbage")[: 1 if name == "x.parquet" else 2]:
        path.write_bytes(content + more)
        with pytest.raises(UserError, match="\n  write it again, one table per file"):
            read(path)


def test_a_limit_that_is_no_size_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSIM_MAX_UNPACKED", "16 GiBs")
    with pytest.raises(UserError, match="environment variable FEDSIM_MAX_UNPACKED: '16 GiBs' has"):
        read_arrow(pa.BufferOutputStream().getvalue(), "")
