"""What a run needs besides its planes: models of earlier versions, trackers, a stopwatch, rare garbage collection."""

from __future__ import annotations

import contextlib
import gc
import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedsim.errors import UserError
from fedsim.network.base import Network
from fedsim.network.shared import SharedNetwork
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import CheckpointModels
from fedsim.tracking.base import Moment, TrackedRun, Tracker
from fedsim.units import NEVER, NS_PER_S
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


def summary_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of ``run.json``, for trackers."""
    return {key: value for key, value in info.items() if isinstance(value, int | float | str)}


@contextlib.contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely during a run, and once at its end.

    Columns and events form no cycles, so frequent collections would find nothing. The parts of a run do refer to each
    other, and the collector does not know the size of their tensors: without a collection at the end, dozens of runs
    could accumulate in one process. Objects that existed before the run are excluded, so this collection is cheap.
    """
    threshold = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
    try:
        yield
    finally:
        gc.collect()
        gc.set_threshold(*threshold)
        gc.unfreeze()


class Stopwatch:
    """Total wall time of its ``with`` blocks, up to now if one of them is running."""

    def __init__(self) -> None:
        self._ended_s = 0.0
        self._began: float | None = None

    @property
    def seconds(self) -> float:
        """Wall seconds so far."""
        running_s = 0.0 if self._began is None else time.perf_counter() - self._began
        return self._ended_s + running_s

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._ended_s, self._began = self.seconds, None


class TimedPlane:
    """The learner, with a stopwatch for its wall time."""

    def __init__(self, learner: Learner, stopwatch: Stopwatch) -> None:
        self._learner = learner
        self._stopwatch = stopwatch
        self.was_asked = False
        self.hold = learner.hold
        self.drop = learner.drop

    def submit(self, instruction: Any) -> None:
        """Pass on an instruction."""
        with self._stopwatch:
            self._learner.submit(instruction)

    def evaluate(self, instruction: Evaluate) -> Mapping[str, float]:
        """Pass on an evaluation."""
        with self._stopwatch:
            return self._learner.evaluate(instruction)

    def training_losses(self, dispatch_ids: Any) -> Any:
        """Pass on a request for losses, and note that the timeline depends on learned values."""
        self.was_asked = True
        with self._stopwatch:
            return self._learner.training_losses(dispatch_ids)

    def client_accuracies(self, version: int) -> Any:
        """Pass on a request for accuracies, and note that the timeline depends on learned values."""
        self.was_asked = True
        with self._stopwatch:
            return self._learner.client_accuracies(version)


def flows(network: Network) -> dict[str, Any]:
    """The other traffic of a shared network, for ``run.json``."""
    if not isinstance(network, SharedNetwork) or not network.flows:
        return {}
    return {
        "flows": [
            {
                "source": flow.source,
                "target": flow.target,
                "size_bytes": flow.size_bytes,
                "start_s": flow.start_ns / NS_PER_S,
                "arrived_s": None if end_ns >= NEVER else end_ns / NS_PER_S,
            }
            for flow, end_ns in zip(network.flows, network.flow_ends_ns, strict=True)
        ]
    }
