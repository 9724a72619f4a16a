"""A server, apart from the story of its rounds: what schedule and selection may ask of it, and how work is stopped.

:mod:`fedsim.simulation.story` has the story.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from fedsim.errors import UserError
from fedsim.randomness import Purpose
from fedsim.scheduling.base import Dispatch, Selection, ServerPort, Timer
from fedsim.simulation.contract import check_draws
from fedsim.simulation.dispatch_process import Plan
from fedsim.simulation.dispatcher import Dispatcher, OnDispatched, Steps
from fedsim.simulation.facts import Clients, Facts
from fedsim.simulation.level import Level
from fedsim.vocabulary.outcomes import Outcome
from fedsim.vocabulary.timeline import LearningPlane


class Above(Protocol):
    """What a server reports to: the run, or for an edge server the cloud."""

    def on_version(self, version: int, round_: int, dispatches: Sequence[Dispatch]) -> None:
        """Note a version made of the updates of these dispatches; does nothing unless overridden."""
        return

    def on_round(self, round_: int) -> None:
        """Note that a round has closed; does nothing unless overridden."""
        return

    def ends_after(self, rounds: int) -> bool:
        """Whether the run ends when the server has closed so many rounds; versions count if its schedule has none."""


class ServerBase(Dispatcher, Facts, ServerPort):
    """One server, whose story a subclass gives.

    Args:
        level: its clients, and what it shares with the other servers that dispatch to them.
        clients, seed: the clients that are its own, and the seed of its draws.
        above: what it reports to.
        edge: number of the edge server; -1 if it is the only server, or the cloud.

    Attributes:
        schedule: decides when it acts.
        adopted: models that it has received from the cloud.
        empty_draws: how often a user's selection has drawn nobody although clients were available.

    Raises:
        UserError: schedule or selection refuse their parameters.
    """

    def __init__(
        self,
        level: Level,
        clients: Clients,
        above: Above,
        *,
        seed: int,
        edge: int = -1,
    ) -> None:
        Facts.__init__(self, clients, seed)
        population = level.population
        self.edge = edge
        self.version = self.round = self.adopted = self.empty_draws = 0
        self._level = level
        self._above = above
        self._population = population
        # The numbers of the clients in the run, if they differ from those at this server.
        self._ids = None if clients.members is None else clients.members.data
        # Round, and instant, at which the clock was last seen to move.
        self._checked_round = self._checked_ns = 0
        # Dispatches that were dropped, which the server has not noticed.
        self._undetected: set[int] = set()
        # The last round has closed, and the run ends after the other ends of dispatches of this instant.
        self._is_over = False
        self._plane = level.plane
        self._batteries = level.batteries
        self._updates = level.updates
        self._dispatches = level.dispatches
        Dispatcher.__init__(
            self,
            level.engine,
            clients.availability,
            self.stream(Purpose.SELECTION),
            self._begin,
            lambda: self._selection.next_change_ns(),
            is_patient=level.is_patient,
            prepare=self._prepare if population.compute.draws else None,
        )
        self._selection = clients.selection(self)
        check_draws(self._selection, self.clients, self._count_empty_draw)
        # Checked once, because these methods are called for every dispatch and do nothing in most selections.
        kind = type(self._selection)
        self._selection_counts = kind.multiplicity is not Selection.multiplicity
        self._selection_listens = kind.on_arrival is not Selection.on_arrival
        self.schedule = clients.schedule(self, self._selection)
        level.servers.append(self)

    @abstractmethod
    def on_end(self, dispatch: Dispatch, plan: Plan) -> None:
        """Handle a dispatch that has ended by itself."""

    @abstractmethod
    def _begin(
        self,
        client: int,
        now: int,
        online_until_ns: int,
        steps: Steps,
        deadline_ns: int | None,
        on_dispatched: OnDispatched,
    ) -> None:
        """Begin a dispatch to a client that is online and idle."""

    def _count_empty_draw(self) -> None:
        self.empty_draws += 1

    @override
    def call_at(self, time_ns: int, callback: Callable[[], None]) -> Timer:
        return self._engine.call_at(time_ns, callback)

    @override
    def training_losses(self, dispatches: Sequence[Dispatch]) -> npt.NDArray[np.float64]:
        plane = self._plane_that_learns()
        return plane.training_losses([dispatch.dispatch_id for dispatch in dispatches])

    @override
    def client_accuracies(self) -> npt.NDArray[np.float64]:
        return self._plane_that_learns().client_accuracies(self.version)

    def _plane_that_learns(self) -> LearningPlane:
        if self._plane is None:
            raise UserError(
                "a selection by training losses or accuracies needs training",
                where="server.selection",
                hint="leave out --timing-only, or choose another selection",
            )
        return self._plane

    @override
    def cut(self, dispatch: Dispatch) -> None:
        if not dispatch.open:
            return
        if not self._dispatches.can_stop:
            dispatch.round_is_closed = True
            return
        plan = self._dispatches.stop(dispatch)
        if self._level.history is not None:
            self._level.history.end(dispatch, plan.computed_ns)
        self._release(dispatch, plan)
        self._updates.close(dispatch, plan, Outcome.CUT, self._clock.now)
        self.look_again(dispatch.client)

    @override
    def cancel(self, dispatch: Dispatch, on_stopped: Callable[[], None]) -> None:
        def stop() -> None:
            if dispatch.open and dispatch.arrived_ns < 0:
                self.cut(dispatch)
                on_stopped()
            elif dispatch.dispatch_id in self._undetected:
                self._undetected.remove(dispatch.dispatch_id)
                on_stopped()

        latency_ns = self._population.network.latency_ns(dispatch.client_id)
        self._engine.call_at(self._clock.now + latency_ns, stop)

    def _release(self, dispatch: Dispatch, plan: Plan) -> None:
        """Mark a client as done with its work; if its battery is low, only once it has recharged."""
        client, client_id = dispatch.client, dispatch.client_id
        if self._batteries is not None:
            now = self._clock.now
            used_j = self._population.power.joules(client_id, plan[7:])
            ready_ns = self._batteries.end(client_id, now, used_j)
            if ready_ns > now:
                self._engine.call_at(ready_ns, lambda: self._on_recharged(client))
                return
        self.release(client)

    def _on_recharged(self, client: int) -> None:
        self.release(client)
        self.look_again(client)

    def _prepare(self, clients: npt.NDArray[np.int64]) -> None:
        """Draw the random numbers of the next dispatches of some clients at once."""
        client_ids = clients if self._ids is None else np.array(self._ids)[clients]
        sequences = [self._level.sequences[client] for client in client_ids.tolist()]
        self._population.compute.prepare(client_ids, np.array(sequences, dtype=np.int64))
