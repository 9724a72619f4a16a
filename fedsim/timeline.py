"""The timeline: what the time plane decided, for the learning plane to execute.

An append-only list of small immutable instructions. The time plane writes them in the order of simulated time; the
learning plane
may execute them later and in any order that respects two rules: a model version exists once its :class:`Aggregate` was
executed, and the dispatches of one client are trained in their own order (``sequence``). Neither simpy nor torch
is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Train:
    """Train one client; written when its update has reached the server and will be used, or is lost and yet matters.

    Attributes:
        dispatch_id: number of the dispatch, in order of dispatching.
        client: the client that worked.
        sequence: how many dispatches this client had before; keys its random streams.
        version: model version it started from.
        round: round (synchronous schedules) or version at dispatch (asynchronous ones).
        steps: local steps it did.
        steps_assigned: local steps it was asked for; more than ``steps`` for partial work.
        dispatched_s: simulated time of the dispatch, for learning rates that follow time.
        used: whether an aggregation will use the update. One that is not used is trained for what the client keeps of
            it alone (:attr:`fedsim.methods.base.Memory.kept_when_lost`), and is done with at once.
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


class Contribution(NamedTuple):
    """One update as it enters an aggregation.

    Attributes:
        dispatch_id: the dispatch whose update it is.
        client: its client.
        staleness: server versions created between its dispatch and its arrival.
        group: the schedule's own mark, such as a tier or whether it came late (0 where it has no meaning).
        multiplicity: how often its client was drawn; more than once only where selection is with replacement.
    """

    dispatch_id: int
    client: int
    staleness: int
    group: int = 0
    multiplicity: int = 1


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Create ``version`` from the contributions (possibly none, where a method steps on an empty round).

    Attributes:
        version: the version created; consecutive from 1.
        time_s: simulated time of the server update.
        round: round it closes.
        contributions: in order of arrival.
        attributes: numbers a schedule tells the method (``online``, ``tier``, ...).
    """

    version: int
    time_s: float
    round: int
    contributions: tuple[Contribution, ...]
    attributes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Measure ``version``; its row in ``metrics`` carries ``time_s`` and ``round``."""

    version: int
    time_s: float
    round: int


Instruction = Train | Aggregate | Evaluate


class LearningPlane(Protocol):
    """What the time plane needs of whoever executes its timeline."""

    def hold(self, version: int) -> None:
        """A dispatch of ``version`` has been handed out: what it was sent must be kept for its training."""

    def drop(self, version: int) -> None:
        """A dispatch of ``version`` has ended and will not be trained; one that is gives up its hold with its Train."""

    def submit(self, instruction: Instruction) -> None:
        """Append an instruction; it may be executed any time later."""

    def evaluate(self, instruction: Evaluate) -> Mapping[str, float]:
        """Execute everything before it and the evaluation itself now: a barrier. Metric name to value."""
        ...

    def training_losses(self, dispatch_ids: Sequence[int]) -> npt.NDArray[np.float64]:
        """Mean training loss of these dispatches, already submitted as :class:`Train`: a barrier."""
        ...
