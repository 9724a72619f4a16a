"""The run folder: what a run leaves on disk, written as the run goes, and the :class:`Run` that reads it."""

from fedsim.runs.checkpoint import Checkpoints
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.run import Run, load_run
from fedsim.runs.writer import RunWriter

__all__ = [
    "Checkpoints",
    "Run",
    "RunFolder",
    "RunWriter",
    "Status",
    "load_run",
]
