"""The runs from which an answer follows: each in a folder named by its scenario, so that none is run twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.analysis.run import load_run
from fedsim.errors import UserError, details, raise_all
from fedsim.files.checksums import text_sha256
from fedsim.runs.progress import left_text
from fedsim.runs.run import Run
from fedsim.scenario.comparing import text
from fedsim.scenario.loading import LoadedScenario
from fedsim.sweeps.execution import perform, write_own_code
from fedsim.sweeps.folder import changed_since, digest_of
from fedsim.sweeps.local import Shares
from fedsim.sweeps.task import Result, Task, is_done

_DIGITS = 12


@dataclass(frozen=True)
class Progress:
    """Progress of an answer: the share that is done, and words."""

    share: float
    words: str

    def text(self, left_s: float | None = None) -> str:
        """The progress in words; ``left_s`` is the estimated time left, in seconds."""
        return (self.words + left_text(left_s)).removeprefix(", ")


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
        self.complete: dict[str, str] = {}
        """SHA-256 of the scenario file of each complete run so far, by its folder, for the record."""

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
        names = [text_sha256(text(loaded.resolved()))[:_DIGITS] for loaded in scenarios]
        by_name = dict(zip(names, scenarios, strict=True))
        missing = [name for name in by_name if not is_done(self._folder / name)]
        known = {name: by_name[name] for name in by_name.keys() - self._made - {*missing}}
        raise_all(changed_since(self._folder, known.items()))
        self._made.update(names)
        errors: dict[str, str] = {}
        if missing:
            write_own_code(self._folder, scenarios)
            shares = Shares(len(missing))
            tasks = [
                Task.of(n, self._folder / name, by_name[name], timing_only=self._timing_only)
                for n, name in enumerate(missing)
            ]

            def add(result: Result | None) -> None:
                if result is not None and result.error is not None:
                    errors[result.task.folder.name] = result.error
                on_progress(shares.in_progress() / len(tasks))

            perform(self._folder, tasks, shares, add, **self._settings)
        if len(errors) == len(by_name):
            first = details(errors[names[0]])
            raise UserError(f"none of the runs succeeded; the first failed with:\n{first}")
        done: list[Run | str] = []
        sections = dict[str, Any]()
        for name in names:
            done.append(run := errors.get(name) or load_run(self._folder / name))
            if isinstance(run, Run) and digest_of(run, sections)[:_DIGITS] != name:
                hint = "remove this folder, and repeat the command"
                raise UserError("is the run of another scenario", where=run.path, hint=hint)
            if isinstance(run, Run):
                checksum = run.info["files"][run.folder.scenario.name]
                self.complete[f"{self._folder.name}/{name}"] = checksum
        return done
