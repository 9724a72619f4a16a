"""FedSUM: uplink-merge with local steps along the server's direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fedsim.methods.base import Cohort, Trained, Trainer, Vector
from fedsim.methods.uplink_merge import PAPER, UplinkMerge


class FedSum(UplinkMerge):
    """Clients follow the server's direction y, refreshing their own share of it as they go.

    Model and y are sent down, one vector comes back. A local step is w - (eta_l / N) (g + y - h_i). With one local step
    it is FedSUM-B; with N = 1 it is plain local SGD.
    """

    name: ClassVar[str] = "fedsum"
    title: ClassVar[str] = "FedSUM"
    paper: ClassVar[str] = f"{PAPER}, Algorithm 2 and equation 9"

    def download(self) -> Sequence[Vector]:
        """x and the y that it was made with."""
        size = self.context.layout.size
        return (Vector("model", size), Vector("merged", size))

    def train(self, cohort: Cohort, trainer: Trainer) -> Trained:
        """See :meth:`fedsim.methods.uplink_merge.UplinkMerge.train`."""
        correction = cohort.down["merged"] - cohort.memory["gradient"]
        return trainer.run(
            cohort,
            cohort.down["model"],
            rule=self.corrected(correction),
            collect=("mean_gradient",),
        )
