"""Carbon-aware selection: waits for a cleaner hour."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.scheduling.base import CohortParams, Selection, ServerPort
from fedsim.units import NS_PER_S, Duration, to_ns


class CarbonAware(Selection):
    """Clients drawn uniformly from the regions whose grid is as clean as it becomes within ``wait``.

    When clients are wanted, the server looks ``wait`` ahead: the clients of a region may be drawn from the instant at
    which its intensity is least, until some are. ``devices.carbon`` is its forecast, without errors. As in FedZero,
    work is put where and when energy is clean; there, it is the excess energy of sites that is used up.

    Waiting: Wiesner et al., Let's Wait Awhile, Middleware 2021; FedZero: Wiesner et al., e-Energy 2024.
    """

    name = "carbon_aware"

    class Params(CohortParams):
        wait: Duration = Field(default=6 * 3600.0, gt=0)
        """Longest time that a draw waits for a cleaner hour."""

    def __init__(self, params: Params, server: ServerPort) -> None:
        super().__init__(params, server)
        if server.grid is None:
            raise UserError(
                "the selection carbon_aware needs the carbon intensity of the grid",
                where="server.selection",
                hint="set devices.carbon: {file: builtin:carbon_week.csv, region: GB}",
            )
        self._grid = server.grid
        self._wait_ns, self._until_ns = to_ns(params.wait), -1
        self._due_ns = np.zeros(len(self._grid.regions), dtype=np.int64)

    def _look_ahead(self) -> None:
        now_ns = self.server.now_ns
        if now_ns <= self._until_ns:
            return
        self._until_ns = now_ns + self._wait_ns
        span_s = now_ns / NS_PER_S, self._until_ns / NS_PER_S
        self._due_ns[:] = [to_ns(region.cleanest_s(*span_s)) for region in self._grid.regions]

    def draw(self, count: int) -> list[int]:
        self._look_ahead()
        available = self.available()
        is_clean = self._due_ns[self._grid.of_client[available]] <= self.server.now_ns
        drawn: list[int] = self.generator().permutation(available[is_clean])[:count].tolist()
        if drawn:
            self._until_ns = -1
        return drawn

    def next_change_ns(self) -> int | None:
        """When the next region becomes clean."""
        later = self._due_ns[self._due_ns > self.server.now_ns]
        return int(later.min()) if len(later) else None
