"""A run as TensorBoard event files.

Steps are server versions; the wall time of an event is simulated time, so that TensorBoard's *relative* axis shows it.
"""

from __future__ import annotations

from pathlib import Path

from fedsim.runs import Run
from fedsim.tracking.events import FILE_NAME, FILE_VERSION, event, record


def write_tensorboard(run: Run, path: Path) -> None:
    """Write the metrics of a run, and the contributors and staleness of its server updates.

    Args:
        run: the run.
        path: the folder; give its parent to ``tensorboard --logdir`` to see several runs.
    """
    path.mkdir(parents=True)
    events = [event(0.0, file_version=FILE_VERSION)]
    metrics = run.metrics
    for row in metrics.to_dict("records"):
        values = {
            str(name): float(row[name]) for name in metrics.columns[3:] if row[name] == row[name]
        }
        events.append(event(float(row["time_s"]), step=int(row["version"]), values=values))
    for row in run.aggregations.to_dict("records"):
        values = {"server/contributors": float(row["contributors"])}
        if row["contributors"]:
            values["server/staleness_mean"] = float(row["staleness_mean"])
        events.append(event(float(row["time_s"]), step=int(row["version"]), values=values))
    (path / FILE_NAME).write_bytes(b"".join(map(record, events)))
