"""Independent uniform draws."""

from __future__ import annotations

from fedsim.scheduling.base import CohortParams
from fedsim.scheduling.drawing import Replacing


class UniformWithReplacement(Replacing):
    """As many independent uniform draws as the cohort is large, among the clients that are checked in and idle.

    A client drawn m times works once, and its update counts m times (scheme I of Li et al., On the Convergence of
    FedAvg on Non-IID Data, ICLR 2020, with equal weights).
    """

    name = "uniform_with_replacement"
    Params = CohortParams

    def draw(self, count: int) -> list[int]:
        """The different clients among ``count`` independent draws."""
        available = self.available()
        if not len(available):
            return []
        return self.counted(self.generator().choice(available, max(0, count)))
