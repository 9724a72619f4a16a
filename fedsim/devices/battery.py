"""Power of devices at work, and their batteries.

A device with a low charge accepts no work until it has recharged, and an empty one stops.

Energy is conserved: the charge is the capacity minus the energy used by work plus the energy recharged between
dispatches, and is never negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedsim.scenario.model import Energy
from fedsim.units import NEVER, NS_PER_S
from fedsim.vocabulary.arrays import Floats, Ints

ROUNDING_NS = 1e-3
"""Duration below which a difference of energies is rounding."""
_LEAST_SHARE = 0.01
"""Minimum share of its battery that a device needs to start, even if the floor is lower."""


DOWNLOAD, COMPUTE, UPLOAD = range(3)
"""Phases of work, in the order of the columns of :attr:`Power.watts`."""


class Power:
    """Power drawn while working.

    Attributes:
        watts: while receiving, computing and sending, one row per class of devices, (K, 3).
        of_client: class of each client's device, (N,); one byte each, so that a million fit in the cache.
    """

    def __init__(self, watts: Floats, of_client: npt.NDArray[np.uint8]) -> None:
        self.watts = watts
        self.of_client = of_client
        # Numbers of Python are several times cheaper for a single client.
        self._watts: list[list[float]] = watts.tolist()
        self._class_of = of_client.data

    def of(self, client: int) -> Sequence[float]:
        """Watts of a client's device in each phase."""
        return self._watts[self._class_of[client]]

    def joules(self, client: int, work_ns: Sequence[int]) -> float:
        """Energy of a dispatch from the time at work in each phase."""
        download_w, compute_w, upload_w = self.of(client)
        download_ns, compute_ns, upload_ns = work_ns
        return (download_w * download_ns + compute_w * compute_ns + upload_w * upload_ns) / NS_PER_S


class Charge:
    """The charge of a device's battery during one dispatch, which begins with ``charge_j`` joules.

    ``watts`` is the power in each phase of work.
    """

    def __init__(self, charge_j: float, watts: Sequence[float]) -> None:
        self._charge_j = charge_j
        self._watts = watts

    def lasts_ns(self, phase: int) -> int:
        """Whole nanoseconds of work in a phase until the battery is empty; NEVER if it takes no power."""
        watts = self._watts[phase]
        if not watts:
            return NEVER
        return int(min(self._charge_j / watts * NS_PER_S + ROUNDING_NS, NEVER))

    def discharge(self, phase: int, worked_ns: int) -> None:
        """Use the energy of work in a phase."""
        self._charge_j = max(0.0, self._charge_j - self._watts[phase] * worked_ns / NS_PER_S)


class Batteries:
    """Charge of every client's battery, full at time 0.

    A battery recharges at a constant power between dispatches, and work discharges it. A client's charge is updated
    only when it starts or stops working. The charge of a device without a battery is infinite.

    Args:
        energy: capacity, floor and recharging power of each class of devices.
        of_client: class of each client's device, (N,): 0 for none, and then those of ``energy`` in order.

    Attributes:
        capacity_j, floor_j: joules of a full battery, and those below which a device accepts no work, by class.
        recharge_w: charging power by class.
    """

    def __init__(self, energy: Energy, of_client: npt.NDArray[np.uint8]) -> None:
        types = energy.batteries
        self.capacity_j = [battery.capacity_j for battery in types]
        self.floor_j = [battery.capacity_j * max(battery.floor, _LEAST_SHARE) for battery in types]
        self.recharge_w = [battery.recharge_w for battery in types]
        self._energy, self._of_client = energy, of_client
        self._class_of = of_client.data
        self._charge_j: list[float] = np.array(self.capacity_j)[of_client].tolist()
        self._since_ns = [0] * len(of_client)

    def begin(self, client: int, now_ns: int) -> None:
        """Record that the client starts working."""
        self._charge_j[client] = self.charge_j(client, now_ns)

    def left_j(self, client: int) -> float:
        """Charge in joules at the start of the client's dispatch."""
        return self._charge_j[client]

    def end(self, client: int, now_ns: int, used_j: float) -> int:
        """Record that the client has stopped working; returns when it may work again, or NEVER."""
        # Negative only by rounding, because a device stops when its battery is empty.
        charge = max(0.0, self._charge_j[client] - used_j)
        self._charge_j[client], self._since_ns[client] = charge, now_ns
        index = self._class_of[client]
        floor_j = self.floor_j[index]
        if charge >= floor_j:
            return now_ns
        missing_ns = (floor_j - charge) / self.recharge_w[index] * NS_PER_S
        return min(NEVER, now_ns + math.ceil(min(missing_ns, NEVER) - ROUNDING_NS))

    def charge_j(self, client: int, now_ns: int) -> float:
        """Charge in joules of an idle client."""
        index = self._class_of[client]
        gained = self.recharge_w[index] * (now_ns - self._since_ns[client]) / NS_PER_S
        return min(self.capacity_j[index], self._charge_j[client] + gained)

    def replay(self, clients: Ints, begin_ns: Ints, end_ns: Ints, used_j: Floats) -> Replay:
        """The charge in recorded dispatches, from full batteries at time 0; this object stays as it is.

        Args:
            clients, begin_ns, end_ns, used_j: client, begin, end and energy of each dispatch, (n,), by begin.
        """
        batteries = Batteries(self._energy, self._of_client)
        charges = []
        dispatches = (column.tolist() for column in (clients, begin_ns, end_ns, used_j))
        for client, begin, end, used in zip(*dispatches, strict=True):
            batteries.begin(client, begin)
            before_j = batteries.left_j(client)
            ready_ns = batteries.end(client, end, used)
            charges.append((before_j, batteries.left_j(client), ready_ns))
        before, after, ready = zip(*charges, strict=True) if charges else ((), (), ())
        return Replay(np.array(before), np.array(after), np.array(ready, np.int64))


class Replay(NamedTuple):
    """The charge in recorded dispatches.

    Attributes:
        before_j, after_j: joules at the begin and at the end of each dispatch, (n,).
        ready_ns: when its client could work again, (n,).
    """

    before_j: Floats
    after_j: Floats
    ready_ns: Ints
