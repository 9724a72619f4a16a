"""The runs from which an answer follows: each in a folder named by its scenario, so that none is run twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsim.analysis.run import load_run
from fedsim.errors import UserError, raise_all
from fedsim.files.checksums import text_sha256
from fedsim.processes.stopping import Grace
from fedsim.runs.run import Run
from fedsim.scenario.comparing import text
from fedsim.scenario.loading import LoadedScenario
from fedsim.sweeps.execution import perform, write_own_code
from fedsim.sweeps.folder import changed_since
from fedsim.sweeps.local import Shares
from fedsim.sweeps.task import Result, Task, is_done

_DIGITS = 12


@dataclass(frozen=True)
class Progress:
    """Progress of an answer: the share that is done, and words."""

    share: float
    words: str

    def text(self, left_s: float | None = None) -> str:
        """The progress in words."""
        return self.words


def default_folder(loaded: LoadedScenario, answer: str) -> Path:
    """The default folder of an answer: ``runs/<name>-decide`` or ``runs/<name>-forecast`` in the working directory."""
    return Path("runs") / f"{loaded.scenario.name}-{answer}"


class Runs:
    """Performs runs in a folder; those that are complete are read.

    Args:
        folder: the folder of the run folders.
        timing_only: simulate time only.
        settings: jobs, engine and the engine's settings, as for :func:`fedsim.sweeps.sweep`.
    """

    def __init__(self, folder: Path, *, timing_only: bool = False, **settings: Any) -> None:
        self._folder, self._timing_only, self._settings = folder, timing_only, settings
        self._made: set[str] = set()

    def perform(
        self,
        scenarios: Sequence[LoadedScenario],
        on_progress: Callable[[float], None] = lambda _: None,
    ) -> list[Run | str]:
        """The runs of these scenarios in their order, each complete; or the error of one that failed.

        Args:
            scenarios: without a sweep; equal ones are run once.
            on_progress: called several times a second with the share that is done.

        Raises:
            UserError: all of them failed; it is the error of the first. Or a file has changed since complete runs of
                an earlier call were made from it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        resolved = [loaded.resolved() for loaded in scenarios]
        names = [text_sha256(text(data))[:_DIGITS] for data in resolved]
        first = dict(zip(reversed(names), reversed(range(len(names))), strict=True))
        missing = [name for name in dict.fromkeys(names) if not is_done(self._folder / name)]
        known = {name: scenarios[first[name]] for name in first.keys() - self._made - {*missing}}
        raise_all(changed_since(self._folder, known.items()))
        self._made.update(names)
        tasks = [
            Task(
                number,
                name,
                str(self._folder.resolve() / name),
                replace(scenarios[first[name]].source, data=resolved[first[name]]),
                self._timing_only,
            )
            for number, name in enumerate(missing)
        ]
        errors: dict[str, str] = {}
        if tasks:
            write_own_code(self._folder, scenarios)
            shares, period = Shares(len(tasks)), Grace(raises=False)

            def add(result: Result | None) -> None:
                if result is not None:
                    shares.values[result.task.number] = 1.0
                    if result.error is not None:
                        errors[result.task.name] = result.error
                on_progress(shares.in_progress() / len(tasks))

            perform(self._folder, tasks, shares, add, period, **self._settings)
            period.stop_if_requested()
        if len(errors) == len(set(names)):
            raise UserError(
                f"none of the runs succeeded; the first failed with:\n{errors[names[0]]}"
            )
        return [errors[name] if name in errors else load_run(self._folder / name) for name in names]
