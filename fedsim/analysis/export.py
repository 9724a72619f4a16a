"""Runs for other tools: trace viewers, spreadsheets, TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from fedsim.analysis.perfetto import write_perfetto
from fedsim.errors import UserError, refused
from fedsim.files.durable import replacing, replacing_folder, require_new
from fedsim.runs import Run
from fedsim.runs.tables import csv_text
from fedsim.tracking.tensorboard import Tensorboard, append, new_event_file, scalar


def export(run: Run, name: str, path: Path | None = None) -> Path:
    """Write a run in another format.

    Args:
        run: the run. If it is in progress or was killed, the rows that reached the disk are written.
        name: one of :data:`FORMATS`.
        path: file or folder; the default one in the run folder if None.
    """
    if name not in FORMATS:
        raise UserError(f"there is no format '{name}'", hint=f"formats: {', '.join(FORMATS)}")
    default, write = FORMATS[name]
    target = path if path is not None else run.path / default
    or_removed = "" if path is not None else "remove it, or "  # It may be a file of the run.
    require_new(target, f"{or_removed}choose another path with -o")
    # Whole or not at all.
    aside = replacing if name == "perfetto" else replacing_folder
    with refused("cannot be written", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with aside(target) as temporary:
            write(run, temporary)
    return target


def write_csv(run: Run, path: Path) -> None:
    """Write every table that the run has into a folder.

    Absent values are empty. Lists (``contributor_ids``) are numbers with spaces between, ``attributes`` is JSON.
    """
    names = ["dispatches", "aggregations", "metrics", "edges", "online", "presence", "pauses"]
    names += ["partition", "messages", *(["clients"] if run.has_clients else [])]
    names += ["edge_dispatches", "edge_aggregations"] if run.has_edges else []
    for name in names:
        if (table := getattr(run, name)) is not None:
            (path / f"{name}.csv").write_text(csv_text(_plain(table)), encoding="utf-8")


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    table = table.copy(deep=False)
    for name in ("contributor_ids", "multiplicities"):
        if name in table:
            table[name] = [
                None if values is None else " ".join(map(str, values)) for values in table[name]
            ]
    if "attributes" in table:
        table["attributes"] = [json.dumps(values) for values in table["attributes"]]
    return table


def write_tensorboard(run: Run, path: Path) -> None:
    """Write the metrics of a run, and the contributors and staleness of its server updates, to a folder.

    Steps are server versions; the wall time of an event is simulated time, so that TensorBoard's *relative* axis shows
    it.
    """
    Tensorboard.require_installed()
    append(new_event_file(path), _scalars(run))


def _scalars(run: Run) -> Iterator[dict[str, Any]]:
    metrics = run.metrics.melt(["time_s", "version", "round"]).dropna(subset="value")
    for row in metrics.to_dict("records"):
        yield scalar(row["variable"], row["value"], row["version"], row["time_s"])
    for row in run.aggregations.to_dict("records"):
        at = row["version"], row["time_s"]
        yield scalar("server/contributors", row["contributors"], *at)
        if row["contributors"]:
            yield scalar("server/staleness_mean", row["staleness_mean"], *at)


FORMATS = {
    "perfetto": ("timeline.json", write_perfetto),
    "csv": ("csv", write_csv),
    "tensorboard": ("tensorboard", write_tensorboard),
}
"""By name of the format, the default file or folder, and the function that writes a run."""
