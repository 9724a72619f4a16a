"""Weights & Biases logs offline over simulated hours."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.listening import needs, run


def _leveldb_records(content: bytes) -> Iterator[bytes]:
    """Records of a LevelDB log (blocks of 32 KiB; checksum, length, type), behind W&B's header of 7 bytes."""
    offset, parts = 7, b""
    while offset + 7 <= len(content):
        if 32_768 - offset % 32_768 < 7:
            offset += 32_768 - offset % 32_768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, offset)
        parts += content[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield parts
            parts = b""


def _wandb_history(folder: Path) -> list[dict[str, Any]]:
    """The rows of the offline runs: LevelDB logs of W&B's own protocol buffers."""
    from wandb.proto import wandb_internal_pb2 as pb

    rows = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in _leveldb_records(file.read_bytes()):
            record = pb.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                rows.append(
                    {
                        item.key or ".".join(item.nested_key): json.loads(item.value_json)
                        for item in record.history.item
                    }
                )
    return rows


@needs("wandb")
def test_wandb_logs_offline_over_simulated_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    metrics = run(tmp_path, {"name": "wandb", "mode": "offline"}).metrics
    rows = _wandb_history(tmp_path / "run" / "tracking")
    assert [row["accuracy"] for row in rows] == metrics["accuracy"].tolist()
    assert [row["simulated_hours"] for row in rows] == (metrics["time_s"] / 3600).tolist()
    assert [row["version"] for row in rows] == metrics["version"].tolist()
