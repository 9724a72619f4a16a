"""The life of a dispatch: :meth:`Life.story` defines what happens to it, and is read from top to bottom.

A life takes time only in the three activities that it yields: transfers, local steps, and waiting offline. Its runner
answers each with the instant at which it ended. :class:`fedsim.simulation.plan.Planner` runs a life in closed form, all
at once, if links are not shared; :class:`fedsim.simulation.contended.ContendedDispatches` runs it with events if they
are.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from fedsim.network.base import Direction
from fedsim.simulation.workload import Workload
from fedsim.traces.availability import NEVER


class Plan(NamedTuple):
    """What becomes of a dispatch.

    Attributes:
        end_ns: when it arrives or is dropped; NEVER if it hangs forever, and then nothing else has a meaning.
        arrives: whether it arrives.
        downloaded_ns, computed_ns: ends of the first two phases; -1 for one that does not end.
        steps_done: local steps done by the end.
        bytes_down, bytes_up: bytes that crossed the network by the end.
        download_ns, compute_ns, upload_ns: time at work in each phase, without pauses.
    """

    end_ns: int
    arrives: bool
    downloaded_ns: int
    computed_ns: int
    steps_done: int
    bytes_down: float
    bytes_up: float
    download_ns: int
    compute_ns: int
    upload_ns: int


class Transfer(NamedTuple):
    """Move bytes; broken off at ``until_ns`` unless the last byte has arrived by then."""

    direction: Direction
    size_bytes: float
    until_ns: int


class LocalSteps(NamedTuple):
    """Compute until ``until_ns``."""

    until_ns: int


class Offline(NamedTuple):
    """Wait, disconnected, until ``until_ns``."""

    until_ns: int


Activity = Transfer | LocalSteps | Offline
Reached = tuple[int, float | None]
"""When an activity ended, and the bytes that a transfer had moved if it was broken off; None if it was completed."""


class Life:
    """One dispatch under way.

    Args:
        workload: the rules of its work.
        client: the client; online at ``start_ns``.
        sequence: number of earlier dispatches of the client; keys its jitter and failures.
        start_ns: when the work is handed out.
        steps: local steps asked for.
        deadline_ns: latest useful arrival, if one was announced.
        online_until_ns: when the client goes offline first.
        stop_ns: when the dispatch is broken off, if the client does not crash before: the server calls it off, or the
            run ends. A runner that learns of it only then sets the attribute to the current instant.
    """

    __slots__ = (
        "_bytes",
        "_client",
        "_deadline_ns",
        "_off_ns",
        "_sequence",
        "_start_ns",
        "_steps",
        "_transfer_ns",
        "_workload",
        "arrives",
        "compute_ns",
        "computed_ns",
        "downloaded_ns",
        "now_ns",
        "steps_done",
        "stop_ns",
    )

    def __init__(
        self,
        workload: Workload,
        client: int,
        sequence: int,
        start_ns: int,
        steps: int,
        deadline_ns: int | None,
        online_until_ns: int,
        stop_ns: int = NEVER,
    ) -> None:
        self._workload = workload
        self._client = client
        self._sequence = sequence
        self._start_ns = self.now_ns = start_ns
        self._steps = steps
        self._deadline_ns = deadline_ns
        self._off_ns = online_until_ns
        self.stop_ns = min(stop_ns, workload.crash_ns(client, sequence, start_ns))
        self.arrives = False
        self.downloaded_ns = self.computed_ns = -1
        self.steps_done = self.compute_ns = 0
        self._bytes = [0.0, 0.0]
        self._transfer_ns = [0, 0]

    def story(self) -> Generator[Activity, Reached, None]:
        """The activities of the dispatch, in order; after the last it has arrived, is dropped or was stopped."""
        workload, client, sequence = self._workload, self._client, self._sequence

        # Step 1. Download the model.
        if not (yield from self._transfer(Direction.DOWN, workload.bytes_down)):
            return
        self.downloaded_ns = began_ns = self.now_ns

        # Step 2. Settle how many local steps to do. A client that cannot do one before the deadline declines.
        step_ns = workload.population.compute.step_ns(client, sequence, self._start_ns)
        steps = workload.affordable_steps(
            client, sequence, self._steps, began_ns, step_ns, self._deadline_ns
        )
        if steps < 1:
            return

        # Step 3. Do them, as far as the client's absence allows: it drops the work, pauses, or goes on offline.
        end_ns, steps = workload.local_steps(client, sequence, began_ns, step_ns, steps)
        until_ns = min(end_ns, self.stop_ns)
        if workload.drops:
            until_ns = min(until_ns, self._off_ns)
        self.now_ns, _ = yield LocalSteps(until_ns)
        self.compute_ns = workload.time_at_work_ns(client, began_ns, self.now_ns)
        if self.now_ns < end_ns or end_ns >= NEVER:
            self.steps_done = workload.steps_by(
                client, sequence, began_ns, step_ns, steps, self.now_ns
            )
            return
        self.steps_done = steps
        if steps < 1:
            return
        self.computed_ns = end_ns

        # Step 4. Upload the update, again if it is lost. The dispatch ends with the last attempt.
        for attempt in range(workload.upload_attempts):
            if not (yield from self._transfer(Direction.UP, workload.bytes_up)):
                return
            if not workload.upload_is_lost(client, sequence, attempt):
                self.arrives = True
                return

    def _transfer(
        self, direction: Direction, size_bytes: float
    ) -> Generator[Activity, Reached, bool]:
        """Move bytes whenever the client is online; returns whether all of them arrived."""
        before, moved = self._bytes[direction], 0.0
        # A client may have left, and come back, while it computed.
        online = self.now_ns <= self._off_ns or (yield from self._return())
        while online:
            began_ns = self.now_ns
            until_ns = min(self._off_ns, self.stop_ns)
            self.now_ns, part = yield Transfer(direction, size_bytes - moved, until_ns)
            self._transfer_ns[direction] += self.now_ns - began_ns
            if part is None:
                self._bytes[direction] = before + size_bytes
                return True
            moved += part
            self._bytes[direction] = before + moved
            online = yield from self._return()
        return False

    def _return(self) -> Generator[Activity, Reached, bool]:
        """Wait until a client that has left is back; returns False if the dispatch is dropped or stopped first."""
        if self.now_ns >= self.stop_ns or self._workload.drops:
            return False
        availability = self._workload.population.availability
        back_ns = availability.next_online(self._client, self.now_ns)
        if back_ns > self.now_ns:
            self.now_ns, _ = yield Offline(min(back_ns, self.stop_ns))
            if self.now_ns >= self.stop_ns:
                return False
        self._off_ns = availability.online_until(self._client, self.now_ns)
        return True

    def plan(self) -> Plan:
        """What has become of the dispatch by now."""
        bytes_down, bytes_up = self._bytes
        download_ns, upload_ns = self._transfer_ns
        return Plan(
            self.now_ns,
            self.arrives,
            self.downloaded_ns,
            self.computed_ns,
            self.steps_done,
            bytes_down,
            bytes_up,
            download_ns,
            self.compute_ns,
            upload_ns,
        )
