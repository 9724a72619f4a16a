"""The energy of a dispatch, and the battery that limits it."""

from __future__ import annotations

from collections.abc import Sequence

from fedsim.devices.battery import ROUNDING_NS, Power
from fedsim.units import NEVER, NS_PER_S

DOWNLOAD, COMPUTE, UPLOAD = range(3)
"""Phases of work, in the order of the columns of :attr:`fedsim.devices.battery.Power.watts`."""


class EnergyUse:
    """Energy of dispatches from the power of the devices."""

    def __init__(self, power: Power) -> None:
        self._watts: list[list[float]] = power.watts.tolist()
        self._power_class = power.of_client.data

    def watts(self, client: int) -> Sequence[float]:
        """Power of a client's device while downloading, computing and uploading."""
        return self._watts[self._power_class[client]]

    def joules(self, client: int, plan: Sequence[float]) -> float:
        """Energy that a dispatch takes, from its :class:`fedsim.simulation.dispatch_process.Plan`."""
        download_w, compute_w, upload_w = self._watts[self._power_class[client]]
        return (download_w * plan[7] + compute_w * plan[8] + upload_w * plan[9]) / NS_PER_S


class Battery:
    """The charge of a device during one dispatch.

    Args:
        charge_j: joules at the start.
        watts: power in each phase of work.
    """

    def __init__(self, charge_j: float, watts: Sequence[float]) -> None:
        self.charge_j = charge_j
        self._watts = watts

    def lasts_ns(self, phase: int) -> int:
        """Whole nanoseconds of work in a phase until the battery is empty; NEVER if it takes no power."""
        watts = self._watts[phase]
        if not watts:
            return NEVER
        return int(min(self.charge_j / watts * NS_PER_S + ROUNDING_NS, NEVER))

    def discharge(self, phase: int, worked_ns: int) -> None:
        """Use the energy of work in a phase."""
        self.charge_j = max(0.0, self.charge_j - self._watts[phase] * worked_ns / NS_PER_S)
