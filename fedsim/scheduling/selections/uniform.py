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
        chosen: list[int] = self.server.sample_online(count).tolist()
        return chosen
