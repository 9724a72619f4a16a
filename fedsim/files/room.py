"""How much memory a file may take: compressed files, Parquet and Arrow, none of which may be made to fill it."""

from __future__ import annotations

import contextlib
import functools
import os
import struct
from pathlib import Path
from typing import Any

from fedsim.errors import Unreadable, UserError, refused
from fedsim.files.delimited import repeated
from fedsim.units import parse_size_bytes

_LIMIT = "FEDSIM_MAX_UNPACKED"
_PLAIN = {"PLAIN", "RLE", "BIT_PACKED", "DELTA_LENGTH_BYTE_ARRAY"}
"""Encodings of Parquet that repeat no text."""
_ONE = "write it again, one table per file: files cannot be joined"


def most_unpacked(packed_bytes: float) -> float:
    """The bytes to which files of this size may unpack: far more than honest ones do, or those in the environment."""
    with refused(f"the environment variable {_LIMIT}", kinds=ValueError):
        return parse_size_bytes(os.environ.get(_LIMIT) or max(1 << 28, 200 * packed_bytes))


def require_room(unpacked_bytes: float, packed_bytes: float, where: object) -> None:
    """Refuse what unpacks to more than :func:`most_unpacked`."""
    if unpacked_bytes > (limit := most_unpacked(packed_bytes)):
        raise Unreadable(
            f"unpacks to more than {limit / 2**30:.3g} GiB",
            where=where,
            hint=f"if the file is correct, raise the limit: export {_LIMIT}=16GiB",
        )


def open_parquet(content: Any, where: object) -> Any:
    """A Parquet file (its path, or its bytes in an Arrow buffer), whose columns have room."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def opened() -> Any:
        # Bytes, because Arrow takes a folder named ~ for the home folder, and refuses names that are not UTF-8.
        is_path = isinstance(content, Path)
        return pa.OSFile(os.fsencode(content.absolute())) if is_path else pa.BufferReader(content)

    verified = functools.partial(pq.ParquetFile, page_checksum_verification=True)
    file = verified(opened())
    if twice := repeated(file.schema_arrow.names):
        raise ValueError(f"has the column '{twice}' twice")
    packed = content.stat().st_size if isinstance(content, Path) else len(content)
    metadata = file.metadata
    total, texts, end = 0.0, dict[str, list[Any]](), 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(metadata.num_columns)):
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            end = max(end, begin + chunk.total_compressed_size)
            rows = max(0, group.num_rows, chunk.num_values)  # Either may be forged.
            total += 8 * rows + max(0, chunk.total_uncompressed_size)
            # Rows may repeat a long text, of which a file has a single copy.
            if not _PLAIN.issuperset(chunk.encodings) and "BYTE_ARRAY" in chunk.physical_type:
                texts.setdefault(chunk.path_in_schema, []).append(chunk)
    require_room(total, packed, where)
    # Between its columns and its footer, a file joined to a larger one has the end of that one.
    with opened() as source:
        source.seek(min(end, packed))
        if b"PAR1PAR1" in source.read():
            raise UserError("is several Parquet files in one", where=where, hint=_ONE)
    for path, chunks in texts.items():
        more = float(sum(chunk.num_values * chunk.total_uncompressed_size for chunk in chunks))
        has_delta = any("DELTA_BYTE_ARRAY" in chunk.encodings for chunk in chunks)
        is_text = chunks[0].physical_type == "BYTE_ARRAY" and not has_delta
        if total + more > most_unpacked(packed) and is_text:
            column = verified(opened(), read_dictionary=[path]).read([path]).column(0)
            leaves = pa.chunked_array(map(_leaf, column.chunks))
            more = text_bytes(leaves) if pa.types.is_dictionary(leaves.type) else more
        require_room(total := total + more, packed, where)
    return file


def _leaf(array: Any) -> Any:
    """The texts in lists and structs, as Hugging Face has tokens and images."""
    import pyarrow as pa

    while pa.types.is_nested(array.type) and array.type.num_fields == 1:
        inner = array.flatten()
        array = inner[0] if isinstance(inner, list) else inner
    return array


def text_bytes(column: Any) -> float:
    """The bytes that the cells of a column take if it has dictionaries of texts and becomes plain text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not pa.types.is_dictionary(kind) or pa.types.is_primitive(kind.value_type):
        return 0.0
    lengths = (pc.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
    return sum(pc.sum(length).as_py() or 0 for length in lengths)


def read_arrow(content: Any, where: object) -> Any:
    """The table in an Arrow buffer with the bytes of a file (Feather) or stream, whose columns have room."""
    import pyarrow as pa

    # A file is a stream between a mark and a list of places, which may name the same ones again and again.
    is_file = content[:6] == b"ARROW1"
    stream = content[8:] if is_file else content
    require_arrow_room(stream, len(content), where)
    source = pa.BufferReader(stream)
    table = pa.ipc.open_stream(source).read_all()
    list_bytes = int.from_bytes(content[-10:-6], "little") + 10 if is_file else 0
    if more := len(stream) - source.tell() - list_bytes:
        message = f"{abs(more):,} bytes {'follow the end of' if more > 0 else 'are missing from'} its Arrow table"
        raise UserError(message, where=where, hint=_ONE)
    table.validate(full=True)  # Wrong offsets would end the process.
    require_room(sum(map(text_bytes, table.columns)), len(content), where)
    return table


def require_arrow_room(stream: Any, packed_bytes: int, where: object) -> None:
    """Refuse an Arrow stream that unpacks to more than :func:`most_unpacked`, up to where it is cut off."""
    import pyarrow as pa

    total = 0
    with contextlib.suppress(pa.ArrowInvalid, OSError):
        for message in pa.ipc.MessageReader.open_stream(stream):
            total += _unpacked(message)
    require_room(total, packed_bytes, where)


def _unpacked(message: Any) -> int:
    """The bytes of an Arrow message, as a table of flatbuffers gives them (Message.fbs), once it is unpacked."""
    data, body = message.metadata.to_pybytes(), message.body

    def number(at: int, form: str = "I") -> int:
        return int(struct.unpack_from(f"<{form}", data, at)[0])

    def entry(table: int, index: int) -> int:
        """Where the entry of a table begins; 0 if there is none."""
        offsets, at = table - number(table, "i"), 4 + 2 * index
        offset = number(offsets + at, "H") if at < number(offsets, "H") else 0
        return offset and table + offset + number(table + offset)

    batch = entry(number(0), 2)
    if message.type == "dictionary":
        batch = entry(batch, 1)
    elif message.type != "record batch":
        return 0
    nodes, buffers = entry(batch, 1), entry(batch, 2)
    total = 8 * sum(number(nodes + 4 + 16 * n, "q") for n in range(number(nodes)))
    if entry(batch, 3):  # Each compressed buffer begins with its size.
        at = (buffers + 4 + 16 * n for n in range(number(buffers)))
        starts = [number(each, "q") for each in at if number(each + 8, "q") >= 8]
        sizes = (body[start : start + 8].to_pybytes() for start in starts)
        total += sum(int.from_bytes(size, "little", signed=True) for size in sizes)
    return total
