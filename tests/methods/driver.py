"""Plays participation logs on the quadratic task, round by round, and keeps every iterate."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedsim.learning.learner import Learner
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.training import Training
from fedsim.tasks.kinds.quadratic import QuadraticTask
from fedsim.vocabulary.timeline import Aggregate, Contribution, Evaluate, Train
from tests.learning.problems import make_learner

FloatArray = npt.NDArray[np.float64]


class Part(NamedTuple):
    """What one client does in a round.

    Attributes:
        client: who.
        steps: local steps done; all that were asked for when None.
        times: how often it was drawn.
    """

    client: int
    steps: int | None = None
    times: int = 1


Round = Sequence[int | Part]


def quadratic(
    centers: Any, curvatures: Any = 1.0, initial: Any = 0.0, **more: Any
) -> QuadraticTask:
    """The task with these objectives."""
    return QuadraticTask(
        QuadraticTask.Params(centers=centers, curvatures=curvatures, initial=initial, **more)
    )


@dataclass
class Played:
    """What a log led to; entry k of the lists is after k server updates."""

    learner: Learner
    states: list[Mapping[str, Tensor]] = field(default_factory=list)
    metrics: list[Mapping[str, float]] = field(default_factory=list)

    @property
    def models(self) -> FloatArray:
        """The model of every version, (T + 1, d)."""
        return np.stack([state["model"].numpy() for state in self.states])

    @property
    def x(self) -> FloatArray:
        """The model of every version in one dimension, (T + 1,)."""
        return self.models[:, 0]

    def state(self, name: str) -> FloatArray:
        """A vector of the server at every version, (T + 1, d)."""
        return np.stack([state[name].numpy() for state in self.states])

    def memory(self, name: str) -> FloatArray:
        """What all clients hold in the end, (N, elements)."""
        everybody = np.arange(self.learner.station.task.clients)
        return self.learner.store[name].get(everybody).numpy()


class Player:
    """A time plane by hand: dispatches, losses and server updates, executed at once or deferred.

    Args:
        method: name of the method.
        task: what is learned.
        lr: local learning rate.
        steps: local steps of a full piece of work: one number, or one a client.
        training: further keys of the training section.
        measure: evaluate every version; iterates are then not kept, and execution is deferred.
        eager: execute at once, client by client; otherwise when the learner is flushed, clients together.
        params: parameters of the method.
    """

    def __init__(
        self,
        method: str,
        task: QuadraticTask,
        *,
        lr: float = 0.1,
        steps: int | Sequence[int] = 1,
        training: Mapping[str, Any] | None = None,
        measure: bool = False,
        eager: bool = True,
        **params: Any,
    ) -> None:
        section = Training.model_validate(
            {
                "optimizer": {"name": "sgd", "lr": lr},
                "dtype": "float64",
                "device": "cpu",
                "threads": 1,
                **(training or {}),
            }
        )
        self.steps = np.broadcast_to(np.asarray(steps, dtype=np.int64), (task.clients,)).copy()
        kind = CATALOG.parts("method")[method]
        self.measure = measure
        learner = make_learner(
            task,
            section,
            kind,
            kind.Params.model_validate(params),
            seed=1,
            local_steps=self.steps,
            eager=eager and not measure,
            on_metrics=lambda instruction, metrics: self.played.metrics.append(metrics),
        )
        self.played = Played(learner, [learner.server])
        self.version = self.round = self._dispatches = 0
        self._sequences = [0] * task.clients
        self._multiplicity: dict[int, int] = {}

    def dispatch(self, part: int | Part) -> Train:
        """Hand the newest version to a client."""
        part = part if isinstance(part, Part) else Part(part)
        assigned = int(self.steps[part.client])
        train = Train(
            self._dispatches,
            part.client,
            self._sequences[part.client],
            self.version,
            self.round,
            assigned if part.steps is None else part.steps,
            assigned,
            float(self.round),
        )
        self._sequences[part.client] += 1
        self._dispatches += 1
        self._multiplicity[train.dispatch_id] = part.times
        self.played.learner.hold(self.version)
        return train

    def lose(self, train: Train) -> None:
        """The update of this dispatch is never used."""
        self.played.learner.drop(train.version)

    def aggregate(self, trains: Iterable[Train], time_s: float | None = None) -> None:
        """The next version from these dispatches, in this order."""
        learner, trains = self.played.learner, list(trains)
        for train in sorted(trains, key=lambda item: item.dispatch_id):
            learner.submit(train)
        contributions = tuple(
            Contribution(
                train.dispatch_id,
                train.client,
                self.version - train.version,
                multiplicity=self._multiplicity[train.dispatch_id],
            )
            for train in trains
        )
        self.version += 1
        at_s = float(self.round + 1) if time_s is None else time_s
        learner.submit(Aggregate(self.version, at_s, self.round, contributions))
        self.round += 1
        if self.measure:
            learner.submit(Evaluate(self.version, at_s, self.round))
        else:
            self.played.states.append(learner.server)

    def play(self, rounds: Iterable[Round]) -> Played:
        """Synchronous rounds."""
        if self.measure:
            self.played.learner.submit(Evaluate(self.version, 0.0, self.round))
        for clients in rounds:
            self.aggregate([self.dispatch(part) for part in clients])
        self.played.learner.close()
        return self.played


def play(method: str, task: QuadraticTask, rounds: Iterable[Round], **options: Any) -> Played:
    """Play a log of synchronous rounds; see :class:`Player`."""
    return Player(method, task, **options).play(rounds)


def x_of(method: str, task: QuadraticTask, rounds: Iterable[Round], **options: Any) -> list[float]:
    """The iterates x_1, x_2, ... of a one-dimensional log."""
    values: list[float] = play(method, task, rounds, **options).x[1:].tolist()
    return values


def close(value: Any, expected: Any, rel: float = 1e-10) -> None:
    np.testing.assert_allclose(value, expected, rtol=rel, atol=1e-14)
