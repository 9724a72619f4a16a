"""Outputs of a run besides its tables: models of earlier versions, and metrics sent to trackers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedsim.errors import UserError
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import CheckpointModels
from fedsim.tracking.base import Moment, TrackedRun, Tracker
from fedsim.vocabulary.timeline import Aggregate, Evaluate

if TYPE_CHECKING:
    from fedsim.learning.learner import Learner
    from fedsim.runs.folder import RunFolder

_LOGGER = logging.getLogger("fedsim")


class ModelKeeper:
    """Keeps models at a fixed interval of versions or of simulated time.

    Args:
        section: the interval.
        folder: the run folder.
    """

    def __init__(self, section: CheckpointModels, folder: RunFolder) -> None:
        self._section = section
        self._folder = folder
        self._passed = 0

    def on_version(self, instruction: Aggregate, learner: Learner | None) -> None:
        """Keep the model if it is due; a resumed run has kept those before its checkpoint."""
        versions = self._section.versions
        if versions is not None:
            passed = instruction.version // versions
        else:
            passed = int(instruction.time_s / self._section.interval_s)
        due, self._passed = passed > self._passed, passed
        if due and learner is not None:
            from fedsim.runs.checkpoint import save_model

            self._folder.models.mkdir(exist_ok=True)
            path = self._folder.models / f"version-{instruction.version:08d}.safetensors"
            save_model(path, learner.named_model(), {})


def require_trackers(loaded: LoadedScenario) -> None:
    """Check that the clients of a scenario's trackers are installed.

    Raises:
        UserError: one of them is not installed.
    """
    for number, part in enumerate(loaded.scenario.logging):
        try:
            part.type.require_installed()
        except UserError as error:
            raise UserError(error.message, where=f"logging.{number}", hint=error.hint) from error


class Trackers:
    """The trackers of a run; one that fails is reported and left out from then on.

    Args:
        loaded: the scenario.
        folder: the run folder.
        resumed: whether the run continues after an interruption.

    Raises:
        UserError: a tracker cannot be started.
    """

    def __init__(self, loaded: LoadedScenario, folder: RunFolder, *, resumed: bool) -> None:
        self._trackers: list[Tracker] = []
        self._evaluations = 0
        scenario = loaded.scenario
        for number, part in enumerate(scenario.logging):
            run = TrackedRun(
                scenario.name,
                scenario.seed,
                folder.tracking,
                folder.path.resolve(),
                loaded.resolved(),
                resumed,
            )
            try:
                self._trackers.append(part.create(run))
            except Exception as error:
                self.finish("failed", {})
                raise UserError(
                    f"the tracker {part.name} cannot be started: {type(error).__name__}: {error}",
                    where=f"logging.{number}",
                    hint="fix the cause, or leave the tracker out",
                ) from error

    def log(self, instruction: Evaluate, metrics: Mapping[str, float]) -> None:
        """Log one evaluation."""
        moment = Moment(
            self._evaluations, instruction.time_s, instruction.version, instruction.round
        )
        self._evaluations += 1
        for tracker in list(self._trackers):
            try:
                tracker.log(dict(metrics), moment)
            except Exception as error:
                self._trackers.remove(tracker)
                _warn(tracker, error)

    def finish(self, status: str, summary: Mapping[str, Any]) -> None:
        """End all trackers."""
        for tracker in self._trackers:
            try:
                tracker.finish(status, summary)
            except Exception as error:
                _warn(tracker, error)
        self._trackers.clear()


def _warn(tracker: Tracker, error: Exception) -> None:
    _LOGGER.warning(
        "the tracker %s failed and logs nothing more; the run continues: %s: %s",
        tracker.name or type(tracker).__name__,
        type(error).__name__,
        error,
    )
