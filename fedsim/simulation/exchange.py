"""Rounds whose clients exchange their updates among themselves (:mod:`fedsim.network.exchanges.collectives`).

A client that has done its local steps waits for the others of its round; then they exchange, and all their updates
arrive at once. A member that goes offline, crashes or is stopped breaks the exchange: the others notice it after
``server.failure_detection``, and begin again without it. A client downloads the model only if it has not taken part in
the exchange that made it. Waiting and exchanging count as its upload, in time and energy.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from typing_extensions import override

from fedsim.devices.battery import UPLOAD
from fedsim.network.base import Direction
from fedsim.network.exchanges.collectives import Exchange, Step
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import Activity, DispatchProcess, JointWork, Reached
from fedsim.simulation.dispatches import Links
from fedsim.simulation.engine import SETTLING_ORDER, Engine
from fedsim.units import NEVER
from fedsim.vocabulary.outcomes import Ending


@dataclass(eq=False)
class _Group:
    """The members of a round that are not known to have left, by dispatch, and the exchange under way."""

    members: dict[int, Member] = field(default_factory=dict)
    ready: dict[int, Callable[[], None]] = field(default_factory=dict)
    stop: Callable[[], None] | None = None


class Member(DispatchProcess):
    """A dispatch that ends with an exchange instead of an upload."""

    is_done = has_left = False

    def __init__(self, exchanges: Exchanges, *args: Any) -> None:
        super().__init__(*args)
        self.exchanges = exchanges

    @override
    def run(self) -> Generator[Activity, Reached, None]:
        self.exchanges.join(self)
        try:
            yield from super().run()
        finally:
            self.exchanges.leave(self)

    @override
    def transfer(
        self, direction: Direction, size_bytes: float
    ) -> Generator[Activity, Reached, bool]:
        """A download, unless the client has the model, or the exchange, until it is done or the client leaves."""
        if direction is Direction.DOWN:
            if self.exchanges.has_model(self.dispatch):
                return True
            return (yield from super().transfer(direction, size_bytes))
        if self.now_ns > self.online_until_ns and not (yield from self._return()):
            return False
        began_ns, battery = self.now_ns, self._battery
        empty_ns = NEVER if battery is None else began_ns + battery.lasts_ns(UPLOAD)
        until_ns = min(self.online_until_ns, self.stop_ns, empty_ns)
        self.now_ns, _ = yield JointWork(until_ns, partial(self.exchanges.begin, self))
        self._transfer_ns[direction] += self.now_ns - began_ns
        if battery is not None:
            battery.discharge(UPLOAD, self.now_ns - began_ns)
        if not self.is_done and self.now_ns < self.stop_ns:
            self.ending = Ending.BATTERY if self.now_ns >= empty_ns else Ending.OFFLINE
        return self.is_done

    def count(self, direction: Direction, moved_bytes: float) -> None:
        """Count bytes of an exchange."""
        self._bytes[direction] += moved_bytes


class Exchanges:
    """All exchanges of a run.

    Args:
        engine, links: simulated time, and what carries their transfers.
        exchange: their steps.
        detection_ns: how long after a member has left the others notice it.
    """

    def __init__(self, engine: Engine, links: Links, exchange: Exchange, detection_ns: int) -> None:
        self._engine = engine
        self._links = links
        self._exchange = exchange
        self._detection_ns = detection_ns
        # By version and round from which they start.
        self._groups: dict[tuple[int, int], _Group] = {}
        self._last: tuple[int, int] | None = None
        self._last_of: dict[int, tuple[int, int]] = {}

    def has_model(self, dispatch: Dispatch) -> bool:
        """Whether a client has the model handed out: it took part in the exchange from which it was made, or in one
        of the same version whose updates were not aggregated."""
        last = self._last_of.get(dispatch.client_id)
        if last is None:
            return False
        return last[0] == dispatch.version or (
            last == self._last and last[0] + 1 == dispatch.version
        )

    def _group(self, member: Member) -> _Group:
        dispatch = member.dispatch
        return self._groups.setdefault((dispatch.version, dispatch.round), _Group())

    def join(self, member: Member) -> None:
        """Let the exchange of its round wait for a member."""
        self._group(member).members[member.dispatch.dispatch_id] = member

    def begin(self, member: Member, on_end: Callable[[], None]) -> Callable[[], None]:
        """Note that a member has done its local steps; ``on_end`` is called when the exchange is done."""
        group = self._group(member)
        group.ready[member.dispatch.dispatch_id] = on_end
        self._look(group, 0)
        return partial(self.leave, member)

    def leave(self, member: Member) -> None:
        """Break the exchange of a member that has not done it; the others notice this later."""
        if member.is_done or member.has_left:
            return
        member.has_left = True
        group, number = self._group(member), member.dispatch.dispatch_id
        if group.ready.pop(number, None) is not None and group.stop is not None:
            group.stop()
            group.stop = None
        self._look(group, self._detection_ns, number)

    def _look(self, group: _Group, after_ns: int, left: int = -1) -> None:
        """Start the exchange of a group later at an instant if all of its members are ready then."""

        def look() -> None:
            group.members.pop(left, None)
            if group.stop is None and group.members and group.members.keys() == group.ready.keys():
                members = sorted(group.members.values(), key=lambda one: one.dispatch.client_id)
                self._next(group, members, self._exchange.steps(len(members)))

        self._engine.call_at(self._engine.now_ns + after_ns, look, SETTLING_ORDER)

    def _next(self, group: _Group, members: Sequence[Member], steps: Iterator[Step]) -> None:
        """Begin the next step of an exchange, or end it."""
        step = next(steps, None)
        if step is None:
            self._end(group)
            return
        size_bytes = step.share * max(one.workload.bytes_up for one in members)
        client = [one.dispatch.client_id for one in members]
        left = len(step.hops)

        def count(moved_bytes: Sequence[float]) -> None:
            for (source, target), moved in zip(step.hops, moved_bytes, strict=True):
                members[source].count(Direction.UP, moved)
                members[target].count(Direction.DOWN, moved)

        def on_end() -> None:
            nonlocal left
            left -= 1
            if not left:
                count([size_bytes] * len(step.hops))
                self._next(group, members, steps)

        stops = [
            self._links.start_between(client[source], client[target], size_bytes, on_end)
            for source, target in step.hops
        ]
        group.stop = lambda: count([stop() for stop in stops])

    def _end(self, group: _Group) -> None:
        first, *_ = group.members.values()
        self._last = first.dispatch.version, first.dispatch.round
        del self._groups[self._last]
        for number, member in group.members.items():
            self._last_of[member.dispatch.client_id] = self._last
            member.is_done = True
            group.ready[number]()
        group.members.clear()  # A later look finds nobody; an exchange of one member has no step by which to know.
