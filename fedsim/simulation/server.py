"""The server of the simulation: carries out what a schedule decides and keeps the books."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from fedsim.devices.population import Population
from fedsim.errors import UserError
from fedsim.outcomes import Outcome
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import MOST_EVALUATIONS
from fedsim.scheduling.base import Dispatch, Schedule, Selection, Timer
from fedsim.simulation.engine import EVALUATION_ORDER, Engine
from fedsim.simulation.life import Life
from fedsim.simulation.plan import Plan
from fedsim.timeline import Aggregate, Contribution, Evaluate, LearningPlane, Train
from fedsim.traces.availability import NEVER, OnlineSampler
from fedsim.units import NS_PER_S, to_ns

_NAN = float("nan")
# A named tuple's own constructor costs a call more, which every update would pay.
_NEW_TUPLE = tuple.__new__
_PATIENCE_NS = 366 * 86_400 * NS_PER_S


class _Clock(Protocol):
    """SimPy's environment, as what it is here: a clock of integer nanoseconds."""

    @property
    def now(self) -> int: ...


class Recorder(Protocol):
    """Takes the rows of a run as they come."""

    def append_dispatch(self, *values: Any) -> None:
        """A dispatch that has its outcome: the columns of ``dispatches`` in their order."""

    def append_aggregation(self, aggregate: Aggregate) -> None:
        """A server update."""


@dataclass(frozen=True, slots=True)
class Work:
    """How much a client is asked to do.

    Attributes:
        steps: local steps of a full piece of work for each client, (N,) int64.
        time_budget_ns: compute time instead; each client does the whole steps that fit, at least one.
    """

    steps: npt.NDArray[np.int64]
    time_budget_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends, and how it is measured; see the scenario's ``stop`` and ``evaluation``.

    Attributes:
        evaluate_every_steps: aggregated local steps between two evaluations, where neither a time nor a number of
            versions is given.
    """

    until_ns: int | None
    rounds: int | None
    dispatches: int | None
    arrivals: int | None
    reached: Callable[[Mapping[str, float]], bool] | None
    evaluate_every_ns: int | None
    evaluate_every_versions: int | None
    evaluate_every_steps: int | None
    evaluate_at_start: bool


class _Handout:
    """Work waiting to be handed to a client."""

    __slots__ = ("client", "deadline_ns", "on_dispatched", "steps", "waiting")

    def __init__(
        self,
        client: int,
        steps: int | Callable[[], int] | None,
        deadline_ns: int | None,
        on_dispatched: Callable[[Dispatch], None] | None,
        waiting: dict[int, _Handout],
    ) -> None:
        self.waiting = waiting
        self.client = client
        self.steps = steps
        self.deadline_ns = deadline_ns
        self.on_dispatched = on_dispatched

    def cancel(self) -> None:
        if self.waiting.get(self.client) is self:
            del self.waiting[self.client]


class _Done:
    """A hand-out that has happened: there is nothing to take back."""

    def cancel(self) -> None:
        pass


_DONE = _Done()


class Server:
    """The server of one run; implements :class:`fedsim.scheduling.base.ServerPort`.

    Args:
        engine: simulated time.
        population: the clients.
        samples: training samples of each client, (N,).
        work: local steps of a full piece of work.
        plane: executes the timeline; None for timing-only runs.
        recorder: takes the rows.
        limits: when to stop and to evaluate.
        failure_detection: seconds until the server learns of a client that is gone.
        aggregation_time_s: seconds one aggregation takes.
        expected_duration_s: duration of a full piece of work of a client at nominal speed and rates.
        has_prologue: whether version 0 is that of the method's prologue.
        trains_lost_work: whether clients keep what they learned even if the server never uses it.
        seed: the scenario's seed.
    """

    def __init__(
        self,
        engine: Engine,
        population: Population,
        samples: npt.NDArray[np.int64],
        work: Work,
        plane: LearningPlane | None,
        recorder: Recorder,
        limits: Limits,
        *,
        failure_detection: float | Literal["never"] = 0.0,
        aggregation_time_s: float = 0.0,
        expected_duration_s: Callable[[int], float],
        has_prologue: bool = False,
        trains_lost_work: bool = False,
        seed: int,
    ) -> None:
        self._engine = engine
        self._clock = cast(_Clock, engine.env)
        self._population = population
        self._availability = population.availability
        self._samples = samples
        self._work = work
        same = work.steps.min() == work.steps.max()
        self._same_steps = int(work.steps[0]) if same else None
        self._plane = plane
        self._recorder = recorder
        self._limits = limits
        self._last_dispatch = -1 if limits.dispatches is None else limits.dispatches
        self._last_arrival = -1 if limits.arrivals is None else limits.arrivals
        self._detection_ns = None if failure_detection == "never" else to_ns(failure_detection)
        self._aggregation_ns = to_ns(aggregation_time_s)
        self._expected_duration_s = expected_duration_s
        self._has_prologue = has_prologue
        self._trains_lost_work = trains_lost_work
        self._seed = seed
        self._busy = np.zeros(population.clients, dtype=np.bool_)
        # Single clients are read and written through a view, which is cheaper than numpy's own access.
        self._is_busy = self._busy.data
        self._sequences = [0] * population.clients
        self._sampler = OnlineSampler(self._availability, Stream(seed, Purpose.SELECTION))
        self._draws = 0
        self._version = 0
        self._round = 0
        self._dispatched = 0
        self._arrived = 0
        self._evaluated: tuple[int, int] | None = None
        self._steps_unmeasured = 0
        self._timed_evaluations = 0
        self._busy_until_ns = 0
        self._handed_out_ns = 0
        # Updates that have arrived and were not used yet, in order of arrival.
        self._held: dict[Dispatch, Plan] = {}
        # The client drawn last, and what was seen of it then.
        self._drawn = self._drawn_ns = -1
        self._waiting: dict[int, _Handout] = {}
        self._waiters: list[Callable[[], None]] = []
        self._wake_ns = -1
        self._wake_due = False
        self._batteries = population.batteries
        self._watts: list[tuple[float, float, float]] = [
            (download_w, compute_w, upload_w)
            for download_w, compute_w, upload_w in population.power.watts.tolist()
        ]
        self._power_class = population.power.of_client.data
        self._selection_counts = self._selection_listens = False
        self._life: Life
        self._schedule: Schedule
        self._selection: Selection
        self.on_progress: Callable[[], None] | None = None

    def attach(self, schedule: Schedule, selection: Selection, life: Life) -> None:
        """Tell the server who decides, and who lives through the dispatches."""
        self._schedule, self._selection, self._life = schedule, selection, life
        # Asked once, because these are called for every dispatch and most selections do nothing then.
        self._selection_counts = type(selection).multiplicity is not Selection.multiplicity
        self._selection_listens = type(selection).on_arrival is not Selection.on_arrival

    def connect(self, plane: LearningPlane | None, recorder: Recorder) -> None:
        """Tell the server, before it runs, who executes the timeline and who takes the rows."""
        self._plane, self._recorder = plane, recorder

    # -- what a schedule may know -----------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._clock.now

    @property
    def version(self) -> int:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._version

    @property
    def round(self) -> int:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._round

    @property
    def dispatched(self) -> int:
        """Dispatches handed out so far."""
        return self._dispatched

    @property
    def arrived(self) -> int:
        """Updates received so far."""
        return self._arrived

    @property
    def clients(self) -> int:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._population.clients

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._samples

    @property
    def default_steps(self) -> npt.NDArray[np.int64]:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._work.steps

    @property
    def busy_until_ns(self) -> int:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._busy_until_ns

    @property
    def has_prologue(self) -> bool:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._has_prologue

    @property
    def detects_failures(self) -> bool:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._detection_ns is not None

    def stream(self, purpose: Purpose, *keys: int) -> Stream:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return Stream(self._seed, purpose, *keys)

    def is_online(self, client: int) -> bool:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._availability.is_online(client, self._clock.now)

    def is_busy(self, client: int) -> bool:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return bool(self._is_busy[client]) or client in self._waiting

    def online_clients(self) -> npt.NDArray[np.int64]:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        online = self._availability.online_clients(self.now_ns)
        return online[~self._busy[online]]

    def sample_online(self, count: int) -> list[int]:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        self._draws += 1
        now = self._clock.now
        if count == 1:
            self._drawn = client = self._sampler.sample_one(now, self._busy, self._draws)
            self._drawn_ns = now
            return [client] if client >= 0 else []
        clients: list[int] = self._sampler.sample(count, now, self._busy, self._draws).tolist()
        return clients

    def expected_duration_s(self, client: int) -> float:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._expected_duration_s(client)

    def training_losses(self, dispatches: Sequence[Dispatch]) -> npt.NDArray[np.float64]:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        if self._plane is None:
            raise UserError(
                "a selection by training loss needs training",
                where="server.selection",
                hint="leave out --timing-only, or choose another selection",
            )
        return self._plane.training_losses([dispatch.dispatch_id for dispatch in dispatches])

    # -- what a schedule may do -------------------------------------------------------------------------------------

    def dispatch(
        self,
        client: int,
        *,
        steps: int | Callable[[], int] | None = None,
        deadline_ns: int | None = None,
        on_dispatched: Callable[[Dispatch], None] | None = None,
    ) -> Timer:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        if client in self._waiting:
            raise RuntimeError(f"work for client {client} is waiting already")
        now = self._clock.now
        if now >= self._busy_until_ns and not self._is_busy[client]:
            if client == self._drawn and now == self._drawn_ns:
                online_until_ns = self._sampler.online_until_ns
            else:
                online_until_ns = self._availability.online_until(client, now)
            if online_until_ns > now:
                self._hand_out(client, steps, deadline_ns, on_dispatched, online_until_ns)
                return _DONE
        handout = _Handout(client, steps, deadline_ns, on_dispatched, self._waiting)
        self._hand_out_when_possible(handout)
        return handout

    def _hand_out_when_possible(self, handout: _Handout) -> None:
        now, client = self._clock.now, handout.client
        self._waiting[client] = handout
        if self._is_busy[client]:
            return
        if now >= self._busy_until_ns:
            online_until_ns = self._availability.online_until(client, now)
            if online_until_ns > now:
                del self._waiting[client]
                self._hand_out(
                    client,
                    handout.steps,
                    handout.deadline_ns,
                    handout.on_dispatched,
                    online_until_ns,
                )
                return
        due = self._availability.next_online(client, max(now, self._busy_until_ns))
        if due < NEVER:
            self._engine.call_at(due, lambda: self._retry(handout))

    def _retry(self, handout: _Handout) -> None:
        if self._waiting.get(handout.client) is handout:
            self._hand_out_when_possible(handout)

    def _hand_out(
        self,
        client: int,
        steps: int | Callable[[], int] | None,
        deadline_ns: int | None,
        on_dispatched: Callable[[Dispatch], None] | None,
        online_until_ns: int,
    ) -> None:
        dispatch_id = self._dispatched
        if dispatch_id == self._last_dispatch:
            return
        now = self._clock.now
        sequence = self._sequences[client]
        self._sequences[client] = sequence + 1
        if steps is None:
            steps = self._same_steps
            if steps is None:
                steps = int(self._work.steps[client])
            if self._work.time_budget_ns is not None:
                step_ns = self._population.compute.step_ns(client, sequence, now)
                steps = max(1, self._work.time_budget_ns // step_ns) if step_ns else 1
        elif callable(steps):
            steps = steps()
        dispatch = Dispatch(dispatch_id, client, sequence, self._version, self._round, steps, now)
        if self._selection_counts:
            dispatch.multiplicity = self._selection.multiplicity(client)
        self._dispatched = dispatch_id + 1
        self._handed_out_ns = now
        if self._batteries is not None:
            self._batteries.begin(client, now)
        self._is_busy[client] = True
        if self._plane is not None:
            self._plane.hold(self._version)
        if on_dispatched is not None:
            on_dispatched(dispatch)
        self._life.begin(dispatch, deadline_ns, online_until_ns)
        if self._dispatched == self._last_dispatch:
            self._engine.call_at(now, self._engine.stop)

    def call_at(self, time_ns: int, callback: Callable[[], None]) -> Timer:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        return self._engine.call_at(time_ns, callback)

    def call_when_available(self, callback: Callable[[], None]) -> None:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        self._waiters.append(callback)
        now = self._clock.now
        if self._wake_ns <= now:
            self._wake_ns = self._availability.next_arrival(now)
            change = self._selection.next_change_ns()
            if change is not None:
                self._wake_ns = min(self._wake_ns, change)
            if self._wake_ns < NEVER:
                self._engine.call_at(self._wake_ns, self._wake)

    def _wake(self) -> None:
        self._wake_due = False
        if self._limits.until_ns is None and self._clock.now > self._handed_out_ns + _PATIENCE_NS:
            raise UserError(
                f"the server has waited {_PATIENCE_NS // (86_400 * NS_PER_S)} simulated days without finding enough "
                "clients to work",
                where="server.schedule",
                hint="check availability and memory of the devices and the cohort's size, or give stop.simulated_time",
            )
        waiters, self._waiters = self._waiters, []
        for callback in waiters:
            callback()

    def discard(self, dispatch: Dispatch, *, late: bool = False) -> None:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        plan = self._held.pop(dispatch)
        self._close(dispatch, plan, Outcome.LATE if late else Outcome.DISCARDED)

    def cut(self, dispatch: Dispatch) -> None:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        if not dispatch.open:
            return
        plan = self._life.cut(dispatch)
        self._release(dispatch.client, plan)
        self._close(dispatch, plan, Outcome.CUT)
        self._client_is_free(dispatch.client)

    def aggregate(
        self,
        dispatches: Sequence[Dispatch],
        *,
        groups: Sequence[int] | None = None,
        attributes: Mapping[str, float] | None = None,
        closes_round: bool = False,
    ) -> int:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        self._version = version = self._version + 1
        now = self._clock.now
        marks = groups if groups is not None else [0] * len(dispatches)
        contributions = tuple(
            [
                _NEW_TUPLE(
                    Contribution,
                    (
                        dispatch.dispatch_id,
                        dispatch.client,
                        dispatch.staleness,
                        mark,
                        dispatch.multiplicity,
                    ),
                )
                for dispatch, mark in zip(dispatches, marks, strict=True)
            ]
        )
        aggregate = Aggregate(version, now / NS_PER_S, self._round, contributions, attributes or {})
        if self._plane is not None:
            for dispatch in sorted(dispatches, key=lambda item: item.dispatch_id):
                self._plane.submit(_train(dispatch, dispatch.steps_done))
            self._plane.submit(aggregate)
        for dispatch, mark in zip(dispatches, marks, strict=True):
            dispatch.used = True
            self._write(dispatch, self._held.pop(dispatch), Outcome.AGGREGATED, version, mark)
        self._recorder.append_aggregation(aggregate)
        if self._aggregation_ns:
            self._busy_until_ns = now + self._aggregation_ns
        if closes_round:
            self.close_round()
        every = self._limits.evaluate_every_versions
        if every is not None and version % every == 0:
            self._evaluate()
        elif self._limits.evaluate_every_steps is not None:
            self._steps_unmeasured += sum(dispatch.steps_done for dispatch in dispatches)
            if self._steps_unmeasured >= self._limits.evaluate_every_steps:
                self._evaluate()
        if self.on_progress is not None:
            self.on_progress()
        return version

    def close_round(self) -> None:
        """See :class:`fedsim.scheduling.base.ServerPort`."""
        self._round += 1
        if self._limits.rounds is not None and self._round >= self._limits.rounds:
            self._engine.stop()

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Simulate from time 0 until a limit is met or nothing can happen any more."""
        limits = self._limits
        if limits.evaluate_at_start:
            self._evaluate()
        if limits.evaluate_every_ns is not None:
            self._engine.call_at(
                limits.evaluate_every_ns, self._evaluate_and_again, EVALUATION_ORDER
            )
        self._schedule.start()
        self._engine.run(limits.until_ns)
        for dispatch, plan in list(self._life.unfinished()):
            self._close(dispatch, plan, Outcome.UNFINISHED)
        for dispatch, plan in list(self._held.items()):
            self._close(dispatch, plan, Outcome.UNFINISHED)
        if self._evaluated is None or self._evaluated[0] != self._version:
            self._evaluate()

    def on_end(self, dispatch: Dispatch, plan: Plan) -> None:
        """A dispatch has ended by itself: it arrived, or its client is gone."""
        client = dispatch.client
        if self._batteries is None:
            self._is_busy[client] = False
        else:
            self._release(client, plan)
        if plan.arrives:
            self._arrived += 1
            dispatch.arrived_ns = plan.end_ns
            dispatch.steps_done = plan.steps_done
            dispatch.staleness = self._version - dispatch.version
            self._held[dispatch] = plan
            if self._selection_listens:
                self._selection.on_arrival(dispatch)
            self._schedule.on_arrival(dispatch)
            if self._arrived == self._last_arrival:
                self._engine.stop()
        else:
            self._close(dispatch, plan, Outcome.DROPPED)
            if self._detection_ns is not None:
                self._engine.call_at(
                    self.now_ns + self._detection_ns, lambda: self._notice(dispatch)
                )
        if self._waiters or client in self._waiting:
            self._client_is_free(client)

    def _release(self, client: int, plan: Plan) -> None:
        """The client is done working; with a low battery it takes no work until it has recharged."""
        if self._batteries is not None:
            now = self._clock.now
            ready_ns = self._batteries.end(client, now, self._energy_j(client, plan))
            if ready_ns > now:
                self._engine.call_at(ready_ns, lambda: self._recharged(client))
                return
        self._is_busy[client] = False

    def _recharged(self, client: int) -> None:
        self._is_busy[client] = False
        self._client_is_free(client)

    def _energy_j(self, client: int, plan: Plan) -> float:
        download_w, compute_w, upload_w = self._watts[self._power_class[client]]
        return (
            download_w * plan.download_ns + compute_w * plan.compute_ns + upload_w * plan.upload_ns
        ) / NS_PER_S

    def _notice(self, dispatch: Dispatch) -> None:
        self._selection.on_failure(dispatch)
        self._schedule.on_failure(dispatch)

    def _client_is_free(self, client: int) -> None:
        handout = self._waiting.get(client)
        if handout is not None:
            self._engine.call_at(self.now_ns, lambda: self._retry(handout))
        if self._waiters and not self._wake_due:
            self._wake_due = True
            self._engine.call_at(self.now_ns, self._wake)

    def _evaluate_and_again(self) -> None:
        every = self._limits.evaluate_every_ns
        assert every is not None
        if self._timed_evaluations == MOST_EVALUATIONS:
            # Where stop.simulated_time is given the scenario itself tells; without, only the run does.
            raise UserError(
                f"{every / NS_PER_S:g} s between evaluations has made {MOST_EVALUATIONS:,} of them, the most "
                f"that a run makes, after {self.now_ns / NS_PER_S:g} simulated seconds",
                where="evaluation.every",
                hint="measure less often, or give stop.simulated_time",
            )
        self._timed_evaluations += 1
        self._evaluate()
        if self._engine.idle:
            return
        self._engine.call_at(self.now_ns + every, self._evaluate_and_again, EVALUATION_ORDER)

    def _evaluate(self) -> None:
        self._evaluated = (self._version, self.now_ns)
        self._steps_unmeasured = 0
        if self._plane is None:
            return
        instruction = Evaluate(self._version, self.now_ns / NS_PER_S, self._round)
        self._plane.submit(instruction)
        if self._limits.reached is not None and self._limits.reached(
            self._plane.evaluate(instruction)
        ):
            self._engine.stop()

    # -- the books ----------------------------------------------------------------------------------------------------

    def _close(self, dispatch: Dispatch, plan: Plan, outcome: Outcome) -> None:
        if self._plane is not None:
            if self._is_kept(dispatch, plan, outcome):
                self._plane.submit(_train(dispatch, plan.steps_done, used=False))
            else:
                self._plane.drop(dispatch.version)
        self._write(dispatch, plan, outcome, -1, 0)

    def _is_kept(self, dispatch: Dispatch, plan: Plan, outcome: Outcome) -> bool:
        """Whether the client keeps what it learned in a dispatch that is not aggregated: when it had done its work."""
        if not self._trains_lost_work or (self._has_prologue and dispatch.version == 0):
            return False
        return plan.computed_ns >= 0 and outcome is not Outcome.UNFINISHED

    def _write(
        self, dispatch: Dispatch, plan: Plan, outcome: Outcome, version: int, group: int
    ) -> None:
        dispatch.open = False
        client, now = dispatch.client, self._clock.now
        (
            end,
            arrives,
            downloaded,
            computed,
            steps_done,
            bytes_down,
            bytes_up,
            download_ns,
            compute_ns,
            upload_ns,
        ) = plan
        download_w, compute_w, upload_w = self._watts[self._power_class[client]]
        self._recorder.append_dispatch(
            dispatch.dispatch_id,
            client,
            dispatch.version,
            dispatch.round,
            dispatch.dispatched_ns / NS_PER_S,
            downloaded / NS_PER_S if downloaded >= 0 else _NAN,
            computed / NS_PER_S if computed >= 0 else _NAN,
            end / NS_PER_S if arrives else _NAN,
            dispatch.steps,
            steps_done,
            outcome,
            dispatch.staleness if arrives else -1,
            version,
            round(bytes_down),
            round(bytes_up),
            (download_w * download_ns + compute_w * compute_ns + upload_w * upload_ns) / NS_PER_S,
            dispatch.sequence,
            group,
            (end if end < now else now) / NS_PER_S,
        )


def _train(dispatch: Dispatch, steps: int, *, used: bool = True) -> Train:
    """The training of a dispatch that did so many steps."""
    return Train(
        dispatch.dispatch_id,
        dispatch.client,
        dispatch.sequence,
        dispatch.version,
        dispatch.round,
        steps,
        dispatch.steps,
        dispatch.dispatched_ns / NS_PER_S,
        used,
    )
