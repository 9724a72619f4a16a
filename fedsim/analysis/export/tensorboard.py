"""A run as TensorBoard event files.

They are written here rather than by the ``tensorboard`` package: the format is four frozen fields in a frame with
two check sums, and the package would bring a server, a web page and gRPC with it. Steps are server versions; the wall
time of an event is simulated time, so that TensorBoard's *relative* axis shows it.

Format: a file of TFRecords (length, its masked CRC-32C, data, its masked CRC-32C), each the protocol buffer ``Event``
(``wall_time`` = 1, ``step`` = 2, ``file_version`` = 3, ``summary`` = 5) of tensorflow/core/util/event.proto.
"""

from __future__ import annotations

import struct
from pathlib import Path

from fedsim.runs import Run

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


def write_tensorboard(run: Run, path: Path) -> None:
    """Write the metrics of a run, and of its server updates the contributors and staleness.

    Args:
        run: the run.
        path: the folder; give its parent to ``tensorboard --logdir`` to see several runs.
    """
    path.mkdir(parents=True)
    events = [_event(0.0, file_version="brain.Event:2")]
    metrics = run.metrics
    for row in metrics.to_dict("records"):
        values = {
            str(name): float(row[name]) for name in metrics.columns[3:] if row[name] == row[name]
        }
        events.append(_event(float(row["time_s"]), step=int(row["version"]), values=values))
    for row in run.aggregations.to_dict("records"):
        values = {"server/contributors": float(row["contributors"])}
        if row["contributors"]:
            values["server/staleness_mean"] = float(row["staleness_mean"])
        events.append(_event(float(row["time_s"]), step=int(row["version"]), values=values))
    # TensorBoard knows its files by this word in their names, and sorts them by the number.
    file = path / "events.out.tfevents.0000000000.fedsim"
    file.write_bytes(b"".join(map(record, events)))


def record(data: bytes) -> bytes:
    """A TFRecord."""
    length = struct.pack("<Q", len(data))
    return b"".join(
        (length, struct.pack("<I", _masked(length)), data, struct.pack("<I", _masked(data)))
    )


def crc32c(data: bytes) -> int:
    """The check sum CRC-32C (RFC 3720, appendix B.4)."""
    crc = _MASK
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _MASK


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _MASK


def _event(
    wall_time: float,
    *,
    step: int = 0,
    file_version: str | None = None,
    values: dict[str, float] | None = None,
) -> bytes:
    data = b"\x09" + struct.pack("<d", wall_time)
    if step:
        data += b"\x10" + _varint(step)
    if file_version is not None:
        data += b"\x1a" + _delimited(file_version.encode())
    if values:
        # Summary.value = 1, and in it tag = 1 and simple_value = 2.
        summary = b"".join(
            b"\x0a"
            + _delimited(b"\x0a" + _delimited(tag.encode()) + b"\x15" + struct.pack("<f", value))
            for tag, value in values.items()
        )
        data += b"\x2a" + _delimited(summary)
    return data


def _delimited(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)
