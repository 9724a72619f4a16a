"""Sizes and label mixes both from Dirichlet distributions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import Assignment, CountedParameters, Partitioner, apportion, deal
from fedsim.vocabulary.formatting import format_count

_ATTEMPTS = 100


class DualDirichletParameters(CountedParameters):
    """Parameters of the dual Dirichlet partition."""

    alpha1: float | None = Field(default=None, gt=0)
    """Total concentration of the clients' sizes; by default the number of clients."""
    alpha2: float = Field(default=0.5, gt=0)
    """Total concentration of each client's label mix, divided among the classes in proportion to their sizes."""
    min_samples: int = Field(default=1, ge=1)
    """The draws are repeated until every client has at least this many samples."""


class DualDirichlet(Partitioner):
    """Dual Dirichlet partition (Li et al., FedCompass, ICLR 2024, Algorithm 5).

    Client weights u ~ Dir(alpha1 / N, ...), label weights V_i ~ Dir(alpha2 x class shares); client i gets
    |c| u_i V_ic / sum_j u_j V_jc of the |c| samples of class c. All samples are assigned.
    """

    name = "dual_dirichlet"
    needs_classes = True
    Params = DualDirichletParameters
    params: DualDirichletParameters

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """Draw until every class has a holder and every client has enough samples."""
        params, clients = self.params, self.params.clients
        sizes = np.bincount(dataset.train_y, minlength=dataset.classes)
        present = np.flatnonzero(sizes)
        concentration = (params.alpha1 or float(clients)) / clients
        for _ in range(_ATTEMPTS):
            size_weights = rng.dirichlet(np.full(clients, concentration))
            label_weights = rng.dirichlet(
                params.alpha2 * sizes[present] / sizes.sum(), size=clients
            )
            weights = size_weights[:, None] * label_weights
            # Very small concentrations underflow to zero or NaN.
            if not (np.isfinite(weights).all() and (weights.sum(axis=0) > 0).all()):
                continue
            counts = np.zeros((clients, dataset.classes), dtype=np.int64)
            for column, label in enumerate(present):
                counts[:, label] = apportion(int(sizes[label]), weights[:, column])
            if counts.sum(axis=1).min() >= params.min_samples:
                return Assignment(deal(counts, dataset.train_y, rng), clients)
        raise self.misfit(
            f"{_ATTEMPTS} draws gave no partition in which all {format_count(clients)} clients have "
            f"{format_count(params.min_samples)} samples or more",
            "use fewer clients, a smaller min_samples, or larger alpha1 and alpha2",
        )
