"""The rules of a client's work: how many steps it does, how long they take, and how it fails.

:mod:`fedsim.simulation.dispatch_process` applies these rules in order.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedsim.devices.battery import Charge
from fedsim.devices.population import Population
from fedsim.randomness import Draws, Purpose, Stream
from fedsim.scenario.model import Failures
from fedsim.scenario.training import LimitedWork
from fedsim.scheduling.base import Dispatch
from fedsim.units import NEVER, NS_PER_S

_NS_PER_HOUR = 3600 * NS_PER_S


class Computation(NamedTuple):
    """The local steps of a dispatch.

    Attributes:
        client, sequence: the client, and the number of its earlier dispatches.
        start_ns: when they begin.
        step_ns: work of each step, in the mean.
    """

    client: int
    sequence: int
    start_ns: int
    step_ns: int


class Workload:
    """The rules of dispatches of one size.

    Args:
        population, failures, seed: the devices, their failures, and the scenario's seed.
        bytes_down, bytes_up: bytes per download and per upload.
        send_partial_work: whether a client that cannot finish before a deadline stops in time to send what it has.
        foresight: whether such a client knows its future.
        partial_unit: local steps of the smallest unit that a client sends, such as an epoch, (N,); None: single steps.
        drawn: draws how much work limited clients do; None if no client is limited.
        steps_ahead: local steps of a dispatch that its client may do before the download has ended.
    """

    def __init__(
        self,
        population: Population,
        failures: Failures,
        bytes_down: float,
        bytes_up: float,
        *,
        send_partial_work: bool,
        seed: int,
        foresight: bool = False,
        partial_unit: Sequence[int] | None = None,
        drawn: Callable[[int, int, int], int] | None = None,
        steps_ahead: int = 0,
    ) -> None:
        self.population = population
        self.bytes_down = bytes_down
        self.bytes_up = bytes_up
        # The policy for clients that go offline in the middle of their work; if it is none of these, they finish it.
        self.drops = population.on_disconnect == "drop"
        self._pauses = population.on_disconnect == "pause"
        self._sends_on_leaving = population.on_disconnect == "send_partial"
        self.shortens = send_partial_work or drawn is not None
        self.crashes = failures.crash_rate > 0
        self.loses_uploads = failures.upload_loss > 0
        self.upload_attempts = failures.upload_retries + 1
        self.fails = self.crashes or population.batteries is not None
        # A client that stays online does all of its work, without an interruption.
        self.plain = not (self.shortens or self.fails or self.loses_uploads)
        self.plain &= population.compute.steady
        self.compute = population.compute
        self._availability = population.availability
        self.failures = failures
        self._send_partial_work = send_partial_work
        self._foresight = foresight
        self._partial_unit = partial_unit
        self._drawn = drawn
        self.steps_ahead = steps_ahead
        self._crashing = Draws(Stream(seed, Purpose.FAILURE, 0), population.clients)
        self._losing = Draws(Stream(seed, Purpose.FAILURE, 1), population.clients)

    # -- failures -------------------------------------------------------------------------------------------------

    def crash_after_ns(self, client: int, sequence: int) -> int:
        """Time at work on local steps after which this dispatch would crash; NEVER without crashes."""
        if not self.crashes:
            return NEVER
        u = self._crashing.uniform(client, sequence)
        after_ns = -math.log(u) / self.failures.crash_rate * _NS_PER_HOUR
        return int(after_ns) if after_ns < NEVER else NEVER

    def battery(self, client: int) -> Charge | None:
        """The battery of a client that has just been given work, if batteries are modeled."""
        batteries = self.population.batteries
        if batteries is None:
            return None
        return Charge(batteries.left_j(client), self.population.power.of(client))

    def upload_is_lost(self, client: int, sequence: int, attempt: int) -> bool:
        """Whether this upload of a dispatch (``attempt`` from 0) does not arrive; only if uploads may be lost."""
        u = self._losing.uniform(client, sequence * self.upload_attempts + attempt)
        return u < self.failures.upload_loss

    # -- local steps ----------------------------------------------------------------------------------------------

    def computation(self, dispatch: Dispatch, downloaded_ns: int) -> Computation:
        """The local steps of a dispatch, which begin after its download, or so early that those done ahead end with it,
        but not before those of the client's previous dispatch have ended."""
        client, sequence, free_ns = dispatch.client_id, dispatch.sequence, dispatch.free_ns
        step_ns = self.compute.step_ns(client, sequence, dispatch.dispatched_ns)
        start_ns = downloaded_ns
        if free_ns >= 0:
            steps = min(self.steps_ahead, dispatch.steps)
            ahead_ns = self.compute.work_ns(client, sequence, step_ns, steps)
            start_ns = free_ns + bisect_left(
                range(free_ns, downloaded_ns),
                -ahead_ns,
                key=lambda t: -self._worked(client, t, downloaded_ns),
            )
        return Computation(client, sequence, start_ns, step_ns)

    def affordable_steps(self, work: Computation, steps: int, deadline_ns: int | None) -> int:
        """Local steps that a client does: those requested (or drawn), or fewer to meet a deadline.

        With partial work it continues as long as it expects its upload to reach the server by the deadline, at its own
        pace and its link's nominal rate. A client that would be late even without any step declines (0); one with
        foresight also declines if no whole step ends in time.
        """
        client = work.client
        if self._drawn is not None:
            steps = self._drawn(client, work.sequence, steps)
        if deadline_ns is None or not self._send_partial_work:
            return steps
        send_ns = deadline_ns - self.population.upload_estimate_ns(client, self.bytes_up)
        if send_ns < work.start_ns:
            return 0
        if not self._foresight:
            return self._expected_steps(work, steps, send_ns)
        return self._whole(client, self.steps_by(work, steps, send_ns), steps)

    def _expected_steps(self, work: Computation, steps: int, send_ns: int) -> int:
        """Local steps that a client does if it continues as long as it expects to finish by ``send_ns``.

        At the end of each unit (a step, or an epoch) it expects the next one to take as long per step as those before,
        excluding pauses. Before the first unit it has no expectation, so it always does that unit.
        """
        (client, sequence, start_ns, step_ns), done = work, 0
        unit = 1 if self._partial_unit is None else self._partial_unit[client]
        if self.compute.steady and step_ns:
            # The expectation is always right, so all units but the last have ended when the last can still be done.
            latest_ns = max(start_ns, send_ns - unit * step_ns)
            done = min(self._worked(client, start_ns, latest_ns) // step_ns, steps)
            done -= done % unit
        ends_ns = self.compute.works_ns(client, sequence, step_ns, steps)
        while done < steps:
            following = min(unit, steps - done)
            if done:
                end_ns = self._end_ns(client, start_ns, ends_ns[done - 1])
                worked_ns = self.time_at_work_ns(client, start_ns, end_ns)
                if (send_ns - end_ns) * done < worked_ns * following:
                    break
            done += following
        return done

    def local_steps(self, work: Computation, steps: int, online_until_ns: int) -> tuple[int, int]:
        """End of so many local steps under the disconnect policy, and how many are done then.

        A policy that drops the dispatch when its client leaves is not applied here.
        """
        client, sequence, start_ns, step_ns = work
        compute, availability = self.compute, self._availability
        if compute.steady:
            end_ns = start_ns + step_ns * steps
            if end_ns <= online_until_ns:
                return end_ns, steps
        end_ns = self._end_ns(client, start_ns, compute.work_ns(client, sequence, step_ns, steps))
        if self._sends_on_leaving:
            # If the download ends at the very instant at which the client goes offline, this is start_ns.
            off_ns = availability.online_until(client, start_ns)
            if end_ns > off_ns:
                worked_ns = compute.worked(client, start_ns, off_ns)
                done = compute.steps_of(client, sequence, step_ns, steps, worked_ns)
                return off_ns, self._whole(client, done, steps)
        return end_ns, steps

    def steps_by(self, work: Computation, steps: int, until_ns: int) -> int:
        """Local steps of ``steps`` that are done by ``until_ns``."""
        client, sequence, start_ns, step_ns = work
        worked_ns = self._worked(client, start_ns, until_ns)
        return self.compute.steps_of(client, sequence, step_ns, steps, worked_ns)

    def after_work_ns(self, client: int, start_ns: int, worked_ns: int) -> int:
        """When a client has computed for ``worked_ns`` since ``start_ns``, excluding pauses; NEVER if that never
        happens."""
        if worked_ns >= NEVER:
            return NEVER
        if not self._pauses:
            return start_ns + worked_ns
        return self._availability.finish_after(client, start_ns, worked_ns)

    def time_at_work_ns(self, client: int, start_ns: int, until_ns: int) -> int:
        """Time that a client spends computing between two instants of its local steps."""
        if not self._pauses:
            return until_ns - start_ns
        return sum(off - on for on, off in self._online(client, start_ns, until_ns))

    def _whole(self, client: int, done: int, steps: int) -> int:
        """Steps that a client sends after ``done`` of ``steps``: only whole units."""
        if self._partial_unit is None or done >= steps:
            return done
        return done - done % self._partial_unit[client]

    def _worked(self, client: int, start_ns: int, until_ns: int) -> int:
        """Work done from ``start_ns`` to ``until_ns`` under the disconnect policy."""
        compute = self.compute
        if not self._pauses:
            return compute.worked(client, start_ns, until_ns)
        return sum(
            compute.worked(client, on, off) for on, off in self._online(client, start_ns, until_ns)
        )

    def _end_ns(self, client: int, start_ns: int, work_ns: int) -> int:
        """When work that begins at ``start_ns`` is done; NEVER if it never is."""
        compute, availability = self.compute, self._availability
        if not self._pauses:
            return compute.finish(client, start_ns, work_ns)
        if compute.steady:
            return availability.finish_after(client, start_ns, work_ns)
        left_ns, at = work_ns, availability.next_online(client, start_ns)
        while at < NEVER:
            off = availability.online_until(client, at)
            end = compute.finish(client, at, left_ns)
            if end <= off:
                return end
            left_ns -= compute.worked(client, at, off)
            at = availability.next_online(client, off)
        return NEVER

    def _online(self, client: int, start_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
        """Spans within the given one in which the client is online."""
        availability = self._availability
        at = availability.next_online(client, start_ns)
        while at < end_ns:
            off = min(availability.online_until(client, at), end_ns)
            yield at, off
            at = availability.next_online(client, off)


def drawn_work(
    params: LimitedWork, units: Sequence[int], seed: int
) -> Callable[[int, int, int], int]:
    """Draws the work of the limited clients of a scenario (:class:`fedsim.scenario.training.LimitedWork`).

    Args:
        params: how many clients are limited, and by how much.
        units: local steps per unit of work (an epoch, or a single step), (N,).
        seed: the scenario's seed.

    Returns:
        The local steps that a client does, from the client, the number of its dispatch, and the steps requested.
    """
    choice, amount = (Stream(seed, Purpose.LIMITED_WORK, number) for number in range(2))
    count = round(params.share * len(units))
    order = np.argsort(choice.uniforms(np.arange(len(units))), kind="stable")
    always = frozenset(order[:count].tolist())

    def drawn(client: int, sequence: int, steps: int) -> int:
        if params.redraw == "both":
            limited = choice.uniform(client, sequence) < params.share
        else:
            limited = client in always
        if not limited:
            return steps
        unit = units[client]
        requested = -(-steps // unit)
        most = min(requested, max(1, requested - 1) if params.tau_max is None else params.tau_max)
        least = min(most, params.tau_min)
        u = amount.uniform(client, 0 if params.redraw == "never" else sequence)
        tau = least + int(u * (most - least + 1))
        return min(steps, (requested - tau + 1) * unit)

    return drawn


class History:
    """What clients have from their earlier dispatches, which shortens the next one.

    A download may be a difference to an earlier one, and a client that continues its own model may begin local steps
    before its download has ended.

    Args:
        online_until: when a client that is online at an instant goes offline.
        continues: whether clients continue their own models, so that one that has missed a round downloads as if for
            the first time.
        differs: whether downloads are differences to an earlier one, so that a client downloads as if for the first
            time until the server has used one of its updates: only then does the server know what the client has.
    """

    def __init__(
        self, online_until: Callable[[int, int], int], *, continues: bool, differs: bool
    ) -> None:
        self._online_until = online_until
        self._continues = continues
        self._differs = differs
        # By client: the server that last used one of its updates; version and end of the steps of its last dispatch.
        self._known: dict[int, int] = {}
        self._finished: dict[int, tuple[int, int]] = {}

    def begin(self, dispatch: Dispatch) -> None:
        """Say what the client of a new dispatch has."""
        client, now_ns = dispatch.client_id, dispatch.dispatched_ns
        if self._differs:
            dispatch.in_full = dispatch.sequence > 0 and self._known.get(client) != dispatch.edge
        if self._continues:
            version, free_ns = self._finished.get(client, (-1, -1))
            dispatch.in_full |= version != dispatch.version - 1
            if not dispatch.in_full and self._online_until(client, free_ns) >= now_ns:
                dispatch.free_ns = free_ns

    def end(self, dispatch: Dispatch, computed_ns: int) -> None:
        """Note a dispatch that has ended, and the end of its local steps; -1 if it has not done them."""
        if computed_ns >= 0:
            self._finished[dispatch.client_id] = dispatch.version, computed_ns

    def use(self, dispatches: Iterable[Dispatch]) -> None:
        """Note that the server has used the updates of these dispatches."""
        self._known.update((dispatch.client_id, dispatch.edge) for dispatch in dispatches)


class Workloads:
    """The workload of every dispatch of a run.

    Args:
        usual: for all dispatches that are not named below, by part of the model.
        prologue: for the dispatches of the method's prologue, which hand out version 0; None without a prologue.
        first: for each client's first dispatch, by part of the model; those of ``usual`` unless its download is larger.
        of_client: number of the part of the model that each client trains, (N,); None if all train the whole model.
        history: what clients have from earlier dispatches; None if that does not matter.
    """

    def __init__(
        self,
        usual: Sequence[Workload],
        prologue: Workload | None = None,
        first: Sequence[Workload] | None = None,
        *,
        of_client: Sequence[int] | None = None,
        history: History | None = None,
    ) -> None:
        self.usual = usual
        self.history = history
        self.prologue = prologue
        self.first = first or usual
        self._of_client = of_client
        every = (*self.usual, *self.first, *filter(None, [prologue]))
        self.every = list(dict.fromkeys(every))

    def of(self, dispatch: Dispatch) -> Workload:
        """The workload of a dispatch."""
        if self.prologue is not None and not dispatch.version:
            return self.prologue
        is_first = dispatch.sequence == 0 or dispatch.in_full
        level = 0 if self._of_client is None else self._of_client[dispatch.client_id]
        return (self.first if is_first else self.usual)[level]
