"""The life of a dispatch in closed form: download, compute, upload, arrive, or go offline on the way.

Where links are not shared, everything that will happen to a dispatch follows at once from the population's
columns: that is
why a dispatch is one event. The server never sees a plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedsim.devices.population import Population
from fedsim.network.base import Direction
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import Failures
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.drawn_work import DrawnWork
from fedsim.traces.availability import NEVER
from fedsim.units import NS_PER_S

_DOWN, _UP = Direction.DOWN, Direction.UP
_NS_PER_HOUR = 3600 * NS_PER_S
_BEYOND = 2 * NEVER - 1
# A named tuple's own constructor costs a call more, which every dispatch would pay.
_NEW_TUPLE = tuple.__new__


class Plan(NamedTuple):
    """What will happen to a dispatch, unless the server cuts it.

    Attributes:
        end_ns: when it arrives or is dropped; NEVER where it hangs for ever.
        arrives: whether it arrives.
        downloaded_ns, computed_ns: ends of the first two phases; -1 for one that does not end.
        steps_done: local steps done by the end.
        bytes_down, bytes_up: bytes that crossed the network by the end.
        download_ns, compute_ns, upload_ns: time at work in each phase, pauses left out.
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


class Planner:
    """Plans dispatches; whole ones where the network is not contended, their compute phases everywhere.

    Args:
        population: devices.
        failures: crashes and lost uploads.
        bytes_down: bytes of a download.
        bytes_up: bytes of an upload.
        send_partial_work: whether a client that cannot finish before a deadline stops in time to send what it has.
        seed: the scenario's seed.
        prologue: plans the dispatches of the method's prologue, where it has one.
        first: plans every client's first dispatch, where its download is larger.
        partial_unit: local steps of the smallest piece of work that a client sends, (N,), such as an epoch; single
            steps where None.
        drawn: work that clients do by a draw instead of what is asked of them, where the scenario has it.
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
        prologue: Planner | None = None,
        first: Planner | None = None,
        partial_unit: Sequence[int] | None = None,
        drawn: DrawnWork | None = None,
    ) -> None:
        self._prologue = prologue
        self._first = first
        self._partial_unit = partial_unit
        self._drawn = drawn
        self._shortens = send_partial_work or drawn is not None
        self.population = population
        self._network = population.network
        self.bytes_down = bytes_down
        self.bytes_up = bytes_up
        self._send_partial_work = send_partial_work
        self._policy = population.on_disconnect
        self._failures = failures
        self._crash_stream = Stream(seed, Purpose.FAILURE, 0)
        self._loss_stream = Stream(seed, Purpose.FAILURE, 1)
        self._reliable = failures.crash_rate == 0 and failures.upload_loss == 0
        self._phases, self._steps_vary = self._constant_phases()

    def _constant_phases(self) -> tuple[memoryview[int] | None, bool]:
        """What dispatches that nothing interrupts take; and whether local steps are still to be asked for.

        Download, local step and upload (ns) of client 0, of client 1 and so on, since they are read together; None
        where there is more to a dispatch than that.
        """
        population = self.population
        compute = population.compute
        plain = self._policy == "drop" and self._reliable and not self._shortens
        if population.network.contended or not plain or not compute.steady:
            return None, True
        down_ns = self._network.constant_transfers_ns(_DOWN, self.bytes_down)
        up_ns = self._network.constant_transfers_ns(_UP, self.bytes_up)
        if down_ns is None or up_ns is None:
            return None, True
        step_ns = compute.constant_steps_ns()
        steps = np.zeros_like(up_ns) if step_ns is None else step_ns
        # What never ends must end after every instant, NEVER included.
        phases = [np.where(column < NEVER, column, _BEYOND) for column in (down_ns, steps, up_ns)]
        return np.stack(phases, axis=1).reshape(-1).data, step_ns is None

    @property
    def plans_all(self) -> bool:
        """Whether it is the planner of every dispatch."""
        return self._prologue is None and self._first is None

    def of(self, dispatch: Dispatch) -> Planner:
        """The planner of this dispatch: of the prologue, where there is one and it hands out version 0, of a client's
        first dispatch, where that is another, or itself."""
        if self._prologue is not None and not dispatch.version:
            return self._prologue
        return self if self._first is None or dispatch.sequence else self._first

    def plan(
        self,
        client: int,
        sequence: int,
        start_ns: int,
        steps: int,
        deadline_ns: int | None,
        cut_ns: int = NEVER,
        online_until_ns: int | None = None,
    ) -> Plan:
        """The plan of a dispatch.

        Args:
            client: who works; online at ``start_ns``.
            sequence: how many dispatches it had before; keys its jitter and failures.
            start_ns: hand-out.
            steps: local steps asked for.
            deadline_ns: latest useful arrival, where announced.
            cut_ns: the server cuts the dispatch at this time: what is done by then.
            online_until_ns: when the client goes offline, where that is known already.
        """
        population = self.population
        if not self._reliable:
            cut_ns = min(cut_ns, self.crash_ns(client, sequence, start_ns))
        if self._policy != "drop":
            return self._plan_with_pauses(client, sequence, start_ns, steps, deadline_ns, cut_ns)
        if online_until_ns is None:
            online_until_ns = population.availability.online_until(client, start_ns)
        off_ns = online_until_ns if online_until_ns < cut_ns else cut_ns
        compute = population.compute
        phases = self._phases
        if phases is not None:
            at = client * 3
            download_ns, upload_ns = phases[at], phases[at + 2]
            if self._steps_vary:
                compute_ns = compute.step_ns(client, sequence, start_ns) * steps
            else:
                compute_ns = phases[at + 1] * steps
            downloaded = start_ns + download_ns
            computed = downloaded + compute_ns
            end = computed + upload_ns
            if end <= off_ns:
                down, up = self.bytes_down, self.bytes_up
                return _NEW_TUPLE(
                    Plan,
                    (
                        end,
                        True,
                        downloaded,
                        computed,
                        steps,
                        down,
                        up,
                        download_ns,
                        compute_ns,
                        upload_ns,
                    ),
                )
        network = self._network
        downloaded = network.transfer_end_ns(client, _DOWN, self.bytes_down, start_ns, sequence)
        if downloaded > off_ns:
            return self._dropped_in_download(client, sequence, start_ns, off_ns)
        step_ns = compute.step_ns(client, sequence, start_ns)
        if self._shortens:
            steps = self.affordable_steps(client, sequence, steps, downloaded, step_ns, deadline_ns)
            if steps < 1:
                return Plan(
                    downloaded,
                    False,
                    downloaded,
                    -1,
                    0,
                    self.bytes_down,
                    0.0,
                    downloaded - start_ns,
                    0,
                    0,
                )
        if compute.steady:
            computed = downloaded + step_ns * steps
        else:
            work_ns = compute.work_ns(client, sequence, step_ns, steps)
            computed = compute.finish(client, downloaded, work_ns)
        if computed > off_ns:
            worked_ns = compute.worked(client, downloaded, off_ns)
            return Plan(
                off_ns,
                False,
                downloaded,
                -1,
                compute.steps_of(client, sequence, step_ns, steps, worked_ns),
                self.bytes_down,
                0.0,
                downloaded - start_ns,
                off_ns - downloaded,
                0,
            )
        end = network.transfer_end_ns(client, _UP, self.bytes_up, computed, sequence)
        sent, arrives = self.bytes_up, True
        if end > off_ns or not self._reliable:
            end, sent, arrives = self._upload(client, sequence, computed, off_ns)
        return Plan(
            end,
            arrives,
            downloaded,
            computed,
            steps,
            self.bytes_down,
            sent,
            downloaded - start_ns,
            computed - downloaded,
            end - computed,
        )

    def crash_ns(self, client: int, sequence: int, start_ns: int) -> int:
        """When this dispatch would crash; NEVER without crashes."""
        if not self._failures.crash_rate:
            return NEVER
        u = self._crash_stream.uniform(client, sequence)
        after_ns = -math.log(u) / self._failures.crash_rate * _NS_PER_HOUR
        return start_ns + int(after_ns) if after_ns < NEVER else NEVER

    @property
    def upload_attempts(self) -> int:
        """How often an upload is sent at the most."""
        return self._failures.upload_retries + 1

    def upload_is_lost(self, client: int, sequence: int, attempt: int) -> bool:
        """Whether this upload of a dispatch (``attempt`` from 0) does not arrive."""
        if not self._failures.upload_loss:
            return False
        u = self._loss_stream.uniform(client, sequence * self.upload_attempts + attempt)
        return u < self._failures.upload_loss

    def _dropped_in_download(self, client: int, sequence: int, start_ns: int, off_ns: int) -> Plan:
        moved = self._network.bytes_by(client, _DOWN, self.bytes_down, start_ns, off_ns, sequence)
        return Plan(off_ns, False, -1, -1, 0, moved, 0.0, off_ns - start_ns, 0, 0)

    def affordable_steps(
        self,
        client: int,
        sequence: int,
        steps: int,
        downloaded_ns: int,
        step_ns: int,
        deadline_ns: int | None,
    ) -> int:
        """Local steps a client does: those asked for (or drawn), or with partial work as many as are done when it must
        send.

        It sends in time for its upload to reach the server by the deadline at the link's nominal rate. A client
        that has
        done no whole step by then declines (0).
        """
        if self._drawn is not None:
            steps = self._drawn.steps(client, sequence, steps)
        if deadline_ns is None or not self._send_partial_work:
            return steps
        send_ns = deadline_ns - self.population.upload_estimate_ns(client, self.bytes_up)
        if send_ns < downloaded_ns:
            return 0
        worked_ns = self._worked(client, downloaded_ns, send_ns)
        done = self.population.compute.steps_of(client, sequence, step_ns, steps, worked_ns)
        return self._whole(client, done, steps)

    def _whole(self, client: int, done: int, steps: int) -> int:
        """The steps that a client sends which has ``done`` so many of ``steps``: whole pieces only."""
        if self._partial_unit is None or done >= steps:
            return done
        return done - done % self._partial_unit[client]

    def _upload(
        self, client: int, sequence: int, start_ns: int, off_ns: int
    ) -> tuple[int, float, bool]:
        """End of an upload with its repetitions, bytes sent by then, and whether it arrives."""
        network, size = self._network, self.bytes_up
        end, sent = start_ns, 0.0
        for attempt in range(self.upload_attempts):
            begin, end = end, network.transfer_end_ns(client, _UP, size, end, sequence)
            if end > off_ns:
                moved = network.bytes_by(client, _UP, size, begin, off_ns, sequence)
                return off_ns, sent + moved, False
            sent += size
            if self._reliable or not self.upload_is_lost(client, sequence, attempt):
                return end, sent, True
        return end, sent, False

    # -- clients that pause instead of dropping out -------------------------------------------------------------

    def _plan_with_pauses(
        self,
        client: int,
        sequence: int,
        start_ns: int,
        steps: int,
        deadline_ns: int | None,
        cut_ns: int,
    ) -> Plan:
        population = self.population
        downloaded, moved, download_ns = self._transfer(
            client, sequence, _DOWN, self.bytes_down, start_ns, cut_ns
        )
        if downloaded > cut_ns or downloaded == NEVER:
            return Plan(min(cut_ns, downloaded), False, -1, -1, 0, moved, 0.0, download_ns, 0, 0)
        step_ns = population.compute.step_ns(client, sequence, start_ns)
        if self._shortens:
            steps = self.affordable_steps(client, sequence, steps, downloaded, step_ns, deadline_ns)
            if steps < 1:
                return Plan(
                    downloaded, False, downloaded, -1, 0, self.bytes_down, 0.0, download_ns, 0, 0
                )
        computed, steps, compute_ns = self.compute_phase(
            client, sequence, downloaded, step_ns, steps, cut_ns
        )
        if computed > cut_ns or computed == NEVER or steps < 1:
            end = min(cut_ns, computed)
            return Plan(
                end, False, downloaded, -1, steps, self.bytes_down, 0.0, download_ns, compute_ns, 0
            )
        arrived, sent, upload_ns = computed, 0.0, 0
        arrives = False
        for attempt in range(self.upload_attempts):
            arrived, moved, spent_ns = self._transfer(
                client, sequence, _UP, self.bytes_up, arrived, cut_ns
            )
            sent, upload_ns = sent + moved, upload_ns + spent_ns
            if arrived > cut_ns or arrived == NEVER:
                break
            arrives = not self.upload_is_lost(client, sequence, attempt)
            if arrives:
                break
        return Plan(
            min(cut_ns, arrived),
            arrives,
            downloaded,
            computed,
            steps,
            self.bytes_down,
            sent,
            download_ns,
            compute_ns,
            upload_ns,
        )

    def _transfer(
        self,
        client: int,
        sequence: int,
        direction: Direction,
        size: float,
        start_ns: int,
        cut_ns: int,
    ) -> tuple[int, float, int]:
        """A transfer that pauses while the client is offline: its end, bytes moved by then or by the cut, time at
        work."""
        network, availability = self._network, self.population.availability
        at, moved, busy_ns = availability.next_online(client, start_ns), 0.0, 0
        while at < cut_ns:
            off = min(availability.online_until(client, at), cut_ns)
            end = network.transfer_end_ns(client, direction, size - moved, at, sequence)
            if end <= off:
                return end, size, busy_ns + end - at
            moved += network.bytes_by(client, direction, size - moved, at, off, sequence)
            busy_ns += off - at
            at = availability.next_online(client, off)
        return NEVER, moved, busy_ns

    def compute_phase(
        self, client: int, sequence: int, start_ns: int, step_ns: int, steps: int, cut_ns: int
    ) -> tuple[int, int, int]:
        """End of the local steps under the disconnect policy, steps done by then or by the cut, time at work."""
        compute, availability = self.population.compute, self.population.availability
        work_ns = compute.work_ns(client, sequence, step_ns, steps)
        if self._policy == "pause":
            end = self._finish_with_pauses(client, start_ns, work_ns)
        else:
            end = compute.finish(client, start_ns, work_ns)
        if self._policy == "send_partial":
            # The download may end at the very instant at which the client goes offline: then this is start_ns.
            off = availability.online_until(client, start_ns)
            if end > off:
                work_ns, end = compute.worked(client, start_ns, off), off
                done = compute.steps_of(client, sequence, step_ns, steps, work_ns)
                steps = self._whole(client, done, steps)
        if end <= cut_ns:
            return end, steps, self._time_at_work(client, start_ns, end)
        worked_ns = self._worked(client, start_ns, cut_ns)
        done = compute.steps_of(client, sequence, step_ns, steps, worked_ns)
        return NEVER, done, self._time_at_work(client, start_ns, cut_ns)

    def _finish_with_pauses(self, client: int, start_ns: int, work_ns: int) -> int:
        compute, availability = self.population.compute, self.population.availability
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

    def _worked(self, client: int, start_ns: int, until_ns: int) -> int:
        """Work done under the disconnect policy, by a client that is online or works offline."""
        compute = self.population.compute
        if self._policy != "pause":
            return compute.worked(client, start_ns, until_ns)
        return sum(
            compute.worked(client, on, off) for on, off in self._online(client, start_ns, until_ns)
        )

    def _time_at_work(self, client: int, start_ns: int, until_ns: int) -> int:
        if self._policy != "pause":
            return until_ns - start_ns
        return sum(off - on for on, off in self._online(client, start_ns, until_ns))

    def _online(self, client: int, start_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
        """Spans within the given one in which the client is online."""
        availability = self.population.availability
        at = availability.next_online(client, start_ns)
        while at < end_ns:
            off = min(availability.online_until(client, at), end_ns)
            yield at, off
            at = availability.next_online(client, off)
