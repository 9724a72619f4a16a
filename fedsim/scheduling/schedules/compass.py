"""The Compass schedule: assigns numbers of local steps so that clients arrive in groups."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Self

from pydantic import Field, model_validator

from fedsim.scheduling.base import ANYTHING, Dispatch, Selection, ServerPort, Story, WakeUp
from fedsim.scheduling.continuous import Continuous

# Quotients that differ by less than this are the same number of steps: both come from rounded nanoseconds.
_STEPS_TOLERANCE = 1e-9
_NS_TOLERANCE = 1e-3


class Compass(Continuous):
    """The Compass scheduler of FedCompass.

    Every client participates all the time. Its first update measures its speed and creates a version by itself. From
    then on, whenever a client needs work, it joins the group whose expected arrival leaves it time for the most local
    steps within bounds, or opens a group that others can join later. A group's updates create one version when the last
    member has arrived, or at the group's latest time; an update that arrives later goes into the next version that any
    group creates, and its client gets new work immediately. A client that goes offline leaves its group, and gets work
    when it checks in again.

    At one instant, updates are handled one after another, each completely, in order of dispatching, and then the latest
    times of groups, in order of creation: an update that arrives exactly at the latest time is in time. Members of a
    group get work fastest first, and in order of arrival if equally fast.

    Each update is marked with the number of its group, from 1; 0 is a client's first update. Every version passes to
    the method ``group`` (0 if a first update made it), and for the record ``target_s`` (expected arrival) and
    ``open_groups`` (those still waiting). An update whose mark is not ``group`` is late.
    """

    name = "compass"
    needs_all_clients = True
    paper = (
        "Li et al., FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices Using a "
        "Computing Power-Aware Scheduler, ICLR 2024, Algorithms 1 to 3"
    )

    class Params(Continuous.Params):
        max_steps: int | None = Field(default=None, ge=1)
        """Maximum number of local steps of a dispatch (Q_max); default: the largest full workload of a client."""
        min_steps: int | None = Field(default=None, ge=1)
        """Minimum number of local steps of a dispatch (Q_min); default: a fifth of ``max_steps``."""
        latest_factor: float = Field(default=1.2, ge=1)
        """A group waits at most this many times its expected waiting time (lambda); members that arrive after that are
        late."""
        warmup_steps: int | None = Field(default=None, ge=1)
        """Local steps of a client's first dispatch, which measures its speed; default: ``min_steps``."""
        beta_s: float = Field(default=1.0, gt=0, le=1)
        """Weight of the newest observation in the estimate of a client's speed; with 1 only the newest counts."""
        create_ref: Literal["target", "latest"] = "target"
        """Whether a new group is fitted to the expected arrival of the other groups, as in the paper, or to their
        latest time, as in the paper's code."""
        create_skip_overflow: bool = False
        """When fitting a new group, ignore groups that it could meet only with more than ``max_steps`` steps; the paper
        includes them."""
        join_slack: float = Field(default=1.0, ge=1)
        """A client may join a group that leaves it time for up to this many times ``max_steps``."""
        empty_timer: Literal["flush", "keep"] = "flush"
        """Behavior of a group none of whose members arrived in time: create a version from the late updates of other
        groups, or leave these to the next group."""

        @model_validator(mode="after")
        def _bounds(self) -> Self:
            if self.min_steps and self.max_steps and self.min_steps > self.max_steps:
                raise ValueError("min_steps must not be more than max_steps")
            return self

    def __init__(self, params: Params, server: ServerPort, selection: Selection) -> None:
        super().__init__(params, server, selection)
        full_steps = int(server.default_steps.max())
        self.max_steps = params.max_steps or max(full_steps, params.min_steps or 1)
        self.min_steps = params.min_steps or max(1, self.max_steps // 5)
        self.warmup_steps = params.warmup_steps or self.min_steps
        # Estimated nanoseconds of a local step, transfers included, of every client that has answered.
        self.step_ns: dict[int, float] = {}
        # Groups that can be joined, in order of creation.
        self.open: list[ArrivalGroup] = []
        self._made = 0
        self._group_of: dict[int, ArrivalGroup] = {}
        self._late: list[Dispatch] = []
        self._late_marks: list[int] = []

    def run(self) -> Story[None]:
        """Give every client its first work; then handle what happens as the class describes."""
        for client in range(self.server.clients):
            self._give_work(client)
        while True:
            event = yield ANYTHING
            if isinstance(event, WakeUp):
                self._finish(event.value)
            elif event.arrived:
                self._received(event)
            else:
                self._lost(event)

    def _give_work(self, client: int) -> None:
        self.dispatch(client, partial(self._assign, client))

    def _assign(self, client: int) -> int:
        """Local steps for a client that gets work now; puts it into a group once its speed is known."""
        if client not in self.step_ns:
            return self.warmup_steps
        group, steps = self.assign(client, self.server.now_ns)
        if group.timer is None:
            group.timer = self.at(group.latest_ns, group)
        self._group_of[client] = group
        return steps

    def _received(self, dispatch: Dispatch) -> None:
        client = dispatch.client
        self.observe(client, self.server.now_ns - dispatch.dispatched_ns, dispatch.steps_done)
        group = self._group_of.pop(client, None)
        if group is None:
            self._make_version([dispatch], [0], 0, self.server.now_ns)
            self._give_work(client)
            return
        group.pending.remove(client)
        if group in self.open:
            group.arrived.append(dispatch)
            if not group.pending:
                self._finish(group)
        else:
            self._late.append(dispatch)
            self._late_marks.append(group.number)
            self._give_work(client)

    def _lost(self, dispatch: Dispatch) -> None:
        """Take the client out of its group, and give it work when it checks in."""
        group = self._group_of.pop(dispatch.client, None)
        if group is not None:
            group.pending.remove(dispatch.client)
            if not group.pending and group in self.open:
                if group.arrived:
                    self._finish(group)
                else:
                    self._close(group)
        self._give_work(dispatch.client)

    def _finish(self, group: ArrivalGroup) -> None:
        """Create a version from the members that have arrived, and give them work."""
        # Closed first, so that its members do not join it again.
        self._close(group)
        members = group.arrived
        if members or (self._late and self.params.empty_timer == "flush"):
            late, self._late = self._late, []
            late_marks, self._late_marks = self._late_marks, []
            marks = [group.number] * len(members) + late_marks
            self._make_version([*members, *late], marks, group.number, group.target_ns)
        for client in sorted((one.client for one in members), key=self.step_ns.__getitem__):
            self._give_work(client)

    def _close(self, group: ArrivalGroup) -> None:
        """Close a group to further members."""
        self.open.remove(group)
        if group.timer is not None:
            group.timer.cancel()

    def _make_version(
        self, updates: list[Dispatch], marks: list[int], group: int, target_ns: int
    ) -> None:
        self.aggregate(
            updates, marks, group=group, target_s=target_ns / 1e9, open_groups=len(self.open)
        )

    # -- Algorithm 2 of the paper, without a clock -----------------------------------------------------------------

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
        for group in self.open:
            steps = self._steps(client, group.target_ns - now_ns)
            if self.min_steps <= steps <= most and (best is None or steps >= best[1]):
                best = group, steps
        return best

    def create(self, client: int, now_ns: int) -> tuple[ArrivalGroup, int]:
        """A new group that an open one will be able to join after its next round."""
        steps = -1
        from_latest = self.params.create_ref == "latest"
        for group in self.open:
            reference_ns = group.latest_ns if from_latest else group.target_ns
            if now_ns >= reference_ns:
                continue
            members = [*group.pending, *(dispatch.client for dispatch in group.arrived)]
            fastest_ns = min(self.step_ns[member] for member in members)
            fitting = self._steps(client, reference_ns + fastest_ns * self.max_steps - now_ns)
            if not (self.params.create_skip_overflow and fitting > self.max_steps):
                steps = max(steps, fitting)
        steps = self.max_steps if steps < 0 else min(max(steps, self.min_steps), self.max_steps)
        # Rounded up, so that a client of the same speed has time for as many steps.
        wait_ns = math.ceil(steps * self.step_ns[client] - _NS_TOLERANCE)
        self._made += 1
        group = ArrivalGroup(
            self._made, now_ns + wait_ns, now_ns + round(self.params.latest_factor * wait_ns)
        )
        self.open.append(group)
        return group, steps

    def _steps(self, client: int, time_ns: float) -> int:
        return math.floor(time_ns / self.step_ns[client] + _STEPS_TOLERANCE)


@dataclass(slots=True, eq=False)
class ArrivalGroup:
    """Clients whose updates are to arrive together.

    Attributes:
        number: groups are numbered from 1.
        target_ns: when its members are expected (the paper's T_a).
        latest_ns: how long it waits for them (T_max).
        pending: clients whose update has not arrived, in order of joining (CL).
        arrived: updates that have arrived, in that order (ACL).
        timer: the wake-up at ``latest_ns``.
    """

    number: int
    target_ns: int
    latest_ns: int
    pending: list[int] = field(default_factory=list)
    arrived: list[Dispatch] = field(default_factory=list)
    timer: WakeUp | None = None
