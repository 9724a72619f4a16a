"""HetLoRA: adapters padded to the largest rank and averaged by the size of their change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedsim.methods._adapters import AdapterMethod, Pair
from fedsim.methods.base import Updates


class HetLora(AdapterMethod):
    """The server averages A and B of each adapter, with weights proportional to the Frobenius norm of B A.

    Clients whose training changed more count more. Clients may have unequal ranks (``server.submodels: ranks``): each
    holds the first rows of A and columns of B, and what it sends is padded with zeros. The paper's self-pruning is not
    included: a client's rank, and so the size of its upload, would follow from the values that it trains, but transfers
    are timed before anything is trained. The other parameters are averaged.
    """

    name = "hetlora"
    title = "HetLoRA"
    paper = (
        "Cho, Liu, Xu, Fahrezi and Joshi, Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models, "
        "EMNLP 2024: truncation, zero-padding and sparsity-weighted aggregation"
    )

    def combine(
        self,
        merged: Pair,
        received: Sequence[Pair],
        weights: npt.NDArray[np.float64],
        updates: Updates,
    ) -> None:
        """The means weighted by norms; those by ``weights`` while all products are zero."""
        # The squared norm of B A is the inner product of B'B and AA'.
        squares = [float(((each.b.T @ each.b) * (each.a @ each.a.T)).sum()) for each in received]
        shares = np.sqrt(np.maximum(squares, 0)) * updates.multiplicity
        if not shares.any():
            return
        merged.a.zero_()
        merged.b.zero_()
        for each, share in zip(received, (shares / shares.sum()).tolist(), strict=True):
            merged.a.add_(each.a, alpha=share)
            merged.b.add_(each.b, alpha=share)
