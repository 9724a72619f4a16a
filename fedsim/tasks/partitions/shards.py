"""A few labels per client, in equal shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import UNUSED, Assignment, CountedParameters, Partitioner
from fedsim.vocabulary.formatting import format_count


class ShardsParameters(CountedParameters):
    """Parameters of the shard partition."""

    classes_per_client: int = Field(default=2, ge=1)
    """Number P of shards per client; it may have fewer labels, because two of its shards may have the same one."""


class Shards(Partitioner):
    """Label skew: each class is divided into equal shards, and each client gets P shards.

    The rule of LG-FedAvg (Liang et al. 2020), also used by FedLGA: there are P x N / classes shards of every class, any
    remaining samples go to the first shards, and the shards are assigned at random. If P x N is not a multiple of the
    number of classes, the largest classes have one more shard.
    """

    name = "shards"
    needs_classes = True
    Params = ShardsParameters
    params: ShardsParameters

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """Divide the classes and assign the shards."""
        clients, per_client = self.params.clients, self.params.classes_per_client
        sizes = np.bincount(dataset.train_y, minlength=dataset.classes)
        present = np.flatnonzero(sizes)
        total = clients * per_client
        shards = np.zeros(dataset.classes, dtype=np.int64)
        shards[present] = total // len(present)
        largest_first = present[np.argsort(-sizes[present], kind="stable")]
        shards[largest_first[: total % len(present)]] += 1
        if total < len(present):
            raise self.misfit(
                f"{format_count(clients)} clients with {per_client} classes each cannot hold the {len(present)} "
                f"classes of {dataset.name}",
                "use more clients or more classes_per_client",
            )
        scarce = np.flatnonzero(sizes < shards)
        if len(scarce):
            lacking = int(scarce[0])
            raise self.misfit(
                f"{format_count(total)} shards need {format_count(shards[lacking])} samples of class {lacking}; "
                f"{dataset.name} has {format_count(sizes[lacking])}",
                "use fewer clients or fewer classes_per_client",
            )
        dealt = rng.permutation(np.repeat(np.arange(dataset.classes), shards))
        owners = np.full(len(dataset.train_y), UNUSED, dtype=np.int64)
        for label in present:
            holders = np.flatnonzero(dealt == label) // per_client
            rows = rng.permutation(np.flatnonzero(dataset.train_y == label))
            for holder, shard in zip(holders, np.array_split(rows, len(holders)), strict=True):
                owners[shard] = holder
        return Assignment(owners, clients)
