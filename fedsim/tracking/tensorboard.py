"""TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedsim.parts.parameters import Parameters
from fedsim.tracking.base import Moment, TrackedRun, Tracker
from fedsim.tracking.events import FILE_NAME, FILE_VERSION, event, hyperparameters, record


class TensorboardParams(Parameters):
    """Parameters of the TensorBoard tracker."""

    folder: Path | None = None
    """Folder for the event files of many runs, one folder each; ``tracking`` in the run folder by default."""


class Tensorboard(Tracker):
    """Event files for TensorBoard, live: ``tensorboard --logdir runs``.

    The step is the server version, the *relative* axis is simulated time, and the HPARAMS page lists every value of the
    scenario. Nothing has to be installed to write them.
    """

    name = "tensorboard"
    extra = "tensorboard"
    Params = TensorboardParams

    def __init__(self, params: TensorboardParams, run: TrackedRun) -> None:
        super().__init__(params, run)
        folder = run.folder if params.folder is None else params.folder / run.run_folder.name
        folder.mkdir(parents=True, exist_ok=True)
        # Written anew when a run is resumed: every evaluation is logged again.
        self._file = folder / FILE_NAME
        self._file.write_bytes(
            record(event(0.0, file_version=FILE_VERSION))
            + record(event(0.0, summary=hyperparameters(run.parameters)))
        )

    def log(self, metrics: Mapping[str, float], moment: Moment) -> None:
        """Append one event, which TensorBoard sees immediately."""
        with open(self._file, "ab") as file:
            file.write(record(event(moment.time_s, step=moment.version, values=metrics)))
