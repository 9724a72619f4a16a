"""Uniform selection among the clients checked in."""

from __future__ import annotations

from fedsim.scheduling.base import CohortParams, Selection


class Uniform(Selection):
    """Clients drawn uniformly without replacement from those that are checked in and idle."""

    name = "uniform"
    Params = CohortParams

    def draw(self, count: int) -> list[int]:
        """Draw clients uniformly without replacement."""
        if self._members is None:
            return self.server.sample_online(count)
        clients: list[int] = self.generator().permutation(self.available())[:count].tolist()
        return clients
