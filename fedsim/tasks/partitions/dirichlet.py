"""Label mixes drawn from a Dirichlet distribution."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import (
    Assignment,
    CountedParameters,
    IntArray,
    Partitioner,
    apportion,
    deal,
    raise_minimum,
)


class DirichletParameters(CountedParameters):
    """Parameters of the Dirichlet partition."""

    alpha: float = Field(gt=0)
    """Concentration: a small value means few labels per client, a large one the same mix for all clients."""
    rule: Literal["client", "class", "balanced"] = "client"
    """Meaning of the draws. client: each client draws a mix of labels, and each class is divided in proportion to the
    clients' shares of it. class: for each class, the clients' shares are drawn. balanced: each client draws a mix, and
    all clients hold equally many samples."""
    min_samples: int = Field(default=1, ge=1)
    """Clients with fewer samples receive random samples from the clients with the most."""


class Dirichlet(Partitioner):
    """Label skew: the mixes of labels are Dirichlet(alpha) draws.

    Rules: ``client`` as in FedAU and FedSUM (one draw per client, normalized per class); ``class`` after Yurochkin
    et al. 2019 and NIID-Bench (Li et al. 2022); ``balanced`` after Hsu et al. 2019 (samples are drawn by the client's
    mix until a class is used up, then by the rest of the mix).
    """

    name = "dirichlet"
    needs_classes = True
    Params = DirichletParameters
    params: DirichletParameters

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """Draw the mixes and divide each class."""
        clients = self.params.clients
        sizes = np.bincount(dataset.train_y, minlength=dataset.classes)
        if self.params.rule == "class":
            shares = self._mixes(dataset.classes, clients, rng).T
        else:
            shares = self._mixes(clients, dataset.classes, rng)
        if self.params.rule == "balanced":
            counts = _balanced(shares, sizes, rng)
        else:
            columns = [apportion(int(size), shares[:, c]) for c, size in enumerate(sizes)]
            counts = np.stack(columns, axis=1)
        owners = deal(counts, dataset.train_y, rng)
        return Assignment(
            raise_minimum(owners, clients, self.params.min_samples, rng, dataset), clients
        )

    def _mixes(self, draws: int, size: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Positive Dirichlet draws, shape ``(draws, size)``."""
        mixes = rng.dirichlet(np.full(size, self.params.alpha), size=draws)
        # A tiny alpha underflows to zeros or NaN, which cannot be used as weights.
        tiny = np.finfo(np.float64).tiny
        return np.maximum(np.nan_to_num(mixes, nan=tiny), tiny)


def _balanced(
    mixes: npt.NDArray[np.float64], sizes: IntArray, rng: np.random.Generator
) -> IntArray:
    """Samples of each class at each client; clients' totals differ by at most one, and no class is exceeded."""
    clients = len(mixes)
    total = int(sizes.sum())
    left = sizes.astype(np.int64).copy()
    counts = np.zeros(mixes.shape, dtype=np.int64)
    quotas = np.diff(np.arange(clients + 1) * total // clients)
    for client in rng.permutation(clients).tolist():
        missing = int(quotas[client])
        while missing:
            preferences = np.where(left > 0, mixes[client], 0.0)
            drawn = np.minimum(rng.multinomial(missing, preferences / preferences.sum()), left)
            counts[client] += drawn
            left -= drawn
            missing -= int(drawn.sum())
    return counts
