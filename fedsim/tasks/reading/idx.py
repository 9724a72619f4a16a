"""IDX files, the format of MNIST and related data sets: a big-endian header, then 8-bit values."""

from __future__ import annotations

import gzip
import lzma
import math
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.tasks.reading.files import damaged
from fedsim.vocabulary.formatting import format_count

_UNSIGNED_BYTE = 8


def read_bytes(path: Path) -> bytes:
    """Content of a file, decompressed if its name ends in .gz or .xz.

    Raises:
        UserError: the file is truncated, or not compressed in the way that its name indicates.
    """
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as stream:
                return stream.read()
        if path.suffix == ".xz":
            with lzma.open(path) as stream:
                return stream.read()
        return path.read_bytes()
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise damaged(path, str(error)) from error


def promised_shape(path: Path, dimensions: int) -> tuple[int, ...] | None:
    """The shape in the header of a .gz file, if it agrees with the uncompressed size stored at the end.

    None for other files, and if the shape can be determined only by reading the whole file.
    """
    if path.suffix != ".gz":
        return None
    try:
        with gzip.open(path) as stream:
            shape = _shape(stream.read(4 + 4 * dimensions), dimensions)
        with path.open("rb") as content:
            content.seek(-4, os.SEEK_END)
            size = int.from_bytes(content.read(), "little")
    except (OSError, EOFError, zlib.error):
        return None
    return None if shape is None or size != 4 + 4 * dimensions + math.prod(shape) else shape


def read_idx(path: Path, dimensions: int) -> npt.NDArray[Any]:
    """The uint8 array of an IDX file; memory-mapped (copy on write) if the file is not compressed.

    Args:
        path: file, plain or compressed.
        dimensions: required number of dimensions: 1 for labels, 3 for images.

    Raises:
        UserError: the file is damaged.
    """
    compressed = path.suffix in (".gz", ".xz")
    head_size = 4 + 4 * dimensions
    if compressed:
        content = read_bytes(path)
        head, size = content[:head_size], len(content)
    else:
        with path.open("rb") as stream:
            head = stream.read(head_size)
        size = path.stat().st_size
    shape = _shape(head, dimensions)
    if shape is None:
        raise damaged(path, f"it is not an IDX file of bytes with {dimensions} dimensions")
    expected = head_size + math.prod(shape)
    if size != expected:
        raise damaged(
            path,
            f"it has {format_count(size)} bytes, but {format_count(expected)} according to its header",
        )
    if compressed:
        flat = np.frombuffer(bytearray(content), dtype=np.uint8, offset=head_size)
        return flat.reshape(shape)
    return np.memmap(path, dtype=np.uint8, mode="c", offset=head_size, shape=shape)


def _shape(head: bytes, dimensions: int) -> tuple[int, ...] | None:
    """The shape in a header; None if it is not the header of such a file."""
    if len(head) < 4 + 4 * dimensions or head[:4] != bytes([0, 0, _UNSIGNED_BYTE, dimensions]):
        return None
    return tuple(int(length) for length in np.frombuffer(head, dtype=">u4", offset=4))
