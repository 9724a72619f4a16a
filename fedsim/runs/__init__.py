"""The run folder: the files of a run, written while it runs, and the :class:`Run` that reads them."""

from fedsim.runs.checkpoint import Checkpoints
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.run import Run
from fedsim.runs.writer import RunWriter

__all__ = [
    "Checkpoints",
    "Run",
    "RunFolder",
    "RunWriter",
    "Status",
]
