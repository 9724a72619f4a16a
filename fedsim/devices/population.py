"""The population: columns of the clients' properties that the time plane needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedsim.devices.availability.base import OnDisconnect
from fedsim.devices.battery import Batteries, Power
from fedsim.devices.compute.times import ComputeTimes
from fedsim.devices.grid import Footprint
from fedsim.network.base import Direction, Network
from fedsim.traces.availability import AvailabilityIndex
from fedsim.units import NEVER, NS_PER_S
from fedsim.vocabulary.arrays import Bools


@dataclass(frozen=True, slots=True)
class Population:
    """The clients' devices.

    Attributes:
        clients: number of clients N.
        availability: when each client is online and eligible.
        on_disconnect: behavior of a busy client that goes offline.
        compute: time of local steps.
        network: links.
        power: watts while working.
        batteries: charge of the devices; None if batteries are not modeled.
        short_of_memory: clients whose memory does not hold the model and its batch, (N,) bool.
        excluded: clients that the scenario keeps out, whatever their memory, (N,) bool.
        footprint: emissions and cost of their work; None if neither is given.
    """

    clients: int
    availability: AvailabilityIndex
    on_disconnect: OnDisconnect
    compute: ComputeTimes
    network: Network
    power: Power
    batteries: Batteries | None
    short_of_memory: Bools
    excluded: Bools
    footprint: Footprint | None = None

    def upload_estimate_ns(self, client: int, size_bytes: float) -> int:
        """Duration of the client's upload, estimated from its link's nominal rate."""
        wire_s = self.network.nominal_wire_s(client, Direction.UP, size_bytes)
        if wire_s == math.inf:
            return NEVER
        return self.network.latency_ns(client, Direction.UP) + round(wire_s * NS_PER_S)
