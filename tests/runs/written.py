"""A run folder that was started, and rows to write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.runs import RunFolder, RunWriter
from fedsim.runs.schema import DISPATCHES


def columns_of(rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The columns of rows that are written as they are."""
    columns = map(np.array, zip(*rows, strict=True))
    return dict(zip(DISPATCHES.schema.names, columns, strict=True))


def started(path: Path, clients: int = 6) -> tuple[RunFolder, RunWriter]:
    folder = RunFolder(path)
    folder.path.mkdir()
    folder.begin("name: tiny\nseed: 3\n", {"versions": {"fedsim-des": "0.0.0"}})
    writer = RunWriter(folder, clients=clients, columns=columns_of)
    return folder, writer
