"""Uniform selection among the clients checked in."""

from __future__ import annotations

from typing import ClassVar

from fedsim.scheduling.base import CohortParams, Selection


class Uniform(Selection):
    """Uniformly without replacement among the clients that are checked in and not at work."""

    name: ClassVar[str] = "uniform"
    Params = CohortParams

    def draw(self, count: int) -> list[int]:
        """See :meth:`fedsim.scheduling.base.Selection.draw`."""
        if self._members is None:
            chosen = self.server.sample_online(count)
        else:
            available = self.available()
            chosen = self.generator().permutation(available)[:count]
        clients: list[int] = chosen.tolist()
        return clients
