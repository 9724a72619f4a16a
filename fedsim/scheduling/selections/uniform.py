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
            return self.server.sample_online(count)
        clients: list[int] = self.generator().permutation(self.available())[:count].tolist()
        return clients
