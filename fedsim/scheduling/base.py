"""The interfaces of schedules (when) and selections (which clients), and the server as both see it.

A schedule is a passive state machine: the simulation calls :meth:`Schedule.start` once and then one ``on_...`` method
per event, and the schedule acts through its :class:`ServerPort`. The port holds only what a real server could know:
which clients are checked in *now* and what it has sent and received, never when a device will leave or how long it will
take.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.parts.component import Component, Parameters, is_bundled
from fedsim.randomness import Purpose, Stream
from fedsim.vocabulary.metrics import DispatchLoss

if TYPE_CHECKING:
    from fedsim.devices.grid import Grid


@dataclass(slots=True, eq=False)
class Dispatch:
    """A dispatch as the server knows it.

    Attributes:
        dispatch_id: number in order of dispatching, from 0.
        client: the client, as its server numbers its clients.
        sequence: number of earlier dispatches of this client.
        version: model version handed out.
        round: its round; the version if the schedule has no rounds.
        steps: local steps assigned.
        dispatched_ns: when it was handed out.
        client_id: the client, as the run numbers its clients; the same unless it belongs to an edge server.
        edge: the edge server that dispatched it; -1 if it was the only server, or the cloud.
        adopted: models that its edge server had received from the cloud; 0 without edge servers.
        arrived_ns: when its update arrived; -1 before.
        steps_done: local steps that the update contains; 0 before it arrived.
        staleness: versions created between dispatch and arrival; 0 before it arrived.
        multiplicity: number of times the client was drawn, above 1 only with replacement; the client works only once.
        open: whether it has no outcome yet.
        used: whether its update has entered an aggregation.
        in_full: whether the client downloads as if for the first time: its method continues local models, and it has
            not finished its work in the round before; or downloads are differences, and none of its updates was used.
        free_ns: end of the local steps of the client's previous dispatch, if its method works ahead and the client has
            been online since; -1 otherwise.
    """

    dispatch_id: int
    client: int
    sequence: int
    version: int
    round: int
    steps: int
    dispatched_ns: int
    client_id: int
    edge: int = -1
    adopted: int = 0
    arrived_ns: int = field(default=-1, init=False)
    steps_done: int = field(default=0, init=False)
    staleness: int = field(default=0, init=False)
    multiplicity: int = field(default=1, init=False)
    open: bool = field(default=True, init=False)
    used: bool = field(default=False, init=False)
    in_full: bool = field(default=False, init=False)
    free_ns: int = field(default=-1, init=False)


class Timer(Protocol):
    """A pending call."""

    def cancel(self) -> None:
        """Prevent the call."""


class ServerPort(Protocol):
    """The interface through which a schedule or a selection observes the server and acts on it.

    Attributes:
        clients: number of clients N.
        samples: training samples of each client, (N,).
        default_steps: local steps of a full workload of each client, (N,), from the training section.
        has_prologue: whether version 0 goes to all clients first; see :meth:`fedsim.methods.base.Method.prologue`.
        prologue_updates: updates that the prologue waits for; None for those of the clients online at the start.
        detects_failures: whether the server detects that a busy client has gone offline.
        grid: carbon intensity at the clients' places; None if the scenario does not give it.
        version: number of server updates so far.
        round: rounds closed so far.
    """

    clients: int
    samples: npt.NDArray[np.int64 | np.float64]
    default_steps: npt.NDArray[np.int64]
    has_prologue: bool
    prologue_updates: int | None
    detects_failures: bool
    grid: Grid | None
    version: int
    round: int

    @property
    def now_ns(self) -> int:
        """Simulated time."""

    @property
    def busy_until_ns(self) -> int:
        """When the server finishes its last aggregation; it dispatches no work before then. NEVER while an edge server
        waits for a model of the cloud: what it is to :meth:`call_at` then is called when it has one."""

    def stream(self, purpose: Purpose, *keys: int) -> Stream:
        """A random stream of this run."""

    def is_online(self, client: int) -> bool:
        """Whether the client is checked in now."""

    def is_busy(self, client: int) -> bool:
        """Whether the client has an unfinished dispatch, or work is waiting for it."""

    def online_clients(self) -> npt.NDArray[np.int64]:
        """Clients that are checked in and idle now, ascending."""

    def sample_online(self, count: int) -> list[int]:
        """Up to ``count`` clients drawn uniformly without replacement from those checked in and idle."""

    def expected_duration_s(self, client: int) -> float:
        """Duration of a full workload at the client's nominal speed and link rates, as a profiling run would
        measure it."""

    def step_s(self, client: int) -> float:
        """Duration of a client's local step at its nominal speed, as a profiling run would measure it."""

    def training_losses(self, dispatches: Sequence[Dispatch]) -> npt.NDArray[np.float64]:
        """Training losses that came with these (aggregated) updates; executes pending training.

        Mean losses over the steps, or as :attr:`Selection.dispatch_loss` says.
        """

    def client_accuracies(self) -> npt.NDArray[np.float64]:
        """Accuracy of the current model on each client's own test samples, (N,), NaN for clients without any;
        executes pending training. Clients with personal models evaluate their own."""

    def dispatch(
        self,
        client: int,
        *,
        steps: int | Callable[[], int] | None = None,
        deadline_ns: int | None = None,
        on_dispatched: Callable[[Dispatch], None] | None = None,
    ) -> Timer:
        """Dispatch work to a client: now, or as soon as it is checked in and idle.

        Cancelling the returned timer withdraws a dispatch that has not started yet.

        Args:
            client: must not be waiting for a dispatch already.
            steps: local steps, or a function that returns them, called when the work is handed out; the client's
                default if None.
            deadline_ns: latest useful arrival, announced with the work; with ``partial_work: send`` the client stops in
                time to meet it.
            on_dispatched: called with the dispatch when the work is handed out.
        """

    def call_at(self, time_ns: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` at a time, after all arrivals of that instant."""

    def call_when_available(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when the next client becomes available or the selection may draw other clients
        (:meth:`Selection.next_change_ns`)."""

    def discard(self, dispatch: Dispatch, *, late: bool = False) -> None:
        """Discard an arrived update; ``late`` means that it arrived after its round had closed."""

    def cut(self, dispatch: Dispatch) -> None:
        """Stop a busy client, whose update is lost; does nothing if the client has already gone offline."""

    def cancel(self, dispatch: Dispatch, on_stopped: Callable[[], None]) -> None:
        """Send a busy client the message to stop, which takes the latency of its downlink.

        Until then it works and uses energy. Its update is then lost, and ``on_stopped`` is called; neither happens if
        its update arrives, or the server notices its failure, before. A failure not noticed by then is not reported.
        """

    def aggregate(
        self,
        dispatches: Sequence[Dispatch],
        *,
        groups: Sequence[int] | None = None,
        attributes: Mapping[str, float] | None = None,
        closes_round: bool = False,
    ) -> int:
        """Create the next model version from arrived updates.

        Args:
            dispatches: their dispatches, in the order in which the method receives them.
            groups: a number per dispatch, such as its tier.
            attributes: named numbers passed to the method.
            closes_round: whether this also ends a round.

        Returns:
            The new version.
        """

    def close_round(self) -> None:
        """End a round without a new version."""


class Selection(Component, ABC):
    """Decides which clients to dispatch.

    Attributes:
        chooses: whether it chooses among the available clients; otherwise the clients are fixed in advance.
        needs_training: whether it learns from training losses or accuracies, so that a run without training cannot use
            it.
        needs_client_tests: whether it learns from accuracies on clients' own test samples.
        dispatch_loss: the training losses that it needs.
        with_replacement: whether a client may be drawn several times for one round.
    """

    chooses: ClassVar[bool] = True
    needs_training: ClassVar[bool] = False
    needs_client_tests: ClassVar[bool] = False
    dispatch_loss: ClassVar[DispatchLoss] = "mean"
    with_replacement: ClassVar[bool] = False

    def __init__(self, params: Any, server: ServerPort) -> None:
        self.params = params
        self.server = server
        self._members: npt.NDArray[np.bool_] | None = None
        self._generators = 0

    @abstractmethod
    def draw(self, count: int) -> list[int]:
        """Draw up to ``count`` different clients, all of them in :meth:`available`."""

    def draw_among(self, count: int, members: npt.NDArray[np.bool_]) -> list[int]:
        """:meth:`draw` restricted to ``members`` (N,), such as a tier."""
        self._members = members
        try:
            return [client for client in self.draw(count) if members[client]]
        finally:
            self._members = None

    def available(self) -> npt.NDArray[np.int64]:
        """Clients that may be drawn now, ascending: checked in, idle, and among the members that :meth:`draw_among`
        restricts to."""
        clients = self.server.online_clients()
        return clients if self._members is None else clients[self._members[clients]]

    def generator(self) -> np.random.Generator:
        """A generator for one draw; every call returns a different one."""
        self._generators += 1
        return self.server.stream(Purpose.SELECTION, 1).generator(k=self._generators)

    def next_change_ns(self) -> int | None:
        """When the selection may next draw different clients although no client checks in; None if it never does."""
        return None

    @property
    def allows_empty(self) -> bool:
        """Whether an empty cohort is a round without participants, rather than a lack of available clients."""
        return False

    def multiplicity(self, client: int) -> int:
        """How often the last draw that included ``client`` drew it; 1 unless drawn with replacement."""
        return 1

    def cohort(self, factor: float = 1.0) -> list[int]:
        """The clients of the next round; ``factor`` (over-selection) enlarges the cohort."""
        return self.draw(self.cohort_size(factor))

    def cohort_size(self, factor: float = 1.0) -> int:
        """Number of clients wanted for a round: ``cohort`` times ``factor``, rounded up; all clients if no cohort is
        given."""
        size = cohort_of(self.params)
        return self.server.clients if size is None else math.ceil(size * factor - 1e-9)

    def on_arrival(self, dispatch: Dispatch) -> None:
        """Record an update that has arrived."""

    def on_failure(self, dispatch: Dispatch) -> None:
        """Record that a client has gone offline with its work."""


class CohortParams(Parameters):
    """Parameters of selections with a cohort size."""

    cohort: int | None = Field(default=None, ge=1)
    """Clients per round; default: all available clients."""


def cohort_of(params: Parameters) -> int | None:
    """The parameter ``cohort`` of a selection; None if it was not given or the selection has none."""
    cohort: int | None = getattr(params, "cohort", None)
    return cohort


@dataclass(frozen=True, slots=True)
class Demands:
    """Demands of a schedule on the clients.

    Attributes:
        updates: least number of updates per version.
        limit_s: how long it waits for a client in seconds; None if without limit.
        over_selection: factor by which it enlarges the cohort.
        cohort: clients that must be available for a round to start; None if it cannot wait for more.
        concurrency: clients that it keeps busy; None if not limited by the schedule.
    """

    updates: int = 1
    limit_s: float | None = None
    over_selection: float = 1.0
    cohort: int | None = None
    concurrency: int | None = None


class Schedule(Component, ABC):
    """Decides when to dispatch, wait, cut and aggregate.

    Attributes:
        synchronous: whether all work of a round starts from one version and is aggregated before the next round.
        begins_with_prologue: whether it dispatches the prologue of a method that has one.
        needs_all_clients: whether all clients participate all the time, so that a selection is refused.
        draws_if: setting with which a schedule that gives work to all clients draws them with its selection instead.
        needs_choice: whether the selection must choose among the clients that are available.
        patience: name of the parameter that limits how long it waits for a client; required if the server never detects
            failures. Empty if the schedule does not wait.
        updates_needed: name of the parameter that sets the minimum number of updates per version; empty if one is
            enough.
        paper: source of the schedule; a user's class does not inherit it.

    :mod:`fedsim.composition.needs` checks these needs.
    """

    synchronous: ClassVar[bool] = False
    begins_with_prologue: ClassVar[bool] = False
    needs_all_clients: ClassVar[bool] = False
    draws_if: ClassVar[str] = ""
    needs_choice: ClassVar[bool] = False
    patience: ClassVar[str] = ""
    updates_needed: ClassVar[str] = ""
    paper: ClassVar[str] = ""

    def __init_subclass__(cls, **options: Any) -> None:
        """A user's class is another schedule than the one that it derives from, and has another paper."""
        super().__init_subclass__(**options)
        if not is_bundled(cls):
            cls.paper = vars(cls).get("paper", "")

    def __init__(self, params: Any, server: ServerPort, selection: Selection) -> None:
        self.params = params
        self.server = server
        self.selection = selection

    @classmethod
    def demands(cls, params: Any) -> Demands:
        """The demands of the schedule with these parameters."""
        return Demands(
            updates=getattr(params, cls.updates_needed) if cls.updates_needed else 1,
            limit_s=getattr(params, cls.patience) if cls.patience else None,
        )

    @classmethod
    def tiers(
        cls, params: Any, durations_s: npt.NDArray[np.float64], online: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64] | None:
        """Tier of each client, (N,), if the clients work in tiers; None otherwise.

        Args:
            params: the schedule's parameters.
            durations_s: expected duration of a dispatch to each client, (N,).
            online: clients online when the first round starts.
        """
        return None

    def draws(self) -> bool:
        """Whether it draws clients with its selection; if not, all clients participate, and a selection is refused."""
        return not self.needs_all_clients

    def close_round(self, arrived: Sequence[Dispatch]) -> None:
        """End a round with the version made of these updates, or without one if there are none."""
        if arrived:
            self.server.aggregate(arrived, closes_round=True)
        else:
            self.server.close_round()

    @abstractmethod
    def start(self) -> None:
        """Start the schedule, at time 0."""

    @abstractmethod
    def on_arrival(self, dispatch: Dispatch) -> None:
        """Handle an arrived update: aggregate or discard it, now or later."""

    def on_failure(self, dispatch: Dispatch) -> None:
        """Handle the failure of a client whose update will never arrive."""
