"""FedSUM-B: uplink-merge with all gradients at the received model."""

from __future__ import annotations

from fedsim.methods.base import Cohort
from fedsim.methods.uplink_merge import PAPER, UplinkMerge


class FedSumB(UplinkMerge):
    """The server steps along the sum of every client's latest mean gradient; clients take no local steps.

    The K local steps of a dispatch are K independent mini-batches at the received model. Only the product
    ``server_lr`` x ``lr`` matters. With full participation it is centralized SGD with step server_lr x lr x K on
    mini-batches K times as large.
    """

    name = "fedsum_b"
    title = "FedSUM-B"
    paper = f"{PAPER}, Algorithm 1"

    def vector_operations(self) -> float:
        """1: each step adds its gradient to a sum."""
        return 1.0

    def correction(self, cohort: Cohort) -> None:
        """None: there are no local steps."""
