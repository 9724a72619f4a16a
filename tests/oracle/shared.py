"""Transfers on shared links, by brute force: every change computes all rates and all ends again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.oracle.base import END, FLOW, LEAVE, Dispatch, Event
from tests.oracle.devices import FOREVER, NS, Life, Phase, exact

ROUNDING = 1
"""Nanoseconds by which the end of one transfer may differ from the exact one, given the instants before it.

fedsim keeps what is left of a transfer in double precision, in bit/s x ns. Of 4 MB that is 3.2e16, in which doubles are
4 apart: each change of the rate, with two roundings, adds an error of at most 4. Fair rates are exact to 4e-15, which
adds 3.2e16 x 4e-15 = 128 in all. At 500 kbit/s, 100 changes make an error of (400 + 128) / 5e5 = 0.0011 ns before the
end is rounded: it is the right nanosecond, or the one beside it if the exact end lies in the middle.

Differences would grow from transfer to transfer, by factors: one that enters a link earlier delays all others on it.
So an end within this bound is adopted, and everything after it follows from the same instants in both simulators.
"""


@dataclass(eq=False)
class Transfer:
    """One download or upload."""

    dispatch: Dispatch
    kind: str
    left: Fraction
    phase: Phase
    since: int | None = None
    rate: Fraction = Fraction(0)
    flowing: bool = False


class SharedLinks:
    """The transfers that are going on; each passes its client's own link and the server's.

    Args:
        server: the simulation.
        observed: ends of transfers in the tables under comparison, by dispatch and kind.
    """

    def __init__(self, server: Any, observed: Mapping[tuple[int, str], int]) -> None:
        self.server, self.devices, self.observed = server, server.devices, observed
        network = server.scenario["devices"]["network"]
        self.limit = {
            kind: exact(network[key]) if key in network else None
            for kind, key in (("download", "server_down"), ("upload", "server_up"))
        }
        self.transfers: list[Transfer] = []
        self.changed_at = 0
        self.events: dict[Dispatch, list[Event]] = {}
        self.next_end: list[Event] = []

    def _rates(self) -> None:
        """Max-min fair rates by filling: all rates grow together; a link that is full stops those on it."""
        flows = [transfer for transfer in self.transfers if transfer.flowing]
        links: dict[object, Fraction] = {}
        passes: dict[Transfer, list[object]] = {}
        for flow in flows:
            client = flow.dispatch.client
            rates = (
                self.devices.down_nominal if flow.kind == "download" else self.devices.up_nominal
            )
            links[client, flow.kind] = rates[client]
            passes[flow] = [(client, flow.kind)]
            limit = self.limit[flow.kind]
            if limit is not None:
                links[flow.kind] = limit
                passes[flow].append(flow.kind)
        growing = list(flows)
        for flow in flows:
            flow.rate = Fraction(0)
        while growing:
            room = {
                link: (
                    (capacity - sum(f.rate for f in flows if link in passes[f]))
                    / sum(link in passes[f] for f in growing)
                )
                for link, capacity in links.items()
                if any(link in passes[f] for f in growing)
            }
            step = min(room.values())
            for flow in growing:
                flow.rate += step
            full = {link for link, value in room.items() if value == step}
            growing = [flow for flow in growing if not full & set(passes[flow])]

    def _change(self) -> None:
        """Move all transfers on to now, and find out anew when they end."""
        server = self.server
        for transfer in self.transfers:
            if transfer.flowing:
                transfer.left -= transfer.rate * (server.now - self.changed_at) / NS
                transfer.left = max(transfer.left, Fraction(0))
        self.changed_at = server.now

    def _look_ahead(self) -> None:
        server = self.server
        for event in self.next_end:
            server.call_off(event)
        self.next_end = []
        self._rates()
        for transfer in self.transfers:
            if transfer.flowing:
                end = self._adopted(
                    transfer, server.now + round(transfer.left * NS / transfer.rate)
                )
                self.next_end.append(
                    server.add(end, FLOW, transfer.dispatch.number, self._sent(transfer))
                )

    def _adopted(self, transfer: Transfer, end: int) -> int:
        """The end of a transfer; that in the tables under comparison if it is the nanosecond beside it.

        Of an upload that is repeated, the tables hold the end of the last try, which inherits the rounding of all.
        """
        observed = self.observed.get((transfer.dispatch.number, transfer.kind))
        tries = sum(phase.kind == transfer.kind for phase in transfer.dispatch.life.phases)
        return end if observed is None or abs(observed - end) > ROUNDING * tries else observed

    def begin(self, dispatch: Dispatch) -> None:
        """Start a dispatch."""
        self.events[dispatch] = []
        self._start(dispatch, "download")

    def _at(self, dispatch: Dispatch, at: int, kind: int, act: Callable[[], None]) -> None:
        event = self.server.add(min(at, FOREVER), kind, dispatch.number, act)
        self.events[dispatch].append(event)

    def _start(self, dispatch: Dispatch, kind: str) -> None:
        phase = Phase(kind)
        dispatch.life.phases.append(phase)
        size = self.devices.bytes_down if kind == "download" else self.devices.bytes_up
        transfer = Transfer(dispatch, kind, 8 * size, phase)
        self.transfers.append(transfer)
        self._flow(transfer)

    def _flow(self, transfer: Transfer) -> None:
        """Start or go on, if the client is there."""
        dispatch, now = transfer.dispatch, self.server.now
        if not self.devices.is_online(dispatch.client, now):
            if self.devices.policy == "drop":
                self._lose(dispatch, "offline")
                return
            back = self.devices.returns(dispatch.client, now)
            self._at(dispatch, back, FLOW, lambda: self._flow(transfer))
            return
        transfer.since = now
        empty = self._empty(dispatch)
        # Empty already: right after the local steps.
        kind = LEAVE if empty > now else END
        self._at(dispatch, empty, kind, lambda: self._run_dry(transfer, now))
        leaves = self.devices.leaves(dispatch.client, now)
        self._at(dispatch, leaves, LEAVE, lambda: self._leave(transfer))
        self._at(dispatch, now + self.devices.latency, FLOW, lambda: self._enter(transfer, now))

    def _enter(self, transfer: Transfer, since: int) -> None:
        """The latency has passed, and the bytes begin to flow unless the client has left in the meantime."""
        if transfer in self.transfers and transfer.since == since:
            self._change()
            transfer.flowing = True
            self._look_ahead()

    def _sent(self, transfer: Transfer) -> Callable[[], None]:
        def act() -> None:
            self._change()
            transfer.flowing, transfer.left = False, Fraction(0)
            self._look_ahead()
            if transfer.kind == "download":
                self._arrived(transfer)
            else:
                self._at(transfer.dispatch, self.server.now, END, lambda: self._arrived(transfer))

        return act

    def _run_dry(self, transfer: Transfer, since: int) -> None:
        """The battery is empty, unless the transfer has ended or stopped since."""
        if transfer in self.transfers and transfer.since == since:
            self._lose(transfer.dispatch, "battery")

    def _empty(self, dispatch: Dispatch) -> int:
        """When the battery is empty if the work under way goes on."""
        server, life = self.server, dispatch.life
        if server.capacity is None:
            return FOREVER
        ahead = [transfer for transfer in self.transfers if transfer.dispatch is dispatch]
        phases = [Phase(phase.kind, list(phase.stretches)) for phase in life.phases]
        if ahead:
            phases[-1].stretches.append((server.now, FOREVER))
        return self.devices.empties(Life(life.start, phases=phases), server.charge[dispatch.client])

    def _rest(self, transfer: Transfer) -> None:
        if transfer.since is not None:
            transfer.phase.stretches.append((transfer.since, self.server.now))
            transfer.since = None

    def _leave(self, transfer: Transfer) -> None:
        if transfer not in self.transfers:
            return
        self._change()
        transfer.flowing = False
        self._rest(transfer)
        self._look_ahead()
        if self.devices.policy == "drop":
            self.transfers.remove(transfer)
            self._lose(transfer.dispatch, "offline")
        else:
            self._flow(transfer)

    def _arrived(self, transfer: Transfer) -> None:
        dispatch, server, devices = transfer.dispatch, self.server, self.devices
        life = dispatch.life
        self.transfers.remove(transfer)
        self._rest(transfer)
        if transfer.kind == "download":
            life.downloaded = server.now
            limit = devices.send_by(dispatch.client, dispatch.deadline)
            computed = devices.compute(life, dispatch.client, server.now, dispatch.steps, limit)
            life.computed = computed
            crash = devices.crash_after(dispatch.client, dispatch.sequence)
            crashes, empty = devices.crashes(life, crash), self._empty(dispatch)
            fails, cause = min(crashes, empty), "crash" if crashes <= empty else "battery"
            ends = min(x for x in (computed, life.ended, FOREVER) if x is not None)
            if fails < ends or (fails == ends < FOREVER and life.cause == "offline"):
                self._at(dispatch, fails, END, lambda: self._lose(dispatch, cause))
            elif computed is not None:
                life.computed = computed
                self._at(dispatch, computed, FLOW, lambda: self._start(dispatch, "upload"))
            elif life.ended is not None:
                self._at(dispatch, life.ended, END, lambda: self._lose(dispatch, str(life.cause)))
            return
        tries = sum(phase.kind == "upload" for phase in life.phases)
        if not devices.is_lost(dispatch.client, dispatch.sequence, tries - 1):
            life.arrived = life.ended = server.now
            self.forget(dispatch)
            server.end(dispatch)
        elif tries <= devices.failures.get("upload_retries", 0):
            self._start(dispatch, "upload")
        else:
            self._lose(dispatch, "lost upload")

    def _lose(self, dispatch: Dispatch, cause: str) -> None:
        if dispatch.over:
            return
        dispatch.life.ended, dispatch.life.cause = self.server.now, cause
        self.forget(dispatch)
        self.server.end(dispatch)

    def forget(self, dispatch: Dispatch) -> None:
        """Take a dispatch off the links."""
        for event in self.events.pop(dispatch, []):
            self.server.call_off(event)
        mine = [transfer for transfer in self.transfers if transfer.dispatch is dispatch]
        if mine:
            self._change()
            for transfer in mine:
                transfer.flowing = False
                self._rest(transfer)
                self.transfers.remove(transfer)
            self._look_ahead()

    cut = forget
