"""One client per natural group of the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import UNUSED, Assignment, IntArray, Partitioner, PartitionParameters
from fedsim.vocabulary.formatting import format_count


class NaturalParameters(PartitionParameters):
    """Parameters of the natural partition."""

    takes_clients = True
    clients: int | None = Field(default=None, ge=1)
    """Number of groups to use, drawn at random; by default all."""
    min_samples: int = Field(default=1, ge=1)
    """Groups with fewer training samples are left out."""


class Natural(Partitioner):
    """One client per natural group: writer, role, subject, center, device.

    With ``test: same_distribution`` a client's own test samples are the test samples of its group.
    """

    name = "natural"
    Params = NaturalParameters
    params: NaturalParameters

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """Number the chosen groups in their order."""
        if dataset.train_groups is None:
            raise self.misfit(
                f"data set {dataset.name} has no natural groups",
                "use iid, dirichlet or another partition that needs no groups",
            )
        counts = np.bincount(dataset.train_groups, minlength=len(dataset.group_names))
        chosen = np.flatnonzero(counts >= self.params.min_samples)
        clients = self.params.clients
        if len(chosen) < (clients or 1):
            raise self.misfit(
                f"data set {dataset.name} has {format_count(len(chosen))} groups of "
                f"{format_count(self.params.min_samples)} or more training samples, not {format_count(clients or 1)}",
                "use fewer clients or a smaller min_samples",
            )
        if clients is not None:
            chosen = np.sort(rng.permutation(chosen)[:clients])
        numbers = np.full(len(dataset.group_names), UNUSED, dtype=np.int64)
        numbers[chosen] = np.arange(len(chosen))
        names = tuple(dataset.group_names[group] for group in chosen)
        return Assignment(numbers[dataset.train_groups], len(chosen), names)

    def assign_test(
        self, dataset: Dataset, assignment: Assignment, rng: np.random.Generator
    ) -> IntArray:
        """The test samples of each client's group; by label if the test samples have no groups."""
        if dataset.test_groups is None:
            return super().assign_test(dataset, assignment, rng)
        clients = {name: client for client, name in enumerate(assignment.names)}
        numbers = np.array([clients.get(name, UNUSED) for name in dataset.group_names], np.int64)
        owners: IntArray = numbers[dataset.test_groups]
        return owners
