"""The groups that the data come in."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import UNUSED, Assignment, IntArray, Partitioner, PartitionParameters


class NaturalParameters(PartitionParameters):
    """Parameters of the natural partition."""

    clients: int | None = Field(default=None, ge=1)
    """Number of groups to use, drawn at random; all when not given."""
    min_samples: int = Field(default=1, ge=1)
    """Groups with fewer training samples are left out."""


class Natural(Partitioner):
    """One client per natural group: writer, role, subject, center, device.

    With ``test: same_distribution`` a client's own test samples are the test samples of its group.
    """

    name: ClassVar[str] = "natural"
    Params = NaturalParameters
    params: NaturalParameters

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """Number the groups that are used, in their order."""
        if dataset.train_groups is None:
            raise UserError(
                f"dataset {dataset.name} has no natural groups",
                where="task.partition",
                hint="use iid, dirichlet or another partition that makes its own",
            )
        counts = np.bincount(dataset.train_groups, minlength=len(dataset.group_names))
        chosen = np.flatnonzero(counts >= self.params.min_samples)
        wanted = self.params.clients
        if (wanted is not None and wanted > len(chosen)) or not len(chosen):
            raise UserError(
                f"dataset {dataset.name} has {len(chosen):,} groups of {self.params.min_samples:,} or more "
                f"training samples, not {wanted or 1:,}",
                where="task.partition",
                hint="use fewer clients or a smaller min_samples",
            )
        if wanted is not None:
            chosen = np.sort(rng.permutation(chosen)[:wanted])
        names = tuple(dataset.group_names[group] for group in chosen)
        return Assignment(_renumbered(dataset.train_groups, dataset, chosen), len(chosen), names)

    def assign_test(
        self, dataset: Dataset, assignment: Assignment, rng: np.random.Generator
    ) -> IntArray:
        """The test samples of each client's group; by label if the test samples have no groups."""
        if dataset.test_groups is None:
            return super().assign_test(dataset, assignment, rng)
        number = {name: client for client, name in enumerate(assignment.names)}
        chosen = np.array([number.get(name, UNUSED) for name in dataset.group_names])
        owners: IntArray = chosen[dataset.test_groups].astype(np.int64)
        return owners


def _renumbered(groups: IntArray, dataset: Dataset, chosen: IntArray) -> IntArray:
    """Client of each sample from its group, where ``chosen`` groups are the clients."""
    numbers = np.full(len(dataset.group_names), UNUSED, dtype=np.int64)
    numbers[chosen] = np.arange(len(chosen))
    return numbers[groups]
