"""Selection by number of training samples."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedsim.scheduling.base import CohortParams
from fedsim.scheduling.replacement import Replacing
from fedsim.scheduling.successive import weighted_order


class SampleWeightedParams(CohortParams):
    """Parameters of selection by number of samples."""

    replacement: bool = False
    """Independent draws, in which a client may come several times and counts as often."""


class SampleWeighted(Replacing):
    """Clients with more training samples are drawn more often, each in proportion to its number.

    Without replacement the draws are successive. With replacement it is scheme I of Li et al., On the Convergence of
    FedAvg on Non-IID Data, ICLR 2020, which asks for a method with ``weights: uniform``.
    """

    name: ClassVar[str] = "sample_weighted"
    Params = SampleWeightedParams

    def draw(self, count: int) -> list[int]:
        """See :meth:`fedsim.scheduling.base.Selection.draw`."""
        available = self.available()
        if not len(available) or count < 1:
            return []
        samples = self.server.samples[available].astype(np.float64)
        if self.params.replacement:
            return self.counted(
                self.generator().choice(available, count, p=samples / samples.sum())
            )
        return weighted_order(self.generator(), available, samples)[:count]
