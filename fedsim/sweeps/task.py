"""One run of a sweep as a task for some process."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.components import users_traceback
from fedsim.errors import UserError
from fedsim.runs.folder import RunFolder, Status

ERRORS = "errors"
"""Folder of what internal errors left behind, in the sweep's folder."""
_TELL_S = 0.2


@dataclass(frozen=True)
class Task:
    """What a process is given to do.

    Attributes:
        number: place of the run in the sweep.
        name: of the run.
        folder: of the run.
        scenario: resolved, with every default written out.
    """

    number: int
    name: str
    folder: str
    scenario: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """How a task ended.

    Attributes:
        task: the task.
        error: what went wrong; None where nothing did.
        users: whether the mistake is the user's, not fedsim's.
    """

    task: Task
    error: str | None = None
    users: bool = False


class Performer:
    """Performs tasks in one process; the runs share what they load.

    Args:
        threads: worker threads of local training in each run; the scenario's where None.
    """

    def __init__(self, threads: int | None) -> None:
        # Late, because this takes seconds and loads torch: not for the process that only hands out tasks.
        from fedsim.composition.shared import Shared

        self._shared = Shared()
        self._threads = threads

    def perform(self, task: Task, tell: Callable[[float], None] | None = None) -> Result:
        """Run, resume or leave alone the run of a task; what goes wrong is in the result.

        Args:
            task: the task.
            tell: called now and then with the share that is done.
        """
        try:
            self._perform(task, tell)
        except UserError as error:
            result = Result(task, str(error), users=True)
        except Exception as error:
            _keep(task, traceback.format_exc())
            users = users_traceback(error)
            place = "" if users is None else f"{users.tb_frame.f_code.co_filename}: "
            text = f"{place}{type(error).__name__}: {error}"
            result = Result(task, text, users=users is not None)
        else:
            return Result(task)
        # The traceback held the run until now; its tensors are not to stay until a collector happens to come by.
        gc.collect()
        return result

    def _perform(self, task: Task, tell: Callable[[float], None] | None) -> None:
        from fedsim.analysis.run import Run
        from fedsim.catalog import CATALOG
        from fedsim.composition.execution import Progress, execute, resume
        from fedsim.scenario.loading import load_scenario_dict

        told_at = 0.0

        def on_progress(progress: Progress) -> None:
            nonlocal told_at
            now = time.monotonic()
            if tell is not None and now - told_at >= _TELL_S:
                told_at = now
                tell(progress.share)

        folder = RunFolder(task.folder)
        if not folder.has_begun:
            # Resolved paths are absolute, so that no folder is needed to read them.
            loaded = load_scenario_dict(task.scenario, Path("/"), CATALOG)
            execute(
                loaded,
                folder.path,
                shared=self._shared,
                threads=self._threads,
                on_progress=on_progress,
            )
        elif folder.read_info().get("status") != Status.COMPLETE:
            resume(folder.path, shared=self._shared, threads=self._threads, on_progress=on_progress)
        elif not folder.report.exists():
            Run(folder).report()


def is_done(folder: Path) -> bool:
    """Whether nothing is left to do for a run."""
    run = RunFolder(folder)
    return (
        run.info.exists()
        and run.read_info().get("status") == Status.COMPLETE
        and run.report.exists()
    )


def _keep(task: Task, text: str) -> None:
    path = Path(task.folder).parent / ERRORS / f"{task.name}.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
