"""Energy that dispatches take, and batteries that limit who can work."""

from __future__ import annotations

from fedsim.devices.population import Population
from fedsim.simulation.life import Plan
from fedsim.units import NS_PER_S


class EnergyUse:
    """Joules per dispatch, and what they do to the batteries, if the devices have any."""

    def __init__(self, population: Population) -> None:
        self._watts: list[tuple[float, float, float]] = [
            (download_w, compute_w, upload_w)
            for download_w, compute_w, upload_w in population.power.watts.tolist()
        ]
        self._power_class = population.power.of_client.data
        self._batteries = population.batteries

    def joules(self, client: int, plan: Plan) -> float:
        """Energy that a dispatch takes."""
        download_w, compute_w, upload_w = self._watts[self._power_class[client]]
        return (download_w * plan[7] + compute_w * plan[8] + upload_w * plan[9]) / NS_PER_S

    def begin(self, client: int, now_ns: int) -> None:
        """A client begins to work."""
        if self._batteries is not None:
            self._batteries.begin(client, now_ns)

    def end(self, client: int, now_ns: int, plan: Plan) -> int:
        """A client has done a dispatch's work; when it can work again, which a low battery delays."""
        if self._batteries is None:
            return now_ns
        return self._batteries.end(client, now_ns, self.joules(client, plan))
