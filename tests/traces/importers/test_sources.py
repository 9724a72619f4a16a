"""Files, folders and archives that importers read."""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.traces.helpers import refused


def test_damaged_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"PK not really")
    assert "zip archive" in refused("pensieve", path)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"0 1\n1 2\n" * 100)[:-12])
    assert "whole gzip" in refused("pensieve", path)
