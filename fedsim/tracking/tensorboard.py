"""TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        folder = run.folder if params.folder is None else params.folder / run.run_folder.name
        # A resumed or repeated run logs every evaluation again.
        suffix = f".fedsim-{text_sha256(str(run.run_folder.resolve()))[:_DIGITS]}"
        for earlier in folder.glob(f"events.out.tfevents.*{suffix}"):
            earlier.unlink()
        self._writer = SummaryWriter(str(folder), filename_suffix=suffix)
        plain = {
            path: value if isinstance(value, int | float) else str(value)
            for path, value in run.parameters.items()
        }
        _, started, _ = hparams(plain, {})  # type: ignore[no-untyped-call]
        self._writer.file_writer.add_summary(started, walltime=0.0)  # type: ignore[attr-defined]

    def log(self, metrics: Mapping[str, float], moment: Moment) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, moment.version, walltime=moment.time_s)
        self._writer.flush()

    def finish(self, status: str, summary: Mapping[str, object]) -> None:
        self._writer.close()
