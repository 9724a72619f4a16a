"""Plans of dispatches in closed form.

Where links are not shared, everything that will happen to a dispatch follows at once from the population's columns.
That is why a dispatch is a single event. The server never sees a plan.
"""

from __future__ import annotations

import numpy as np

from fedsim.network.base import Direction
from fedsim.simulation.life import Life, Plan, Reached, Transfer
from fedsim.simulation.workload import Workload
from fedsim.traces.availability import NEVER

_BEYOND = 2 * NEVER - 1
"""Later than every instant, NEVER included."""
# A named tuple's own constructor costs one more call, which every dispatch would pay.
_NEW_TUPLE = tuple.__new__


class Planner:
    """Plans the dispatches of one workload on a network whose links are not shared."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._network = workload.population.network
        self._compute = workload.population.compute
        self._phases, self._steps_vary = self._constant_phases()

    def _constant_phases(self) -> tuple[memoryview[int] | None, bool]:
        """Durations of the phases of undisturbed dispatches, and whether that of a local step is still to be asked for.

        Download, local step and upload (ns) of client 0, of client 1 and so on, since they are read together; None
        if they are not constant.
        """
        workload, network, compute = self._workload, self._network, self._compute
        varies = workload.shortens or workload.crashes or workload.loses_uploads
        if varies or not compute.steady:
            return None, True
        down_ns = network.constant_transfers_ns(Direction.DOWN, workload.bytes_down)
        up_ns = network.constant_transfers_ns(Direction.UP, workload.bytes_up)
        if down_ns is None or up_ns is None:
            return None, True
        step_ns = compute.constant_steps_ns()
        steps = np.zeros_like(up_ns) if step_ns is None else step_ns
        phases = [np.where(column < NEVER, column, _BEYOND) for column in (down_ns, steps, up_ns)]
        return np.stack(phases, axis=1).reshape(-1).data, step_ns is None

    def plan(
        self,
        client: int,
        sequence: int,
        start_ns: int,
        steps: int,
        deadline_ns: int | None,
        online_until_ns: int,
    ) -> Plan:
        """What will become of a dispatch: :meth:`live`, without its cost if nothing disturbs the dispatch.

        Undisturbed means that the client stays online until the update has arrived, and nothing fails. Then the phases
        follow one another without a pause, whatever the disconnect policy.

        Args:
            client: the client; online at ``start_ns``.
            sequence: number of earlier dispatches of the client; keys its jitter and failures.
            start_ns: when the work is handed out.
            steps: local steps asked for.
            deadline_ns: latest useful arrival, if one was announced.
            online_until_ns: when the client goes offline.
        """
        phases = self._phases
        if phases is not None:
            at = client * 3
            downloaded = start_ns + phases[at]
            if self._steps_vary:
                computed = downloaded + self._compute.step_ns(client, sequence, start_ns) * steps
            else:
                computed = downloaded + phases[at + 1] * steps
            end = computed + phases[at + 2]
            done = steps
        else:
            downloaded, computed, end, done = self._undisturbed(
                client, sequence, start_ns, steps, deadline_ns, online_until_ns
            )
        if end > online_until_ns:
            return self.live(client, sequence, start_ns, steps, deadline_ns)
        workload = self._workload
        down, up = workload.bytes_down, workload.bytes_up
        return _NEW_TUPLE(
            Plan,
            (
                end,
                True,
                downloaded,
                computed,
                done,
                down,
                up,
                downloaded - start_ns,
                computed - downloaded,
                end - computed,
            ),
        )

    def _undisturbed(
        self,
        client: int,
        sequence: int,
        start_ns: int,
        steps: int,
        deadline_ns: int | None,
        online_until_ns: int,
    ) -> tuple[int, int, int, int]:
        """Ends of the three phases, and local steps; the last end is beyond all time if the dispatch is disturbed."""
        workload, network, compute = self._workload, self._network, self._compute
        disturbed = -1, -1, _BEYOND, 0
        off_ns = min(online_until_ns, NEVER - 1)
        if workload.crashes:
            off_ns = min(off_ns, workload.crash_ns(client, sequence, start_ns))
        downloaded = network.transfer_end_ns(
            client, Direction.DOWN, workload.bytes_down, start_ns, sequence
        )
        if downloaded > off_ns:
            return disturbed
        step_ns = compute.step_ns(client, sequence, start_ns)
        if workload.shortens:
            steps = workload.affordable_steps(
                client, sequence, steps, downloaded, step_ns, deadline_ns
            )
            if steps < 1:
                return disturbed
        if compute.steady:
            computed = downloaded + step_ns * steps
        else:
            work_ns = compute.work_ns(client, sequence, step_ns, steps)
            computed = compute.finish(client, downloaded, work_ns)
        if computed > off_ns or workload.upload_is_lost(client, sequence, 0):
            return disturbed
        end = network.transfer_end_ns(client, Direction.UP, workload.bytes_up, computed, sequence)
        return (downloaded, computed, end, steps) if end <= off_ns else disturbed

    def live(
        self,
        client: int,
        sequence: int,
        start_ns: int,
        steps: int,
        deadline_ns: int | None,
        stop_ns: int = NEVER,
    ) -> Plan:
        """Run a dispatch's :class:`fedsim.simulation.life.Life` in closed form, up to ``stop_ns``; see :meth:`plan`."""
        network = self._network
        online_until_ns = self._workload.population.availability.online_until(client, start_ns)
        life = Life(
            self._workload, client, sequence, start_ns, steps, deadline_ns, online_until_ns, stop_ns
        )
        story = life.story()
        try:
            activity = next(story)
            while True:
                reached: Reached = activity.until_ns, None
                if type(activity) is Transfer:
                    direction, size, until_ns = activity
                    end_ns = network.transfer_end_ns(client, direction, size, life.now_ns, sequence)
                    if end_ns <= until_ns and end_ns < NEVER:
                        reached = end_ns, None
                    elif until_ns < NEVER:
                        reached = (
                            until_ns,
                            network.bytes_by(
                                client, direction, size, life.now_ns, until_ns, sequence
                            ),
                        )
                    else:
                        reached = NEVER, 0.0
                activity = story.send(reached)
        except StopIteration:
            return life.plan()
