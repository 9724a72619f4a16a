"""Runs for other tools: trace viewers, spreadsheets, TensorBoard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedsim.analysis.export.perfetto import write_perfetto
from fedsim.analysis.export.tables import write_csv
from fedsim.analysis.export.tensorboard import write_tensorboard
from fedsim.errors import UserError
from fedsim.runs import Run

__all__ = ["FORMATS", "Format", "export"]


@dataclass(frozen=True)
class Format:
    """One way to write a run.

    Attributes:
        description: what is written, and what opens it.
        default_path: file or folder in the run folder where it goes by default.
        write: writes a run to a path that does not exist.
    """

    description: str
    default_path: str
    write: Callable[[Run, Path], None]


FORMATS = {
    "perfetto": Format(
        "one file for the Perfetto or Chrome trace viewer: one track per client",
        "timeline.json",
        write_perfetto,
    ),
    "csv": Format("a folder with one CSV file per table", "csv", write_csv),
    "tensorboard": Format(
        "a folder with event files for TensorBoard", "tensorboard", write_tensorboard
    ),
}


def export(run: Run, name: str, path: Path | None = None) -> Path:
    """Write a run in another format.

    Args:
        run: also one that is in progress or was killed: the rows that reached the disk are written.
        name: one of :data:`FORMATS`.
        path: file or folder; :attr:`Format.default_path` in the run folder if None.

    Returns:
        Where it was written.

    Raises:
        UserError: there is no such format, or the path exists.
    """
    if name not in FORMATS:
        raise UserError(f"there is no format '{name}'", hint=f"formats: {', '.join(FORMATS)}")
    target = path if path is not None else run.path / FORMATS[name].default_path
    if target.exists():
        raise UserError(
            "already exists",
            where=str(target),
            hint="remove it, or choose another path with -o",
        )
    try:
        FORMATS[name].write(run, target)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(target)) from error
    return target
