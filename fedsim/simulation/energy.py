"""The energy of a dispatch."""

from __future__ import annotations

from fedsim.devices.population import Power
from fedsim.simulation.life import Plan
from fedsim.units import NS_PER_S


class EnergyUse:
    """Energy of dispatches from the power of the devices."""

    def __init__(self, power: Power) -> None:
        self._watts: list[list[float]] = power.watts.tolist()
        self._power_class = power.of_client.data

    def joules(self, client: int, plan: Plan) -> float:
        """Energy that a dispatch takes."""
        download_w, compute_w, upload_w = self._watts[self._power_class[client]]
        return (download_w * plan[7] + compute_w * plan[8] + upload_w * plan[9]) / NS_PER_S
