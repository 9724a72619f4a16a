"""A packet relay: delay, serialization and loss between pairs of TUN devices.

The relay reads whole IP packets from one device, holds each for ``packet bits / rate + delay``, and writes it to the
other. It never ends a TCP connection. Rates are enforced by a token bucket of one packet on the device itself (``tc
tbf``), which releases a packet when a link would *begin* to send it; the relay adds the time that the link takes.
"""

from __future__ import annotations

import ctypes
import heapq
import os
import random
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass

_PR_SET_TIMERSLACK = 29
_PACKET_BYTES = 65536


@dataclass(frozen=True)
class Hop:
    """One direction of a pair of devices.

    Attributes:
        source, target: file descriptors of the devices.
        delay_s: propagation delay.
        rate_bps: rate at which packets are serialized; infinite: in no time.
        loss: share of packets lost.
    """

    source: int
    target: int
    delay_s: float
    rate_bps: float
    loss: float = 0.0


def relay(hops: Sequence[Hop], seed: int, until: int) -> dict[str, int]:
    """Relay packets until the descriptor ``until`` can be read or is closed; returns counts."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    raise_priority(20)
    draw = random.Random(seed).random
    hop_of = {hop.source: hop for hop in hops}
    for source in hop_of:
        os.set_blocking(source, False)
    sources = [*hop_of, until]
    held: list[tuple[int, int, int, bytes]] = []
    counts = {"packets": 0, "lost": 0, "late_ns": 0}
    order = 0
    clock, read, write, push, pop = (
        time.monotonic_ns,
        os.read,
        os.write,
        heapq.heappush,
        heapq.heappop,
    )
    while True:
        timeout = max(held[0][0] - clock(), 0) / 1e9 if held else None
        ready = select.select(sources, [], [], timeout)[0]
        now = clock()
        for source in ready:
            if source == until:
                return counts
            hop = hop_of[source]
            try:
                for _ in range(8):
                    packet = read(source, _PACKET_BYTES)
                    if hop.loss and draw() < hop.loss:
                        counts["lost"] += 1
                        continue
                    wait_s = hop.delay_s + len(packet) * 8 / hop.rate_bps
                    order += 1
                    push(held, (now + int(wait_s * 1e9), order, hop.target, packet))
            except BlockingIOError:
                pass
        now = clock()
        while held and held[0][0] <= now:
            due, _, target, packet = pop(held)
            counts["packets"] += 1
            counts["late_ns"] = max(counts["late_ns"], now - due)
            try:
                write(target, packet)
            except OSError:  # the device is down: the packet is lost
                counts["lost"] += 1


def raise_priority(level: int) -> bool:
    """Give this process real-time priority if allowed, so that other work on the machine does not delay it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(level))
    except OSError:
        return False
    return True
