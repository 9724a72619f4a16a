"""TensorBoard's event files.

They are written here rather than by the ``tensorboard`` package: the format is four frozen fields in a frame with
two checksums, and the package would bring a server, a web page and gRPC with it.

Format: a file of TFRecords (length, its masked CRC-32C, data, its masked CRC-32C), each the protocol buffer ``Event``
(``wall_time`` = 1, ``step`` = 2, ``file_version`` = 3, ``summary`` = 5) of tensorflow/core/util/event.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

FILE_NAME = "events.out.tfevents.0000000000.fedsim"
"""TensorBoard recognizes its files by the second word of their names, and sorts them by the number."""
FILE_VERSION = "brain.Event:2"

_POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli), reflected
_MASK = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE = _crc_table()


def record(data: bytes) -> bytes:
    """A TFRecord."""
    length = struct.pack("<Q", len(data))
    return b"".join(
        (length, struct.pack("<I", _masked(length)), data, struct.pack("<I", _masked(data)))
    )


def crc32c(data: bytes) -> int:
    """The checksum CRC-32C (RFC 3720, appendix B.4)."""
    crc = _MASK
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _MASK


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _MASK


def event(
    wall_time: float,
    *,
    step: int = 0,
    file_version: str | None = None,
    values: Mapping[str, float] | None = None,
    summary: bytes = b"",
) -> bytes:
    """An ``Event``: scalars ``values``, and further summary values that are encoded already."""
    data = b"\x09" + struct.pack("<d", wall_time)
    if step:
        data += b"\x10" + _varint(step)
    if file_version is not None:
        data += b"\x1a" + _delimited(file_version.encode())
    if values:
        # Summary.value = 1, and in it tag = 1 and simple_value = 2.
        summary += b"".join(
            b"\x0a"
            + _delimited(b"\x0a" + _delimited(tag.encode()) + b"\x15" + struct.pack("<f", value))
            for tag, value in values.items()
        )
    if summary:
        data += b"\x2a" + _delimited(summary)
    return data


def hyperparameters(values: Mapping[str, Any]) -> bytes:
    """A summary value that TensorBoard's HPARAMS page reads.

    ``HParamsPluginData.session_start_info.hparams`` of tensorboard/plugins/hparams/plugin_data.proto, a map from names
    to ``google.protobuf.Value``.
    """
    entries = b"".join(
        b"\x0a"
        + _delimited(b"\x0a" + _delimited(name.encode()) + b"\x12" + _delimited(_value(value)))
        for name, value in values.items()
    )
    content = b"\x1a" + _delimited(entries)
    plugin = b"\x0a" + _delimited(b"hparams") + b"\x12" + _delimited(content)
    metadata = b"\x0a" + _delimited(plugin)
    tag = b"\x0a" + _delimited(b"_hparams_/session_start_info")
    return b"\x0a" + _delimited(tag + b"\x4a" + _delimited(metadata))


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"\x20" + _varint(int(value))
    if isinstance(value, int | float):
        return b"\x11" + struct.pack("<d", value)
    return b"\x1a" + _delimited(str(value).encode())


def _delimited(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)
