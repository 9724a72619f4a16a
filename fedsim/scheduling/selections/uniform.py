"""Clients drawn at random: each with the same probability, or in proportion to its number of samples."""

from __future__ import annotations

import numpy as np

from fedsim.scheduling.base import CohortParams, Selection
from fedsim.scheduling.drawing import Replacing, weighted_order


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


class SampleWeightedParams(CohortParams):
    """Parameters of selection by number of samples."""

    replacement: bool = False
    """Whether draws are independent, so that a client may be drawn, and counts, several times."""


class SampleWeighted(Replacing):
    """Clients drawn in proportion to their numbers of training samples.

    Without replacement the draws are successive. With replacement it is scheme I of Li et al., On the Convergence of
    FedAvg on Non-IID Data, ICLR 2020, which requires a method with ``weights: uniform``.
    """

    name = "sample_weighted"
    Params = SampleWeightedParams

    def draw(self, count: int) -> list[int]:
        """Draw clients in proportion to their numbers of samples."""
        available = self.available()
        if not len(available) or count < 1:
            return []
        samples = self.server.samples[available].astype(np.float64)
        if self.params.replacement:
            return self.counted(
                self.generator().choice(available, count, p=samples / samples.sum())
            )
        return weighted_order(self.generator(), available, samples)[:count]
