"""The same label mix for every client, with different numbers of samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import (
    Assignment,
    CountedParameters,
    Partitioner,
    apportion,
    raise_minimum,
)


class QuantitySkewParameters(CountedParameters):
    """Parameters of the quantity-skew partition."""

    alpha: float = Field(default=0.5, gt=0)
    """Concentration of the clients' shares: with a small value, a few clients hold most samples."""
    min_samples: int = Field(default=1, ge=1)
    """Clients with fewer samples receive random samples from the clients with the most."""


class QuantitySkew(Partitioner):
    """Quantity skew: shuffled samples in shares drawn from Dirichlet(alpha) over the clients (NIID-Bench, Li
    et al. 2022)."""

    name = "quantity_skew"
    Params = QuantitySkewParameters
    params: QuantitySkewParameters

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """Draw the shares and divide shuffled samples."""
        clients, samples = self.params.clients, len(dataset.train_y)
        weights = rng.dirichlet(np.full(clients, self.params.alpha))
        owners = np.empty(samples, dtype=np.int64)
        owners[rng.permutation(samples)] = np.repeat(
            np.arange(clients), apportion(samples, weights)
        )
        return Assignment(
            raise_minimum(owners, clients, self.params.min_samples, rng, dataset), clients
        )
