"""TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedsim.files.checksums import text_sha256
from fedsim.parts.parameters import Parameters
from fedsim.tracking.base import Moment, TrackedRun, Tracker

_DIGITS = 8


class Tensorboard(Tracker):
    """Event files for TensorBoard, live: ``tensorboard --logdir runs``.

    The step is the server version, the *relative* axis is simulated time, and the HPARAMS page lists every value of the
    scenario.
    """

    name = "tensorboard"
    package = extra = "tensorboard"

    class Params(Parameters):
        folder: Path | None = None
        """Folder for the event files of many runs, one folder each; ``tracking`` in the run folder by default."""

    def __init__(self, params: Params, run: TrackedRun) -> None:
        super().__init__(params, run)
        from torch.utils.tensorboard.summary import hparams

        folder = run.folder if params.folder is None else params.folder / run.run_folder.name
        # A resumed or repeated run logs every evaluation again.
        suffix = f".fedsim-{text_sha256(str(run.run_folder.resolve()))[:_DIGITS]}"
        for earlier in folder.glob(f"events.out.tfevents.*{suffix}"):
            earlier.unlink()
        plain = {
            path: value if isinstance(value, int | float) else str(value)
            for path, value in run.parameters.items()
        }
        _, started, _ = hparams(plain, {})  # type: ignore[no-untyped-call]
        self._file = new_event_file(folder, suffix)
        append(self._file, [{"summary": started}])

    def log(self, metrics: Mapping[str, float], moment: Moment) -> None:
        at = moment.version, moment.time_s
        append(self._file, (scalar(name, value, *at) for name, value in metrics.items()))


def new_event_file(folder: Path, suffix: str = "") -> Path:
    """Make an event file without events in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{time.time():.6f}{suffix}"
    append(path, [{"wall_time": time.time(), "file_version": "brain.Event:2"}])
    return path


def scalar(name: str, value: float, version: int, time_s: float) -> dict[str, Any]:
    """The event of a value at a server version and a simulated time."""
    summary = {"value": [{"tag": name, "simple_value": value}]}
    return {"wall_time": time_s, "step": version, "summary": summary}


def append(path: Path, events: Iterable[Mapping[str, Any]]) -> None:
    """Append events in this thread: that of ``SummaryWriter`` prints a traceback if the disk is full."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    with open(path, "ab") as file:
        records = RecordWriter(file)
        for event in events:
            records.write(Event(**event).SerializeToString())
