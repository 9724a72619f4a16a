"""IDX files, the format of MNIST and its kin: a big-endian header, then 8-bit values."""

from __future__ import annotations

import gzip
import lzma
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.tasks.reading.files import damaged

_UNSIGNED_BYTE = 8


def read_bytes(path: Path) -> bytes:
    """Content of a file, decompressed where its name ends in .gz or .xz.

    Raises:
        UserError: the file is cut off or not compressed as its name says.
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


def read_idx(path: Path, dimensions: int) -> npt.NDArray[Any]:
    """The uint8 array of an IDX file; memory-mapped (copy on write) where the file is not compressed.

    Args:
        path: file, plain or compressed.
        dimensions: what the file must have: 1 for labels, 3 for images.

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
    if len(head) < head_size or head[:4] != bytes([0, 0, _UNSIGNED_BYTE, dimensions]):
        raise damaged(path, f"it is no IDX file of bytes with {dimensions} dimensions")
    shape = tuple(int(length) for length in np.frombuffer(head, dtype=">u4", offset=4))
    expected = head_size + math.prod(shape)
    if size != expected:
        raise damaged(path, f"it has {size:,} bytes; its header promises {expected:,}")
    if compressed:
        flat = np.frombuffer(bytearray(content), dtype=np.uint8, offset=head_size)
        return flat.reshape(shape)
    return np.memmap(path, dtype=np.uint8, mode="c", offset=head_size, shape=shape)
