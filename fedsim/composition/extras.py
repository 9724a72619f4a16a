"""What a run needs besides its planes: models of earlier versions, trackers, a stopwatch, rare garbage collection."""

from __future__ import annotations

import contextlib
import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping
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


def model_keeper(
    section: CheckpointModels, folder: RunFolder
) -> Callable[[Aggregate, Learner | None], None]:
    """A function, called after every aggregation, that keeps the models of ``section`` in the run folder."""
    passed = 0

    def keep(instruction: Aggregate, learner: Learner | None) -> None:
        nonlocal passed
        before = passed
        if section.versions is not None:
            passed = instruction.version // section.versions
        else:
            passed = int(instruction.time_s / section.interval_s)
        # A resumed run has kept those before its checkpoint, for which there is no learner.
        if passed > before and learner is not None:
            from fedsim.runs.checkpoint import save_model

            folder.models.mkdir(exist_ok=True)
            path = folder.models / f"version-{instruction.version:08d}.safetensors"
            save_model(path, learner.named_model(), {})

    return keep


class Trackers:
    """The trackers of a run; one that fails is reported and left out from then on."""

    def __init__(self) -> None:
        self._trackers: list[Tracker] = []
        self._evaluations = 0

    def start(self, loaded: LoadedScenario, folder: RunFolder, *, resumed: bool) -> None:
        """Start those of the scenario."""
        name, seed, path = loaded.scenario.name, loaded.scenario.seed, folder.path.resolve()
        for number, part in enumerate(loaded.scenario.logging):
            run = TrackedRun(name, seed, folder.tracking, path, loaded.resolved(), resumed)
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
        number, self._evaluations = self._evaluations, self._evaluations + 1
        moment = Moment(number, instruction.time_s, instruction.version, instruction.round)
        self._each(lambda tracker: tracker.log(dict(metrics), moment))

    def finish(self, status: str, info: Mapping[str, Any]) -> None:
        """End all trackers with the status of the run and the numbers of its ``run.json``."""
        numbers = {
            key: value for key, value in info.items() if isinstance(value, int | float | str)
        }
        self._each(lambda tracker: tracker.finish(status, numbers))
        self._trackers.clear()

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for tracker in list(self._trackers):
            try:
                call(tracker)
            except Exception as error:
                self._trackers.remove(tracker)
                logging.getLogger("fedsim").warning(
                    "the tracker %s failed and logs nothing more; the run continues: %s: %s",
                    tracker.name or type(tracker).__name__,
                    type(error).__name__,
                    error,
                )


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


class Stopwatch(contextlib.ContextDecorator):
    """Total wall time of its ``with`` blocks and of the functions it decorates, up to now if one of them is running."""

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
        self.hold = learner.hold
        self.drop = learner.drop
        self.start = stopwatch(learner.start)
        self.close = stopwatch(learner.close)
        self.submit = stopwatch(learner.submit)
        self.evaluate = stopwatch(learner.evaluate)
        self.training_losses = stopwatch(learner.training_losses)
        self.client_accuracies = stopwatch(learner.client_accuracies)


def flows(network: Network) -> dict[str, Any]:
    """The other traffic of a shared network, for ``run.json``."""
    if not isinstance(network, SharedNetwork) or not network.flows:
        return {}
    return {
        "flows": [
            {
                "source": flow.source,
                "target": flow.target,
                "size_bytes": flow.size,
                "start_s": flow.at,
                "arrived_s": None if end_ns >= NEVER else end_ns / NS_PER_S,
            }
            for flow, end_ns in zip(network.flows, network.flow_ends_ns, strict=True)
        ]
    }
