"""A random number of classes per client, with normal shares of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import Assignment, CountedParameters, Partitioner, apportion, deal
from fedsim.vocabulary.formatting import format_count

_ATTEMPTS = 1000
# (fewest, most) classes per client by number of clients: FedCompass, appendix D.1, and its authors' code.
_CLASS_RANGES = {1: (10, 10), 2: (7, 8), 3: (6, 8), 4: (5, 7), 5: (5, 6), 6: (4, 6), 7: (4, 5)}


class ClassPartitionParameters(CountedParameters):
    """Parameters of the class partition."""

    classes_min: int | None = Field(default=None, ge=1)
    """Minimum classes per client; by default the paper's value for the number of clients (3 above 7 clients)."""
    classes_max: int | None = Field(default=None, ge=1)
    """Maximum classes per client; by default the paper's value for the number of clients (5 above 7 clients)."""
    share_mean: float = Field(default=10.0, gt=0)
    """Mean of the normal weights by which a class is divided among its holders."""
    share_std: float = Field(default=3.0, ge=0)
    """Standard deviation of these weights."""

    @model_validator(mode="after")
    def _ordered(self) -> ClassPartitionParameters:
        if (self.classes_min is None) != (self.classes_max is None):
            raise ValueError("give both classes_min and classes_max, or neither")
        low, high = self.class_range
        if low > high:
            raise ValueError(f"classes_min {low} is above classes_max {high}")
        return self

    @property
    def class_range(self) -> tuple[int, int]:
        """Minimum and maximum number of classes per client."""
        if self.classes_min is not None and self.classes_max is not None:
            return self.classes_min, self.classes_max
        return _CLASS_RANGES.get(self.clients, (3, 5))


class ClassPartition(Partitioner):
    """Class partition (Li et al., FedCompass, ICLR 2024, Algorithm 4).

    Every client draws a number of classes from ``classes_min .. classes_max`` and that many random classes; this is
    repeated until each class has a holder. A class is divided among its holders by weights ~ |N(share_mean,
    share_std^2)|, rounded by largest remainders.
    """

    name = "class_partition"
    needs_classes = True
    Params = ClassPartitionParameters
    params: ClassPartitionParameters

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """Draw the classes, then divide them."""
        clients = self.params.clients
        sizes = np.bincount(dataset.train_y, minlength=dataset.classes)
        holds = self._holders(dataset, rng)
        counts = np.zeros((clients, dataset.classes), dtype=np.int64)
        for label in range(dataset.classes):
            holders = np.flatnonzero(holds[:, label])
            if len(holders) > sizes[label]:
                raise self.misfit(
                    f"{format_count(len(holders))} clients hold class {label}, which has {format_count(sizes[label])} "
                    "samples",
                    "use fewer clients or fewer classes per client",
                )
            draws = rng.normal(self.params.share_mean, self.params.share_std, len(holders))
            counts[holders, label] = apportion(int(sizes[label]), np.abs(draws))
        return Assignment(deal(counts, dataset.train_y, rng), clients)

    def _holders(self, dataset: Dataset, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Whether each client has samples of each class, (N, classes) bool."""
        clients, classes = self.params.clients, dataset.classes
        low, high = self.params.class_range
        if high > classes or clients * high < classes:
            raise self.misfit(
                f"{format_count(clients)} clients with {low} to {high} classes each do not fit the {classes} classes "
                f"of {dataset.name}",
                "set classes_min and classes_max so that every class can have a holder",
            )
        for _ in range(_ATTEMPTS):
            holds = np.zeros((clients, classes), dtype=bool)
            for client, number in enumerate(rng.integers(low, high + 1, clients)):
                holds[client, rng.permutation(classes)[:number]] = True
            if holds.any(axis=0).all():
                return holds
        raise self.misfit(
            f"in {_ATTEMPTS} draws, some class of {dataset.name} had no holder",
            "use more clients or more classes per client",
        )
