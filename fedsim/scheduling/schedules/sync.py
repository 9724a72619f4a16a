"""The synchronous schedule: rounds, with a deadline, over-selection and a minimum number of updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from fedsim.errors import UserError
from fedsim.parts.component import Parameters
from fedsim.scheduling.base import (
    Demands,
    Dispatch,
    Schedule,
    Selection,
    ServerPort,
    Timer,
    cohort_of,
)
from fedsim.units import Duration, to_ns


class SyncParams(Parameters):
    """Parameters of the synchronous schedule."""

    deadline: Duration | None = Field(default=None, gt=0)
    """Longest round; updates that arrive later do not count. Default: a round waits for all clients."""
    over_selection: float = Field(default=1.0, ge=1)
    """Factor by which the cohort is enlarged; the round closes when as many updates have arrived as the original cohort
    has clients."""
    min_updates: int = Field(default=1, ge=0)
    """A round that closes with fewer updates fails, and its updates are discarded. With 0, the method also makes a step
    after an empty round."""
    min_cohort: int = Field(default=1, ge=1)
    """Clients that must be available for a round to start; until then the server waits. Must be 1 if ``min_updates`` is
    0, which lets a round start without clients."""
    stragglers: Literal["run", "cut"] = "run"
    """Treatment of clients that are still busy when a round closes: they continue and their updates are late, or they
    are cut."""
    pause: Duration = 0.0
    """Pause between the end of a round and the start of the next."""
    quorum: int | None = Field(default=None, ge=1)
    """Number of updates after which a round waits no longer than ``grace`` for the others; default: no such limit."""
    grace: Duration = 0.0
    """Time for stragglers after the ``quorum``; with 0, the round closes at once."""


class Sync(Schedule):
    """Rounds: select, dispatch, wait, aggregate.

    A round closes when no further update can arrive, when over-selection has yielded enough updates, at its
    deadline, or ``grace`` after its quorum; an update that arrives exactly at the deadline is in time. If no client
    can be selected, the server waits for the next one to check in. A method's prologue is dispatched before the
    first round to all clients checked in at the start; it closes as a round does. If the method requires a number
    of updates, the prologue is dispatched to every client as it checks in, and closes with the last of these
    updates, without a deadline.
    """

    name = "sync"
    synchronous = True
    begins_with_prologue = True
    patience = "deadline"
    updates_needed = "min_updates"
    paper = (
        "McMahan et al., AISTATS 2017, Algorithm 1; deadline and over-selection: Bonawitz et al., "
        "Towards Federated Learning at Scale, MLSys 2019, section 2.2"
    )
    Params = SyncParams

    @classmethod
    def demands(cls, params: SyncParams) -> Demands:
        """Those of every schedule, the cohort and its factor."""
        return replace(
            super().demands(params), over_selection=params.over_selection, cohort=params.min_cohort
        )

    def __init__(self, params: SyncParams, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        if selection.allows_empty and params.min_updates > 0:
            raise UserError(
                "an empty round has fewer updates than the schedule requires",
                where="server.schedule.min_updates",
                hint="set min_updates: 0, or remove the selection's allow_empty",
            )
        cohort = cohort_of(selection.params)
        if cohort is not None and params.min_updates > cohort:
            raise UserError(
                f"a round with a cohort of {cohort} never yields {params.min_updates} updates",
                where="server.schedule.min_updates",
                hint=f"set min_updates to at most {cohort}, or raise server.selection.cohort",
            )
        selected = None if cohort is None else selection.cohort_size(params.over_selection)
        if selected is not None and params.min_cohort > selected:
            raise UserError(
                f"a round selects {selected}, and min_cohort is {params.min_cohort}, so none can begin",
                where="server.schedule.min_cohort",
                hint=f"set min_cohort to at most {selected}, or raise server.selection.cohort",
            )
        if params.min_updates == 0 and params.min_cohort > 1:
            raise UserError(
                f"min_updates: 0 lets a round begin without clients, min_cohort: {params.min_cohort} does not",
                where="server.schedule.min_cohort",
                hint="leave out one of them",
            )
        self._outstanding: dict[int, Dispatch] = {}
        self._arrived: list[Dispatch] = []
        self._waiting: set[int] = set()
        self._handouts: list[Timer] = []
        self._needed = 0
        self._is_patient = False  # waits for clients that are offline, without a deadline
        self._deadline: Timer | None = None
        self._grace: Timer | None = None

    def start(self) -> None:
        """Start the prologue, or the first round if there is none."""
        if self.server.has_prologue:
            needed = self.server.prologue_updates
            if needed is not None:
                self._is_patient = True
                self._open(list(range(self.server.clients)), needed)
                return
            clients = self.server.online_clients().tolist()
            self._open(clients, needed=len(clients))
        else:
            self._start_round()

    def _start_round(self) -> None:
        server = self.server
        if server.now_ns < server.busy_until_ns:
            # The clients drawn must still be online when the server can dispatch again.
            server.call_at(server.busy_until_ns, self._start_round)
            return
        clients = self.selection.cohort(self.params.over_selection)
        if len(clients) < self.params.min_cohort and self.params.min_updates > 0:
            self.server.call_when_available(self._start_round)
            return
        needed = len(clients)
        if self.params.over_selection > 1:
            needed = min(needed, self.selection.cohort_size())
        self._open(clients, needed)

    def _open(self, clients: list[int], needed: int) -> None:
        """Dispatch work to these clients and wait for ``needed`` updates."""
        self._outstanding = {}
        self._arrived = []
        self._needed = needed
        deadline_ns = None
        limit_s = None if self._is_patient else self.limit_s(clients)
        if limit_s is not None:
            deadline_ns = self.server.now_ns + to_ns(limit_s)
            self._deadline = self.server.call_at(deadline_ns, self._close)
        self._waiting = set(clients)
        self._handouts = [self._hand_out(client, deadline_ns) for client in clients]
        if not clients and self._deadline is None:
            self._close()

    def limit_s(self, clients: Sequence[int]) -> float | None:
        """The longest time that a round of these clients lasts, in seconds; None if it has no limit."""
        limit_s: float | None = self.params.deadline
        return limit_s

    def steps(self, client: int) -> int | None:
        """Local steps of a client in this round; None for those of a full workload."""
        return None

    def _hand_out(self, client: int, deadline_ns: int | None) -> Timer:
        return self.server.dispatch(
            client,
            steps=self.steps(client),
            deadline_ns=deadline_ns,
            on_dispatched=self._on_dispatched,
        )

    def _on_dispatched(self, dispatch: Dispatch) -> None:
        self._waiting.discard(dispatch.client)
        self._outstanding[dispatch.dispatch_id] = dispatch

    def on_arrival(self, dispatch: Dispatch) -> None:
        """Count an update; one of a closed round is late."""
        if self._outstanding.pop(dispatch.dispatch_id, None) is None:
            self.server.discard(dispatch, late=True)
            return
        self._arrived.append(dispatch)
        if len(self._arrived) >= self._needed:
            self._close()
            return
        if len(self._arrived) == self.params.quorum:
            closes_ns = self.server.now_ns + to_ns(self.params.grace)
            self._grace = self.server.call_at(closes_ns, self._close)
        self._close_if_nothing_can_come()

    def on_failure(self, dispatch: Dispatch) -> None:
        """Stop waiting for a client that has gone offline, or wait for it to come back."""
        if self._outstanding.pop(dispatch.dispatch_id, None) is None:
            return
        if self._is_patient:
            self._waiting.add(dispatch.client)
            self._handouts.append(self._hand_out(dispatch.client, None))
        else:
            self._close_if_nothing_can_come()

    def _close_if_nothing_can_come(self) -> None:
        if not self._outstanding and not self._waiting:
            self._close()

    def _close(self) -> None:
        for timer in (self._deadline, self._grace):
            if timer is not None:
                timer.cancel()
        self._deadline = self._grace = None
        for handout in self._handouts:
            handout.cancel()
        stragglers = list(self._outstanding.values())
        self._outstanding = {}
        if self.params.stragglers == "cut":
            for dispatch in stragglers:
                self.server.cut(dispatch)
        self._is_patient = False
        arrived, self._arrived = self._arrived, []
        if self.server.has_prologue and self.server.version == 0:
            # Clients that have not responded start without the prologue.
            self.server.aggregate(arrived)
        elif len(arrived) >= self.params.min_updates:
            self.server.aggregate(arrived, closes_round=True)
        else:
            for dispatch in arrived:
                self.server.discard(dispatch)
            self.server.close_round()
        self.server.call_at(self.server.now_ns + to_ns(self.params.pause), self._start_round)
