"""The server as its schedule and its selection see it.

The port holds only what a real server could know: which clients are checked in *now* and what it has sent and received,
never when a device will leave or how long it will take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from fedsim.randomness import Purpose, Stream
from fedsim.vocabulary.arrays import Floats, Ints

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
        round_is_closed: whether the server no longer waits for it, because its round or its timeout is over, and its
            update is late.
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
    round_is_closed: bool = field(default=False, init=False)
    free_ns: int = field(default=-1, init=False)

    @property
    def arrived(self) -> bool:
        """Whether its update has arrived; if it has ended without, the client has gone offline or was stopped."""
        return self.arrived_ns >= 0


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
        first_updates: updates for which a first aggregation, before the rounds, waits; 0 for those of the clients that
            are online at the start; None if the method has no prologue.
        detects_failures: whether the server detects that a busy client has gone offline.
        grid: carbon intensity at the clients' places; None if the scenario does not give it.
        version: number of server updates so far.
        round: rounds closed so far.
        busy_until_ns: when the server finishes its last aggregation; it dispatches no work before then. NEVER while an
            edge server waits for a model of the cloud: what it is to :meth:`call_at` then is called when it has one.
    """

    clients: int
    samples: npt.NDArray[np.int64 | np.float64]
    default_steps: Ints
    first_updates: int | None
    detects_failures: bool
    grid: Grid | None
    version: int
    round: int
    busy_until_ns: int

    @property
    def now_ns(self) -> int:
        """Simulated time."""

    def stream(self, purpose: Purpose, *keys: int) -> Stream:
        """A random stream of this run."""

    def is_online(self, client: int) -> bool:
        """Whether the client is checked in now."""

    def is_busy(self, client: int) -> bool:
        """Whether the client has an unfinished dispatch, or work is waiting for it."""

    def online_clients(self) -> Ints:
        """Clients that are checked in and idle now, ascending."""

    def sample_online(self, count: int) -> list[int]:
        """Up to ``count`` clients drawn uniformly without replacement from those checked in and idle."""

    def expected_duration_s(self, client: int) -> float:
        """Duration of a full workload at the client's nominal speed and link rates, as a profiling run would
        measure it."""

    def step_s(self, client: int) -> float:
        """Duration of a client's local step at its nominal speed, as a profiling run would measure it."""

    def training_losses(self, dispatches: Sequence[Dispatch]) -> Floats:
        """Training losses that came with these (aggregated) updates; executes pending training.

        Mean losses over the steps, or as :attr:`Selection.dispatch_loss` says.
        """

    def client_accuracies(self) -> Floats:
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
        """Stop a busy client, whose update is lost; does nothing if the client has already gone offline.

        Raises:
            ValueError: its update has arrived.
        """

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
        closes_round: bool = True,
    ) -> int:
        """Create the next model version from arrived updates.

        Args:
            dispatches: their dispatches, in the order in which the method receives them.
            groups: a number per dispatch, such as its tier.
            attributes: named numbers passed to the method.
            closes_round: whether this also ends a round. If every version does, rounds are versions: the schedule has
                no rounds.

        Returns:
            The new version.
        """

    def close_round(self) -> None:
        """End a round without a new version."""
