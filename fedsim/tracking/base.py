"""The interface of a tracker."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedsim.errors import UserError
from fedsim.parts.component import Component
from fedsim.scenario.comparing import flattened

SECONDS_PER_HOUR = 3600.0
_NOT_PARAMETERS = ("name", "logging", "checkpoint_models", "ignore", "tags", "sweep")


@dataclass(frozen=True)
class TrackedRun:
    """The run that a tracker follows.

    Attributes:
        name: the scenario's name.
        seed: the scenario's seed.
        folder: a folder of the run for the tracker's own files; it may not exist yet.
        run_folder: the run folder.
        scenario: the resolved scenario as plain data.
        resumed: whether the run was resumed after an interruption; all evaluations are then logged again from the
            first.
    """

    name: str
    seed: int
    folder: Path
    run_folder: Path
    scenario: Mapping[str, Any]
    resumed: bool

    @property
    def parameters(self) -> dict[str, Any]:
        """Hyper-parameters: every value of the scenario by its dotted path, without those that are null."""
        settings = {
            key: value for key, value in self.scenario.items() if key not in _NOT_PARAMETERS
        }
        return {path: value for path, value in flattened(settings) if value is not None}

    def keep(self, file: str, text: str) -> str:
        """The text of a file in :attr:`folder`; it is written if the run is new, or has no such file."""
        path = self.folder / file
        if not self.resumed or not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return path.read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Moment:
    """The point of the run at which the model was measured.

    Attributes:
        index: number of the evaluation, from 0.
        time_s: simulated seconds.
        version: server version.
        round: round.
    """

    index: int
    time_s: float
    version: int
    round: int

    @property
    def hours(self) -> float:
        """Simulated hours."""
        return self.time_s / SECONDS_PER_HOUR


class Tracker(Component, ABC):
    """Sends the metrics of a run to a tracking tool while the run is in progress.

    An error in a tracker does not end the run: it is reported, and the tracker is not called again.

    Attributes:
        package: module that must be installed.
        extra: the extra of fedsim that installs it.
    """

    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""

    def __init__(self, params: Any, run: TrackedRun) -> None:
        self.params = params
        self.run = run

    @classmethod
    def require_installed(cls) -> None:
        """Check that :attr:`package` is installed, without importing it."""
        if cls.package and importlib.util.find_spec(cls.package) is None:
            raise UserError(
                f"the tracker {cls.name} needs the package {cls.package}, which is not installed",
                hint=f'pip install "fedsim-des[{cls.extra}]"',
            )

    @abstractmethod
    def log(self, metrics: Mapping[str, float], moment: Moment) -> None:
        """Log one evaluation: values by name."""

    def finish(self, status: str, summary: Mapping[str, Any]) -> None:
        """End: ``status`` is ``complete``, ``failed`` or ``interrupted``; ``summary`` is that of ``run.json``."""
