"""FedSUM: uplink-merge with local steps along the server's direction."""

from __future__ import annotations

from collections.abc import Sequence

from fedsim.methods.base import Cohort, Tensor, Vector
from fedsim.methods.uplink_merge import PAPER, UplinkMerge


class FedSum(UplinkMerge):
    """Clients follow the server's direction y and update their own share of it at every local step.

    Model and y are sent down, one vector is sent up. A local step is w - (eta_l / N) (g + y - h_i). With one local step
    it is FedSUM-B; with N = 1 it is plain local SGD.
    """

    name = "fedsum"
    title = "FedSUM"
    paper = f"{PAPER}, Algorithm 2 and equation 9"

    def download(self) -> Sequence[Vector]:
        """x and the y from which it was made."""
        size = self.context.layout.size
        return (Vector("model", size), Vector("merged", size))

    def correction(self, cohort: Cohort) -> Tensor:
        """y - h_i."""
        return cohort.down["merged"] - cohort.memory["gradient"]
