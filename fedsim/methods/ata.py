"""ATA: the mean gradient of all tasks, at one model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.methods.base import Cohort, LocalUpdate, Trainer, Updates
from fedsim.methods.rennala import Rennala


class Ata(Rennala):
    """Clients compute as many gradients as they were assigned tasks, all at the received model; the server averages.

    The model moves by -lr / B x the sum of all B gradients: mini-batch SGD, whichever client computes how many.
    """

    name = "ata"
    title = "ATA"
    paper = (
        "Maranjyan, Saad, Richtarik and Orabona, ATA: Adaptive Task Allocation for Efficient Resource "
        "Management in Distributed Machine Learning, ICML 2025, Algorithm 1"
    )
    paper_schedules = ("ata",)
    needs_plain_sgd = "its clients send the mean of gradients at one model"

    def local_update(self, cohort: Cohort, trainer: Trainer) -> LocalUpdate:
        """The step along the mean gradient at the received model."""
        start = cohort.down["model"]
        trained = trainer.run(cohort, start, move=False, collect=("mean_gradient",))
        assert trained.mean_gradient is not None
        # The model has moved only in its buffers.
        moved = trained.model - start
        return LocalUpdate(
            {"delta": moved - cohort.learning_rates.unsqueeze(1) * trained.mean_gradient},
            trained.loss,
        )

    def weights(self, updates: Updates) -> npt.NDArray[np.float64]:
        """Each client's share of the gradients, (C,)."""
        gradients = updates.multiplicity * updates.steps
        shares: npt.NDArray[np.float64] = gradients / gradients.sum()
        return shares
