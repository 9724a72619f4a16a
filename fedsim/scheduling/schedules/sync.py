"""Schedules in rounds: the synchronous one, that of TimelyFL, and windows in which every client participates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from pydantic import Field

from fedsim.errors import UserError
from fedsim.parts.component import Parameters
from fedsim.scheduling.base import (
    ANYTHING,
    Demands,
    Dispatch,
    Round,
    Schedule,
    Selection,
    ServerPort,
    Story,
    WakeUp,
    cohort_of,
)
from fedsim.units import Duration, to_ns


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

    class Params(Parameters):
        deadline: Duration | None = Field(default=None, gt=0)
        """Longest round; updates that arrive later do not count. Default: a round waits for all clients."""
        over_selection: float = Field(default=1.0, ge=1, le=1000)
        """Factor by which the cohort is enlarged; the round closes when as many updates have arrived as the original
        cohort has clients."""
        min_updates: int = Field(default=1, ge=0)
        """A round that closes with fewer updates fails, and its updates are discarded. With 0, the method also makes a
        step after an empty round."""
        min_cohort: int = Field(default=1, ge=1)
        """Clients that must be available for a round to start; until then the server waits. Must be 1 if
        ``min_updates`` is 0, which lets a round start without clients."""
        stragglers: Literal["run", "cut"] = "run"
        """Treatment of clients that are still busy when a round closes: they continue and their updates are late, or
        they are cut."""
        pause: Duration = 0.0
        """Pause between the end of a round and the start of the next."""
        quorum: int | None = Field(default=None, ge=1)
        """Number of updates after which a round waits no longer than ``grace`` for the others; default: no such
        limit."""
        grace: Duration = 0.0
        """Time for stragglers after the ``quorum``; with 0, the round closes at once."""

    @classmethod
    def demands(cls, params: Params) -> Demands:
        return replace(
            super().demands(params), over_selection=params.over_selection, cohort=params.min_cohort
        )

    def __init__(self, params: Params, server: ServerPort, selection: Selection) -> None:
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

    def run(self) -> Story[None]:
        """The prologue, if the method has one, and one round after another."""
        server, selection, params = self.server, self.selection, self.params
        if (needed := server.first_updates) is not None:
            everyone = needed > 0
            clients = list(range(server.clients)) if everyone else server.online_clients().tolist()
            # Clients that do not respond start without the prologue.
            arrived = yield from self.round(clients, needed or len(clients), everyone)
            server.aggregate(arrived, closes_round=False)
            yield self.after(params.pause)
        while True:
            clients = yield from self.cohort(
                partial(selection.cohort, params.over_selection),
                params.min_cohort if params.min_updates else 0,
            )
            needed = len(clients)
            if params.over_selection > 1:
                needed = min(needed, selection.cohort_size())
            arrived = yield from self.round(clients, needed)
            if len(arrived) >= params.min_updates:
                server.aggregate(arrived)
            else:
                for dispatch in arrived:
                    server.discard(dispatch)
                server.close_round()
            yield self.after(params.pause)

    def round(
        self, clients: Sequence[int], needed: int, is_patient: bool = False
    ) -> Story[list[Dispatch]]:
        """Dispatch work to these clients and wait for ``needed`` updates; returns those that arrive in time.

        If patient, it waits without a deadline, also for clients that go offline.
        """
        deadline = deadline_ns = grace = None
        limit_s = None if is_patient else self.limit_s(clients)
        if limit_s is not None:
            deadline_ns = self.server.now_ns + to_ns(limit_s)
            deadline = self.at(deadline_ns)
        work = Round(self.server)
        for client in clients:
            work.dispatch(client, self.steps(client), deadline_ns)
        if not clients and deadline is not None:
            yield deadline
        while work.left and len(work.arrived) < needed:
            event = yield ANYTHING
            if isinstance(event, WakeUp):
                break  # the deadline, or the end of the grace
            if work.receive(event):
                if len(work.arrived) == self.params.quorum and len(work.arrived) < needed:
                    grace = self.after(self.params.grace)
            elif is_patient:
                work.dispatch(event.client, self.steps(event.client))
        for timer in (deadline, grace):
            if timer is not None:
                timer.cancel()
        work.stop(cut=self.params.stragglers == "cut")
        return work.arrived

    def limit_s(self, clients: Sequence[int]) -> float | None:
        """The longest time that a round of these clients lasts, in seconds; None if it has no limit."""
        limit_s: float | None = self.params.deadline
        return limit_s

    def steps(self, client: int) -> int | None:
        """Local steps of a client in this round; None for those of a full workload."""
        return None


class Timely(Sync):
    """Rounds as long as the k-th fastest of their clients expects to need, with the local steps that fit into them.

    In a round of length T, a client whose transfers take c is assigned (T - c) / s steps of its nominal duration s,
    rounded down, at least one: more than its full workload if it is fast. The paper gives slow clients a part of the
    model instead; here they do fewer steps on all of it. An update that arrives after T is late.
    """

    name = "timely"
    patience = ""
    paper = (
        "Zhang et al., TimelyFL: Heterogeneity-aware Asynchronous Federated Learning with Adaptive Partial Training, "
        "CVPR Workshops 2023, Algorithms 1 to 3"
    )

    class Params(Sync.Params):
        share: float = Field(default=0.5, gt=0, le=1)
        """Share of a round's clients that have time for a full workload (k / n): the k-th shortest expected duration is
        the length of the round."""

    def __init__(self, params: Params, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        self._length_s = math.inf

    def limit_s(self, clients: Sequence[int]) -> float | None:
        expected_s = sorted(map(self.server.expected_duration_s, clients))
        if expected_s:
            self._length_s = expected_s[math.ceil(self.params.share * len(clients) - 1e-9) - 1]
        limit_s = min(self._length_s, super().limit_s(clients) or math.inf)
        return limit_s if limit_s < math.inf else None

    def steps(self, client: int) -> int | None:
        expected_s = self.server.expected_duration_s(client)
        if not 0 < expected_s < math.inf:
            return None
        full, step_s = int(self.server.default_steps[client]), self.server.step_s(client)
        # The client that expects to need exactly the length of the round does its full workload.
        more = (self._length_s - expected_s) / step_s if step_s else 0.0
        return max(1, full + math.floor(more + 1e-9))


class Window(Schedule):
    """Every client receives the window's model once, as soon as it checks in; all updates make one version.

    A client that drops out gets the work again at its next check-in. Only the rounds of ``warm_up`` use the selection;
    they wait for their clients, but not for those that drop out.
    """

    name = "window"
    synchronous = True
    patience = "deadline"
    draws_if = "warm_up"
    paper = (
        "Wang and Ji, A Unified Analysis of Federated Learning with Arbitrary Client Participation, NeurIPS 2022, "
        "section 5 and appendix D.1 (waiting)"
    )

    class Params(Parameters):
        length: Duration = 0.0
        """Shortest window: a version is created when all clients have reported, but not before this time has passed.
        The paper creates one version per availability cycle."""
        deadline: Duration | None = Field(default=None, gt=0)
        """Longest window: the clients that have reported by then count, and busy clients are cut. Default: the server
        waits for all clients, forever if one never reports."""
        warm_up: int = Field(default=0, ge=0)
        """Ordinary rounds of the selection's cohort before the first window, as in the authors' experiments."""

    def __init__(self, params: Params, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        if params.deadline is not None and params.deadline < params.length:
            raise UserError(
                f"the longest window ({params.deadline:g} s) is shorter than the shortest ({params.length:g} s)",
                where="server.schedule.deadline",
                hint="give a deadline of at least the length, or none",
            )

    def draws(self) -> bool:
        """Only in the rounds of the warm-up."""
        return bool(self.params.warm_up)

    def run(self) -> Story[None]:
        """The rounds of the warm-up, and one window after another."""
        server, params = self.server, self.params
        while True:
            opened_ns, deadline = server.now_ns, None
            is_warm_up = server.round < params.warm_up
            if is_warm_up:
                while not (clients := self.selection.cohort()):
                    yield self.client_available()
            else:
                clients = list(range(server.clients))
                if params.deadline is not None:
                    deadline = self.after(params.deadline)
            work = Round(server, clients)
            while work.left:
                event = yield ANYTHING
                if isinstance(event, WakeUp):
                    break  # the deadline
                if not work.receive(event) and not is_warm_up:
                    work.dispatch(event.client)
            else:
                end_ns = opened_ns + to_ns(params.length)
                if not is_warm_up and server.now_ns < end_ns:
                    end = self.at(end_ns)
                    yield ANYTHING  # the end, or the deadline
                    end.cancel()
            if deadline is not None:
                deadline.cancel()
            work.close(cut=True)
            yield self.after(0)
