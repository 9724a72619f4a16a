"""Arrival groups of the Compass scheduler: which clients arrive together, when, and after how many local steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedsim.scheduling.base import Dispatch, Timer

if TYPE_CHECKING:
    from fedsim.scheduling.schedules.compass import CompassParams

# Two quotients that differ by less are the same number of steps: both are computed from rounded nanoseconds.
_STEPS_TOLERANCE = 1e-9
_NS_TOLERANCE = 1e-3


@dataclass(slots=True, eq=False)
class ArrivalGroup:
    """Clients whose updates are to arrive together.

    Attributes:
        number: groups are numbered from 1.
        created_ns: when it was created.
        target_ns: when its members are expected (the paper's T_a).
        latest_ns: how long it waits for them (T_max).
        pending: clients whose update has not arrived, in order of joining (CL).
        arrived: updates that have arrived, in that order (ACL).
        timer: the pending call at ``latest_ns``.
    """

    number: int
    created_ns: int
    target_ns: int
    latest_ns: int
    pending: list[int] = field(default_factory=list)
    arrived: list[Dispatch] = field(default_factory=list)
    timer: Timer | None = None


class ArrivalGroups:
    """The groups of one run and the speeds of its clients; pure bookkeeping, without a clock.

    Implements Algorithm 2 of Li et al., FedCompass, ICLR 2024.

    Attributes:
        step_ns: estimated nanoseconds of a local step, transfers included, of every client that has answered.
        open: groups that can be joined, by number, in order of creation.
        min_steps, max_steps: bounds of the local steps assigned (Q_min, Q_max).
    """

    def __init__(self, params: CompassParams, min_steps: int, max_steps: int) -> None:
        self.params = params
        self.min_steps = min_steps
        self.max_steps = max_steps
        self.step_ns: dict[int, float] = {}
        self.open: dict[int, ArrivalGroup] = {}
        self._made = 0

    def observe(self, client: int, duration_ns: int, steps: int) -> None:
        """Record that a client took this long for ``steps`` local steps."""
        # A step that takes no time counts as one nanosecond.
        observed = max(1.0, duration_ns / max(1, steps))
        before = self.step_ns.get(client, observed)
        share = self.params.beta_s
        self.step_ns[client] = observed if share == 1 else (1 - share) * before + share * observed

    def assign(self, client: int, now_ns: int) -> tuple[ArrivalGroup, int]:
        """Add a client to the best open group, or to a new one; returns the group and the client's steps."""
        group, steps = self.join(client, now_ns) or self.create(client, now_ns)
        group.pending.append(client)
        return group, steps

    def join(self, client: int, now_ns: int) -> tuple[ArrivalGroup, int] | None:
        """The open group that leaves the client time for most steps within bounds (ties go to the newest), if any."""
        most = math.floor(self.params.join_slack * self.max_steps)
        best: tuple[ArrivalGroup, int] | None = None
        for group in self.open.values():
            steps = self._steps(client, group.target_ns - now_ns)
            if self.min_steps <= steps <= most and (best is None or steps >= best[1]):
                best = group, steps
        return best

    def create(self, client: int, now_ns: int) -> tuple[ArrivalGroup, int]:
        """A new group that an open one will be able to join after its next round."""
        steps = -1
        from_latest = self.params.create_ref == "latest"
        for group in self.open.values():
            reference_ns = group.latest_ns if from_latest else group.target_ns
            if now_ns >= reference_ns:
                continue
            next_ns = reference_ns + self._fastest_ns(group) * self.max_steps
            fitting = self._steps(client, next_ns - now_ns)
            if not (self.params.create_skip_overflow and fitting > self.max_steps):
                steps = max(steps, fitting)
        steps = self.max_steps if steps < 0 else min(max(steps, self.min_steps), self.max_steps)
        # Rounded up, so that a client of the same speed has time for as many steps.
        wait_ns = math.ceil(steps * self.step_ns[client] - _NS_TOLERANCE)
        self._made += 1
        group = ArrivalGroup(
            self._made,
            now_ns,
            now_ns + wait_ns,
            now_ns + round(self.params.latest_factor * wait_ns),
        )
        self.open[group.number] = group
        return group, steps

    def close(self, group: ArrivalGroup) -> None:
        """Close a group to further members."""
        del self.open[group.number]
        if group.timer is not None:
            group.timer.cancel()

    def is_open(self, group: ArrivalGroup) -> bool:
        """Whether the group still waits for its members."""
        return group.number in self.open

    def _fastest_ns(self, group: ArrivalGroup) -> float:
        members = [*group.pending, *(dispatch.client for dispatch in group.arrived)]
        return min(self.step_ns[client] for client in members)

    def _steps(self, client: int, time_ns: float) -> int:
        return math.floor(time_ns / self.step_ns[client] + _STEPS_TOLERANCE)
