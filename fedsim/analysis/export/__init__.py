"""Runs for other tools: trace viewers, spreadsheets, TensorBoard."""

from __future__ import annotations

from pathlib import Path

from fedsim.analysis.export.perfetto import write_perfetto
from fedsim.analysis.export.tables import write_csv
from fedsim.analysis.export.tensorboard import write_tensorboard
from fedsim.errors import UserError, writing
from fedsim.runs import Run

__all__ = ["FORMATS", "export"]


FORMATS = {
    "perfetto": ("timeline.json", write_perfetto),
    "csv": ("csv", write_csv),
    "tensorboard": ("tensorboard", write_tensorboard),
}
"""By name of the format, the default file or folder, and the function that writes a run."""


def export(run: Run, name: str, path: Path | None = None) -> Path:
    """Write a run in another format.

    Args:
        run: the run. If it is in progress or was killed, the rows that reached the disk are written.
        name: one of :data:`FORMATS`.
        path: file or folder; the default one in the run folder if None.

    Returns:
        The path of the file or folder.

    Raises:
        UserError: there is no such format, or the path exists.
    """
    if name not in FORMATS:
        raise UserError(f"there is no format '{name}'", hint=f"formats: {', '.join(FORMATS)}")
    default, write = FORMATS[name]
    target = path if path is not None else run.path / default
    if target.exists():
        raise UserError(
            "already exists",
            where=str(target),
            hint="remove it, or choose another path with -o",
        )
    with writing(target):
        write(run, target)
    return target
