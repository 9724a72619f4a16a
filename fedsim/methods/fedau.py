"""FedAU: averaging weights from how often each client participates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.methods.base import Memory, Updates
from fedsim.methods.fedavg import FedAvg
from fedsim.parts.component import Parameters


class FedAuParams(Parameters):
    """Parameters of FedAU."""

    server_lr: float = Field(default=1.0, gt=0)
    """Server learning rate."""
    cutoff: int | None = Field(default=50, ge=1)
    """K: an interval between two participations is closed when it reaches this many server updates, which bounds the
    weights. Unbounded when null; with 1 all weights are 1."""


class FedAu(FedAvg):
    """Each change is weighted by the client's mean interval between participations, an estimate of 1 / p_i.

    The model moves by (1 / N) sum over participants of omega_i x change_i, where omega_i is the mean length of the
    client's intervals that were closed before this server update (1 if there is none). An interval closes when the
    client participates (its length is one plus the number of missed updates) or when it reaches the cutoff. Intervals
    are counted in server updates. With full participation it is FedAvg with uniform weights.
    """

    name = "fedau"
    title = "FedAU"
    paper = (
        "Wang and Ji, A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging, "
        "ICLR 2024, Algorithms 1 and 2"
    )
    Params = FedAuParams

    def memories(self) -> Mapping[str, Memory]:
        """Integers at the server: each client's last participation, the number of its intervals, and their sum."""
        import torch

        return {"intervals": Memory(3, torch.tensor([-1, 0, 0]), "server", torch.int64)}

    def weights(self, updates: Updates) -> npt.NDArray[np.float64]:
        """omega_i / N, (C,); notes that the contributing clients participate."""
        import torch

        now = updates.version - 1
        weights = []
        for index in range(len(updates)):
            last, count, total = updates.memory("intervals", index).tolist()
            # Since the last participation, only intervals at the cutoff have been closed.
            closed, length = 0, now - last
            if self.params.cutoff is not None:
                closed = (length - 1) // self.params.cutoff
                length -= closed * self.params.cutoff
                total += closed * self.params.cutoff
            count += closed
            weights.append(updates.multiplicity[index] * (total / count if count else 1.0))
            row = torch.tensor([now, count + 1, total + length])
            updates.remember("intervals", index, row.to(self.context.device))
        return np.array(weights) / self.context.clients
