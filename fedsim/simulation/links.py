"""Transfers as events: over links that are not shared, whose ends are known when they begin, or that are shared.

A transfer calls back at its end. Starting it returns a function that stops it, and returns the bytes moved: all of them
if it has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsim.network.base import Direction, Network
from fedsim.network.shared import SharedNetwork
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import Transfer
from fedsim.simulation.engine import FLOW_ORDER, SETTLING_ORDER, Engine, ScheduledCall
from fedsim.units import NEVER

OnEnd = Callable[[], None]
Stop = Callable[[], float]


class OwnLinks:
    """Transfers over links that are not shared."""

    def __init__(self, engine: Engine, network: Network) -> None:
        self._engine = engine
        self._network = network

    def start(self, dispatch: Dispatch, transfer: Transfer, on_end: OnEnd) -> Stop:
        """Start a transfer of a dispatch."""
        way = dispatch.client_id, transfer.direction, transfer.size_bytes, self._engine.now_ns
        end_ns = self._network.transfer_end_ns(*way, dispatch.sequence)
        call = self._engine.call_at(end_ns, on_end, dispatch.dispatch_id)

        def stop() -> float:
            call.cancel()
            return self._network.bytes_by(*way, self._engine.now_ns, dispatch.sequence)

        return stop

    def start_between(self, source: int, target: int, size_bytes: float, on_end: OnEnd) -> Stop:
        """Start a transfer from one client to another, which ends when the links of both have carried it."""
        network, begun_ns = self._network, self._engine.now_ns
        up, down = (source, Direction.UP), (target, Direction.DOWN)
        sent_ns, received_ns = (
            network.transfer_end_ns(*one, size_bytes, begun_ns) for one in (up, down)
        )
        end_ns = max(sent_ns + network.latency_ns(*down), received_ns + network.latency_ns(*up))
        call = self._engine.call_at(min(end_ns, NEVER), on_end, FLOW_ORDER)

        def stop() -> float:
            call.cancel()
            now_ns = self._engine.now_ns
            return min(network.bytes_by(*one, size_bytes, begun_ns, now_ns) for one in (up, down))

        return stop


class SharedLinks:
    """Transfers over links that they share: flows, whose rates change as others start and end."""

    def __init__(self, engine: Engine, network: SharedNetwork) -> None:
        self._engine = engine
        self._network = network
        self._on_end: dict[int, OnEnd] = {}
        self._started = 0
        self._next_end: ScheduledCall | None = None
        self._next_end_ns = NEVER
        self._settling = False
        # Other traffic may be under way from the start.
        self._settle()

    def start(self, dispatch: Dispatch, transfer: Transfer, on_end: OnEnd) -> Stop:
        """Start a transfer of a dispatch."""
        ends = dispatch.client_id, transfer.direction
        return self._start(self._network.start_transfer, ends, transfer.size_bytes, on_end)

    def start_between(self, source: int, target: int, size_bytes: float, on_end: OnEnd) -> Stop:
        """Start a transfer from one client to another."""
        return self._start(self._network.start_between, (source, target), size_bytes, on_end)

    def _start(
        self, start: Callable[..., None], ends: tuple[Any, Any], size_bytes: float, on_end: OnEnd
    ) -> Stop:
        self._started = number = self._started + 1
        self._on_end[number] = on_end
        start(number, *ends, size_bytes, self._engine.now_ns)
        self._settle()

        def stop() -> float:
            if self._on_end.pop(number, None) is None:
                return size_bytes
            self._settle()
            return self._network.cancel(number, self._engine.now_ns)

        return stop

    def _settle(self) -> None:
        """Schedule a single check for the next flow to end, after all starts and stops of this instant."""
        if not self._settling:
            self._settling = True
            self._engine.call_at(self._engine.now_ns, self._plan_next_end, SETTLING_ORDER)

    def _plan_next_end(self) -> None:
        self._settling = False
        due_ns = self._network.next_event_ns()
        if due_ns == self._next_end_ns and self._next_end is not None:
            return
        if self._next_end is not None:
            self._next_end.cancel()
        self._next_end_ns = due_ns
        self._next_end = self._engine.call_at(due_ns, self._flows_end, FLOW_ORDER)

    def _flows_end(self) -> None:
        self._next_end, self._next_end_ns = None, NEVER
        for number in self._network.pop_finished(self._engine.now_ns):
            self._on_end.pop(number)()
        self._settle()


Links = OwnLinks | SharedLinks


def links_of(engine: Engine, network: Network) -> Links:
    """The links of a network."""
    return (
        SharedLinks(engine, network)
        if isinstance(network, SharedNetwork)
        else OwnLinks(engine, network)
    )
