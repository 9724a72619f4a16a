"""The interfaces of schedules (when) and selections (whom), and the server as both see it.

A schedule is a passive state machine: the simulation calls :meth:`Schedule.start` once and then one ``on_...``
method per event, and the
schedule acts through its :class:`ServerPort`. The port holds only what a real server could know: who is checked in
*now*, what it
has sent and received, never when a device will leave or how long it will take.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.components import Component, Parameters
from fedsim.randomness import Purpose, Stream


class Dispatch:
    """One hand-out of work, as the server knows it.

    Attributes:
        dispatch_id: number in order of dispatching, from 0.
        client: the client.
        sequence: how many dispatches this client had before.
        version: model version handed out.
        round: round it belongs to (the version, where a schedule has no rounds).
        steps: local steps asked for.
        dispatched_ns: when it was handed out.
        arrived_ns: when its update arrived; -1 before.
        steps_done: local steps behind the update; 0 before it arrived.
        staleness: versions created between dispatch and arrival; 0 before it arrived.
        multiplicity: how often the client was drawn (more than once only with replacement); it works once.
        open: whether its outcome is still to come.
        used: whether its update has entered an aggregation.
    """

    __slots__ = (
        "arrived_ns",
        "client",
        "dispatch_id",
        "dispatched_ns",
        "multiplicity",
        "open",
        "round",
        "sequence",
        "staleness",
        "steps",
        "steps_done",
        "used",
        "version",
    )

    def __init__(
        self,
        dispatch_id: int,
        client: int,
        sequence: int,
        version: int,
        round_: int,
        steps: int,
        dispatched_ns: int,
    ) -> None:
        self.dispatch_id = dispatch_id
        self.client = client
        self.sequence = sequence
        self.version = version
        self.round = round_
        self.steps = steps
        self.dispatched_ns = dispatched_ns
        self.arrived_ns = -1
        self.steps_done = 0
        self.staleness = 0
        self.multiplicity = 1
        self.open = True
        self.used = False

    def __repr__(self) -> str:
        return f"Dispatch({self.dispatch_id}, client={self.client}, version={self.version}, steps={self.steps})"


class Timer(Protocol):
    """A pending call; one that was cancelled never happens."""

    def cancel(self) -> None:
        """Forget the call."""
        ...


class ServerPort(Protocol):
    """The server: what a schedule may know and do."""

    @property
    def now_ns(self) -> int:
        """Simulated time."""
        ...

    @property
    def version(self) -> int:
        """Number of server updates so far."""
        ...

    @property
    def round(self) -> int:
        """Rounds closed so far."""
        ...

    @property
    def clients(self) -> int:
        """Number of clients N."""
        ...

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        """Training samples of each client, (N,)."""
        ...

    @property
    def default_steps(self) -> npt.NDArray[np.int64]:
        """Local steps of a full piece of work for each client, (N,), from the training section."""
        ...

    @property
    def busy_until_ns(self) -> int:
        """When the server is done with its last aggregation; work is not handed out before."""
        ...

    @property
    def has_prologue(self) -> bool:
        """Whether version 0 goes to all clients first; see :meth:`fedsim.methods.base.Method.prologue`."""
        ...

    @property
    def detects_failures(self) -> bool:
        """Whether the server learns that a client at work is gone."""
        ...

    def stream(self, purpose: Purpose, *keys: int) -> Stream:
        """A random stream of this run."""
        ...

    def is_online(self, client: int) -> bool:
        """Whether the client is checked in now."""
        ...

    def is_busy(self, client: int) -> bool:
        """Whether the client is at work, or work is waiting for it."""
        ...

    def online_clients(self) -> npt.NDArray[np.int64]:
        """All clients that are checked in and not busy now, ascending."""
        ...

    def sample_online(self, count: int) -> list[int]:
        """``count`` clients uniformly without replacement among those that are checked in and not busy; fewer if there
        are fewer."""
        ...

    def expected_duration_s(self, client: int) -> float:
        """Duration of a full piece of work at the client's nominal speed and link rates, as a profiling run would
        find it."""
        ...

    def training_losses(self, dispatches: Sequence[Dispatch]) -> npt.NDArray[np.float64]:
        """Mean training losses that came with these (aggregated) updates; executes pending training."""
        ...

    def dispatch(
        self,
        client: int,
        *,
        steps: int | Callable[[], int] | None = None,
        deadline_ns: int | None = None,
        on_dispatched: Callable[[Dispatch], None] | None = None,
    ) -> Timer:
        """Hand work to a client: now, or as soon as it is checked in and done with its last work.

        Cancelling the returned timer takes back a hand-out that has not happened yet.

        Args:
            client: must not be waiting for a hand-out already.
            steps: local steps, or what tells them, asked at the moment of the hand-out; the client's default when
                None.
            deadline_ns: latest useful arrival, announced with the work; with partial work "send" the client stops
                in time for it.
            on_dispatched: called with the dispatch at the moment of the hand-out.
        """
        ...

    def call_at(self, time_ns: int, callback: Callable[[], None]) -> Timer:
        """Call back at a time, after all arrivals of that instant."""
        ...

    def call_when_available(self, callback: Callable[[], None]) -> None:
        """Call back once, when next a client is checked in and not busy that is not so now, or when the selection may
        draw other clients (:meth:`Selection.next_change_ns`)."""
        ...

    def discard(self, dispatch: Dispatch, *, late: bool = False) -> None:
        """Throw an arrived update away; ``late`` says that it came after its round had closed."""
        ...

    def cut(self, dispatch: Dispatch) -> None:
        """Tell a client at work to stop; its update is lost. Does nothing where the client is gone already."""
        ...

    def aggregate(
        self,
        dispatches: Sequence[Dispatch],
        *,
        groups: Sequence[int] | None = None,
        attributes: Mapping[str, float] | None = None,
        closes_round: bool = False,
    ) -> int:
        """Make the next model version from arrived updates.

        Args:
            dispatches: their dispatches, in the order in which the method sees them.
            groups: the schedule's mark on each, such as a tier.
            attributes: numbers for the method.
            closes_round: this also ends a round.

        Returns:
            The version made.
        """
        ...

    def close_round(self) -> None:
        """End a round that made no version."""
        ...


class Selection(Component, ABC):
    """Whom to dispatch.

    Attributes:
        chooses: whether it chooses among those that are available; otherwise who works is settled beforehand.
    """

    chooses: ClassVar[bool] = True

    def __init__(self, params: Any, server: ServerPort) -> None:
        self.params = params
        self.server = server
        self._members: npt.NDArray[np.bool_] | None = None
        self._generators = 0

    @abstractmethod
    def draw(self, count: int) -> list[int]:
        """Up to ``count`` different clients, all of them in :meth:`available`."""

    def draw_among(self, count: int, members: npt.NDArray[np.bool_]) -> list[int]:
        """:meth:`draw` restricted to ``members`` (N,), such as a tier."""
        self._members = members
        try:
            return [client for client in self.draw(count) if members[client]]
        finally:
            self._members = None

    def available(self) -> npt.NDArray[np.int64]:
        """Clients that may be drawn now: checked in, not busy, and of those that are asked for; ascending."""
        clients = self.server.online_clients()
        return clients if self._members is None else clients[self._members[clients]]

    def generator(self) -> np.random.Generator:
        """Random numbers for one draw; every call gives others."""
        self._generators += 1
        return self.server.stream(Purpose.SELECTION, 1).generator(k=self._generators)

    def next_change_ns(self) -> int | None:
        """When the selection may draw other clients than now even if nobody checks in; None where it never does."""
        return None

    @property
    def allows_empty(self) -> bool:
        """Whether a cohort without clients means a round in which nobody takes part, not that nobody can."""
        return False

    def multiplicity(self, client: int) -> int:
        """How often ``client`` stands in the last draw that named it; 1 unless drawn with replacement."""
        return 1

    def cohort(self, factor: float = 1.0) -> list[int]:
        """The clients of the next round; ``factor`` (over-selection) enlarges the cohort."""
        return self.draw(self.cohort_size(factor))

    def cohort_size(self, factor: float = 1.0) -> int:
        """Clients wanted for a round: the ``cohort`` parameter x ``factor``, rounded up; all clients where it is
        not given."""
        size = getattr(self.params, "cohort", None)
        return self.server.clients if size is None else math.ceil(size * factor - 1e-9)

    def on_arrival(self, dispatch: Dispatch) -> None:
        """Learn from an update that arrived (durations, losses)."""

    def on_failure(self, dispatch: Dispatch) -> None:
        """Learn that a client went away."""


class CohortParams(Parameters):
    """Parameters of selections with a cohort size."""

    cohort: int | None = Field(default=None, ge=1)
    """Clients of a round; all who are available when not given."""


class Schedule(Component, ABC):
    """When to dispatch, wait, cut and aggregate.

    Attributes:
        synchronous: whether work of one round always starts from one version and is aggregated before the next round.
        begins_with_prologue: whether it hands out a method's prologue, where there is one.
        paper: where the schedule comes from.
    """

    synchronous: ClassVar[bool] = False
    begins_with_prologue: ClassVar[bool] = False
    paper: ClassVar[str] = ""

    def __init__(self, params: Any, server: ServerPort, selection: Selection) -> None:
        self.params = params
        self.server = server
        self.selection = selection

    @abstractmethod
    def start(self) -> None:
        """Begin, at time 0."""

    @abstractmethod
    def on_arrival(self, dispatch: Dispatch) -> None:
        """An update has arrived; it is to be aggregated or discarded, now or later."""

    def on_failure(self, dispatch: Dispatch) -> None:
        """The server has learnt that this client is gone with its work."""
