"""The story of a dispatch: what takes time in it, and how far one under way has come.

Simulated time passes only in the activities that the story of a dispatch yields: transfers, local steps, joint work and
waiting offline. Its runner (:mod:`fedsim.simulation.dispatches`) sends back the instant at which each activity ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from fedsim.devices.battery import COMPUTE, DOWNLOAD, UPLOAD
from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.workload import Workload
from fedsim.units import NEVER
from fedsim.vocabulary.formatting import format_count
from fedsim.vocabulary.outcomes import ARRIVED, Ending

_BEYOND = 2 * NEVER
"""Later than every instant, including NEVER."""
_MOST_RETURNS = 20_000
"""Times that a client may leave and return during a dispatch: years of the shortest sessions of real devices."""


class Transfer(NamedTuple):
    """Move bytes; interrupted at ``until_ns`` unless the last byte has arrived by then."""

    direction: Direction
    size_bytes: float
    until_ns: int


class Span(NamedTuple):
    """Compute, or wait offline, until ``until_ns``."""

    until_ns: int
    works: bool


class JointWork(NamedTuple):
    """Work with other clients, until it is done; interrupted at ``until_ns``.

    ``begin`` starts it, takes a function to be called when it is done, and returns one that interrupts it.
    """

    until_ns: int
    begin: Callable[[Callable[[], None]], Callable[[], None]]


Activity = Transfer | Span | JointWork
Reached = tuple[int, float | None]
"""When an activity ended, and the bytes that a transfer had moved if it was interrupted; None if it was completed."""


class Plan(NamedTuple):
    """The course of a dispatch.

    Attributes:
        end_ns: when it arrives or is dropped; NEVER if it hangs forever, in which case the other fields are
            meaningless.
        ending: whether it arrives, and why not.
        downloaded_ns, computed_ns: ends of the first two phases; -1 for one that does not end.
        steps_done: local steps done by the end.
        bytes_down, bytes_up: bytes that crossed the network by the end.
        download_ns, compute_ns, upload_ns: time at work in each phase, without pauses.
    """

    end_ns: int
    ending: Ending
    downloaded_ns: int
    computed_ns: int
    steps_done: int
    bytes_down: float
    bytes_up: float
    download_ns: int
    compute_ns: int
    upload_ns: int


class DispatchProcess:
    """One dispatch under way, to a device.

    Args:
        workload: the rules of its work.
        dispatch: the dispatch; its client is online at the start.
        deadline_ns: latest useful arrival, if one was announced.
        online_until_ns: when the client goes offline next.
        stop_ns: when the server stops the dispatch, or the run ends. A runner that learns of the stop only when it
            happens sets the attribute to the current instant.

    Attributes:
        now_ns: the end of its last activity.
        others: see :class:`Plan`.
    """

    def __init__(
        self,
        workload: Workload,
        dispatch: Dispatch,
        deadline_ns: int | None,
        online_until_ns: int,
        stop_ns: int = NEVER,
    ) -> None:
        self.workload = workload
        self.dispatch = dispatch
        self.deadline_ns = deadline_ns
        self.online_until_ns = online_until_ns
        self.stop_ns = stop_ns
        self.now_ns = dispatch.dispatched_ns
        self.ending = Ending.STOPPED
        self.downloaded_ns = self.computed_ns = -1
        self.steps_done = self.compute_ns = 0
        self._bytes = [0.0, 0.0]
        self._transfer_ns = [0, 0]
        self._returns = 0
        self._battery = workload.battery(dispatch.client_id)

    def run(self) -> Generator[Activity, Reached, None]:
        """The activities of the dispatch, in order; after the last one, it has arrived, was dropped or was stopped."""
        workload, dispatch = self.workload, self.dispatch

        # Download the model.
        if not (yield from self.transfer(Direction.DOWN, workload.bytes_down)):
            return
        self.downloaded_ns = self.now_ns

        # Do local steps.
        if not (yield from self.work()):
            return
        self.computed_ns = self.now_ns

        # Upload the update, and retry if it is lost. The dispatch ends with the last attempt.
        for attempt in range(workload.upload_attempts):
            if not (yield from self.transfer(Direction.UP, workload.bytes_up)):
                return
            if not (
                workload.loses_uploads
                and workload.upload_is_lost(dispatch.client_id, dispatch.sequence, attempt)
            ):
                self.ending = ARRIVED
                return
        self.ending = Ending.LOST_UPLOAD

    def work(self) -> Generator[Activity, Reached, bool]:
        """Do local steps; returns whether there is an update to upload."""
        workload, dispatch = self.workload, self.dispatch
        client, sequence = dispatch.client_id, dispatch.sequence

        # Decide how many local steps to do. A client declines if even an immediate upload would miss the
        # deadline, and with foresight if it knows that it cannot do a step in time; otherwise it does at least one.
        work, steps = workload.computation(dispatch, self.now_ns), dispatch.steps
        began_ns = work.start_ns
        if workload.shortens:
            steps = workload.affordable_steps(work, steps, self.deadline_ns)
        if steps < 1:
            self.ending = Ending.DECLINED
            return False

        # Do these steps, unless the client crashes or its battery runs empty. A client that goes offline drops
        # the work, pauses, stops, or continues offline.
        end_ns, steps = workload.local_steps(work, steps, self.online_until_ns)
        crash_ns = empty_ns = fails_ns = NEVER
        if workload.fails:
            crash_ns = workload.crash_after_ns(client, sequence)
            empty_ns = NEVER if self._battery is None else self._battery.lasts_ns(COMPUTE)
            fails_ns = workload.after_work_ns(client, began_ns, min(crash_ns, empty_ns))
        until_ns = max(self.now_ns, min(end_ns, self.stop_ns, fails_ns))
        if workload.drops and until_ns > self.online_until_ns:
            until_ns = self.online_until_ns
        self.now_ns, _ = yield Span(until_ns, works=True)
        self.compute_ns = workload.time_at_work_ns(client, began_ns, self.now_ns)
        if self._battery is not None:
            self._battery.discharge(COMPUTE, self.compute_ns)
        if self.now_ns < end_ns or end_ns >= NEVER:
            self.steps_done = workload.steps_by(work, steps, self.now_ns)
            if self.now_ns >= fails_ns:
                self.ending = Ending.CRASH if crash_ns <= empty_ns else Ending.BATTERY
            elif self.now_ns < self.stop_ns:
                self.ending = Ending.OFFLINE
            return False
        self.steps_done = steps
        if steps < 1:
            self.ending = Ending.OFFLINE
        return steps >= 1

    def transfer(
        self, direction: Direction, size_bytes: float
    ) -> Generator[Activity, Reached, bool]:
        """Move bytes whenever the client is online; returns whether all of them arrived."""
        before, moved, battery = self._bytes[direction], 0.0, self._battery
        phase = DOWNLOAD if direction is Direction.DOWN else UPLOAD
        # The client may have left and come back while computing.
        online = self.now_ns <= self.online_until_ns or (yield from self._return())
        while online:
            began_ns = self.now_ns
            until_ns = min(self.online_until_ns, self.stop_ns)
            empty_ns = _BEYOND
            if battery is not None:
                empty_ns = began_ns + battery.lasts_ns(phase)
                until_ns = min(until_ns, empty_ns)
            self.now_ns, moved_now = yield Transfer(direction, size_bytes - moved, until_ns)
            worked_ns = self.now_ns - began_ns
            self._transfer_ns[direction] += worked_ns
            if battery is not None:
                battery.discharge(phase, worked_ns)
            if moved_now is None:
                self._bytes[direction] = before + size_bytes
                return True
            moved += moved_now
            self._bytes[direction] = before + moved
            if self.now_ns >= empty_ns:
                self.ending = Ending.BATTERY
                return False
            online = yield from self._return()
        return False

    def _return(self) -> Generator[Activity, Reached, bool]:
        """Wait until a client that has left is back; returns False if the dispatch is dropped or stopped first."""
        if self.now_ns >= self.stop_ns:
            return False
        if self.workload.drops:
            self.ending = Ending.OFFLINE
            return False
        self._returns += 1
        if self._returns > _MOST_RETURNS:
            raise UserError(
                f"client {self.dispatch.client_id} left and came back {format_count(_MOST_RETURNS)} times during one "
                "dispatch: its sessions are too short for the network, so the run would never end",
                where="devices.availability",
                hint="check the unit of the trace's times, or end such dispatches: on_disconnect: drop",
            )
        availability = self.workload.population.availability
        back_ns = availability.next_online(self.dispatch.client_id, self.now_ns)
        if back_ns > self.now_ns:
            self.now_ns, _ = yield Span(min(back_ns, self.stop_ns), works=False)
            if self.now_ns >= self.stop_ns:
                return False
        self.online_until_ns = availability.online_until(self.dispatch.client_id, self.now_ns)
        return True

    def plan(self) -> Plan:
        """The course of the dispatch up to now."""
        bytes_down, bytes_up = self._bytes
        download_ns, upload_ns = self._transfer_ns
        marks = self.downloaded_ns, self.computed_ns, self.steps_done, bytes_down, bytes_up
        return Plan(self.now_ns, self.ending, *marks, download_ns, self.compute_ns, upload_ns)


MakeProcess = Callable[[Dispatch, int | None, int], DispatchProcess]
"""Makes the process of a dispatch from its deadline and the time at which its client goes offline."""
