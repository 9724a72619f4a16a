"""A run folder that was started, and rows to write."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.runs import RunFolder, RunWriter
from fedsim.runs.phases import WORK_PHASES
from fedsim.runs.schema import DISPATCHES
from fedsim.vocabulary.outcomes import Outcome


def columns_of(rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The columns of rows that are written as they are; without their last columns, they are at work all the time.

    All that are dropped went offline.
    """
    written = map(np.array, zip(*rows, strict=True))
    columns = dict(zip(DISPATCHES.schema.names, written, strict=False))
    names = ("dispatched_s", "downloaded_s", "computed_s", "arrived_s")
    marks = [columns[name].astype(float) for name in names]
    for name, begin, end in zip(WORK_PHASES, marks, marks[1:], strict=False):
        spent_s = np.where(
            np.isnan(begin), 0.0, np.where(np.isnan(end), columns["ended_s"], end) - begin
        )
        columns.setdefault(f"{name}_s", spent_s)
    columns["cause"] = np.where(columns["outcome"] == Outcome.DROPPED, 0, -1)
    return columns


def started(path: Path, clients: int = 6) -> tuple[RunFolder, RunWriter]:
    folder = RunFolder(path)
    folder.path.mkdir()
    folder.begin("name: tiny\nseed: 3\n", {"versions": {"fedsim-des": "0.0.0"}})
    writer = RunWriter(folder, clients=clients, columns=columns_of)
    return folder, writer
