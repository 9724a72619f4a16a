"""One run of a sweep as a task for a process."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path

from fedsim.errors import UserError
from fedsim.parts.component import users_line
from fedsim.processes.limits import by_limit
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.records import RUN
from fedsim.scenario.loading import LoadedScenario, load_source
from fedsim.scenario.source import Source

ERRORS = "errors"
"""Folder in the sweep's folder with the tracebacks of internal errors."""
_REPORT_S = 0.2


@dataclass(frozen=True)
class Task:
    """A run for a process to perform.

    Attributes:
        number: position among the tasks that are performed together.
        folder: folder of the run, whose name is that of the run.
        source: resolved scenario, with every default written out and the locations of the user's values.
        timing_only: simulate time only.
    """

    number: int
    folder: Path
    source: Source
    timing_only: bool = False

    @classmethod
    def of(
        cls, number: int, folder: Path, loaded: LoadedScenario, *, timing_only: bool = False
    ) -> Task:
        """The run of a scenario."""
        source = replace(loaded.source, data=loaded.resolved())
        return cls(number, folder.resolve(), source, timing_only)


@dataclass(frozen=True)
class Result:
    """Result of a task.

    Attributes:
        task: the run.
        error: why it failed; None after a success.
        users: whether the user's input caused the error.
        warnings: about the scenario; none for a run that was resumed.
    """

    task: Task
    error: str | None = None
    users: bool = False
    warnings: tuple[str, ...] = ()


Results = Generator[Result | None, None, None]
"""Results of tasks as they end; None when time has passed without one."""


class Performer:
    """Performs tasks in one process; the runs share what they load.

    Args:
        threads: worker threads of local training in each run; those of the scenario if None.
        folder: folder through which processes share what they load; None for one process.
    """

    def __init__(self, threads: int | None, folder: Path | None = None) -> None:
        # Imported late, because it loads torch, which the process that hands out tasks does not need.
        from fedsim.composition.shared import Shared

        self._shared = Shared(folder)
        self._threads = threads

    def perform(self, task: Task, report: Callable[[float], None] | None = None) -> Result:
        """Run or resume the run of a task, unless it is complete; the result holds any error.

        Args:
            task: the run.
            report: called several times a second with the progress, from 0 to 1.
        """
        warnings: list[str] = []
        try:
            self._perform(task, report, warnings)
        except UserError as error:
            result = Result(task, str(error), True, tuple(warnings))
        except Exception as error:
            path = task.folder.parent / ERRORS / f"{task.folder.name}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(traceback.format_exc(), encoding="utf-8")
            line = users_line(error)
            limited = by_limit(error, is_users=line is not None)
            text = f"{line}: " if line else ""
            text += str(limited or f"{type(error).__name__}: {error}")
            is_users = line is not None or limited is not None
            result = Result(task, text, is_users, tuple(warnings))
        else:
            return Result(task, warnings=tuple(warnings))
        # The traceback kept the run alive; its tensors are freed now rather than by a later collection.
        gc.collect()
        return result

    def _perform(
        self, task: Task, report: Callable[[float], None] | None, warnings: list[str]
    ) -> None:
        from fedsim.analysis.run import Run
        from fedsim.composition.resuming import changed_files
        from fedsim.composition.run import Progress, execute, resume

        reported_at = 0.0

        def on_progress(progress: Progress) -> None:
            nonlocal reported_at
            now = time.monotonic()
            if report is not None and now - reported_at >= _REPORT_S:
                reported_at = now
                report(progress.share)

        folder = RunFolder(task.folder)
        info = folder.read_info() if folder.has_begun else {}
        is_open = info.get("status") != Status.COMPLETE
        # A run that is not complete begins again if a file of code or data has changed since.
        if not info or (is_open and changed_files(folder, info)):
            # Resolved paths are absolute; only classes from Python refer to the sweep's folder.
            loaded = load_source(task.source, folder.path.parent)
            execute(
                loaded,
                folder.path,
                overwrite=bool(info),
                timing_only=task.timing_only,
                shared=self._shared,
                threads=self._threads,
                on_progress=on_progress,
                on_warning=lambda warning: warnings.append(str(warning)),
            )
        elif is_open:
            resume(folder.path, shared=self._shared, threads=self._threads, on_progress=on_progress)
        elif not folder.report.exists():
            Run(folder).report()


def is_done(folder: Path) -> bool:
    """Whether a run is complete and has its report."""
    run = RunFolder(folder)
    return (
        RUN.is_in(folder) and run.read_info()["status"] == Status.COMPLETE and run.report.exists()
    )
