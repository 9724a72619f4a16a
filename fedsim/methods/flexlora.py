"""FlexLoRA: the products of adapters are averaged, and decomposed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedsim.methods._adapters import AdapterMethod, Pair
from fedsim.methods.base import Updates, Vector


class FlexLora(AdapterMethod):
    """The server averages the products B A, and sends the best approximation of each client's rank.

    The mean product U S V' is decomposed by singular values, the largest first: B = U S and A = V', of the adapters'
    rank. A client of a lower rank (``server.submodels: ranks``) receives the first columns and rows, which are the best
    approximation of its rank. The other parameters are averaged.
    """

    name = "flexlora"
    title = "FlexLoRA"
    paper = (
        "Bai, Chen, Qian, Yao and Li, Federated Fine-tuning of Large Language Models under Heterogeneous Tasks and "
        "Client Resources, NeurIPS 2024"
    )

    def upload(self) -> Sequence[Vector]:
        """The trained model, whose adapters are decomposed anew in every version."""
        return [replace(one, varies=True) for one in super().upload()]

    def combine(
        self,
        merged: Pair,
        received: Sequence[Pair],
        weights: npt.NDArray[np.float64],
        updates: Updates,
    ) -> None:
        """The singular value decomposition of the weighted mean of the products."""
        import torch

        # Stacked matrices have the sum of the products as their product.
        b = torch.cat([each.b * weight for each, weight in zip(received, weights, strict=True)], 1)
        a = torch.cat([each.a for each in received])
        u, s, v = torch.linalg.svd(b @ a, full_matrices=False)
        rank = min(len(s), len(merged.a))
        merged.a.zero_()[:rank] = v[:rank]
        merged.b.zero_()[:, :rank] = u[:, :rank] * s[:rank]
