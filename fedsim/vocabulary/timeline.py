"""The timeline: the instructions of the time plane to the learning plane.

An append-only list of small immutable instructions. The time plane writes them in the order of simulated time. The
learning plane may execute them later, in any order that respects two rules: a model exists once its :class:`Aggregate`
(or the :class:`Adopt` of an edge server) has been executed, and the dispatches of one client are trained in the order
of their ``sequence``.
This module imports neither simpy nor torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fedsim.errors import UserError
from fedsim.vocabulary.arrays import Floats


@dataclass(frozen=True, slots=True)
class Train:
    """Train one client; written if its update will be aggregated, or will be lost but changes the client's state.

    Attributes:
        dispatch_id: number of the dispatch, in order of dispatching.
        client: the client that worked.
        sequence: number of earlier dispatches of this client; keys its random streams.
        version: model version it started from.
        round: round (synchronous schedules) or version at dispatch (asynchronous ones).
        steps: local steps done.
        steps_assigned: local steps requested; more than ``steps`` for partial work.
        dispatched_s: simulated time of the dispatch, for learning rates that follow time.
        used: whether an aggregation will use the update. An unused update is computed only for the state that the
            client keeps (:attr:`fedsim.methods.base.Memory.kept_when_lost`), and is then discarded.
        edge: the edge server whose model it started from; -1 for the only server, or the cloud.
        adopted: models that the edge server had received from the cloud.
        in_full: whether its download was that of a first dispatch, although it was a later one.
    """

    dispatch_id: int
    client: int
    sequence: int
    version: int
    round: int
    steps: int
    steps_assigned: int
    dispatched_s: float
    used: bool = True
    edge: int = -1
    adopted: int = 0
    in_full: bool = False

    @property
    def model(self) -> int:
        """Number of the model it started from, among all models that its server has made or received."""
        return self.version + self.adopted


class Contribution(NamedTuple):
    """One update as it enters an aggregation.

    Attributes:
        dispatch_id: the dispatch whose update it is.
        client: its client.
        staleness: server versions created between its dispatch and its arrival.
        group: a mark set by the schedule, such as a tier or whether the update came late (0 if it has no meaning).
        multiplicity: how often its client was drawn; more than once only if selection is with replacement.
    """

    dispatch_id: int
    client: int
    staleness: int
    group: int = 0
    multiplicity: int = 1


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Create ``version`` from the contributions (possibly none, if a method steps on an empty round).

    Attributes:
        version: the version created; consecutive from 1.
        time_s: simulated time of the server update.
        round: the round that it belongs to.
        contributions: the updates, in order of arrival.
        attributes: numbers that the schedule passes to the method (``online``, ``tier``, ...).
        edge, adopted: as for :class:`Train`.
    """

    version: int
    time_s: float
    round: int
    contributions: tuple[Contribution, ...]
    attributes: Mapping[str, float] = field(default_factory=dict)
    edge: int = -1
    adopted: int = 0

    @property
    def model(self) -> int:
        """Number of the model, as :attr:`Train.model`."""
        return self.version + self.adopted


@dataclass(frozen=True, slots=True)
class Adopt:
    """Replace the model of an edge server by a version of the cloud; ``model`` as :attr:`Train.model`."""

    edge: int
    model: int
    version: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Gather:
    """Take the update of an edge server: its ``model`` minus the one that it received for the dispatch ``train``."""

    train: Train
    model: int


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Measure ``version``; its row in ``metrics`` carries ``time_s`` and ``round``."""

    version: int
    time_s: float
    round: int


Instruction = Train | Aggregate | Evaluate | Adopt | Gather


class TimelineDiffers(UserError):
    """A resumed run does not submit the timeline that its checkpoint continues."""


class LearningPlane(Protocol):
    """Executes the timeline of a time plane."""

    def hold(self, model: int, edge: int = -1) -> None:
        """Keep the vectors sent with a dispatch from ``model`` of a server until the dispatch is trained or dropped."""

    def drop(self, model: int, edge: int = -1) -> None:
        """Release the hold of a dispatch that will not be trained; a :class:`Train` releases its own."""

    def submit(self, instruction: Instruction) -> None:
        """Append an instruction; it may be executed at any later time."""

    def evaluate(self, instruction: Evaluate) -> Mapping[str, float]:
        """Value of each metric; executes the evaluation and everything before it immediately (a barrier)."""
        ...

    def training_losses(self, dispatch_ids: Sequence[int]) -> Floats:
        """Training losses of dispatches that have been submitted as :class:`Train` (a barrier)."""
        ...

    def client_accuracies(self, version: int) -> Floats:
        """Accuracy of the newest version on each client's own test samples, (N,); NaN without any (a barrier)."""
        ...
