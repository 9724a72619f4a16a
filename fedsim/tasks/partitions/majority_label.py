"""One label for most of a client's samples, and a share with any label."""

from __future__ import annotations

import heapq
from pathlib import Path

import numpy as np
from pydantic import Field

from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import Assignment, CountedParameters, Partitioner
from fedsim.vocabulary.formatting import format_count


class MajorityLabelParameters(CountedParameters):
    """Parameters of the majority-label partition."""

    similarity: float = Field(default=0.05, ge=0, le=1)
    """Share of the samples that are assigned independently of their label; 0 means one label per client, 1 the same mix
    for all."""


class MajorityLabel(Partitioner):
    """One majority label per client (Wang and Ji, A Unified Analysis of Federated Learning with Arbitrary Client
    Participation, 2022).

    Client i owns label floor(i x classes / N), so each label belongs to a block of adjacent clients. With probability
    ``similarity``, a sample is assigned to a client drawn uniformly; otherwise to the client with the fewest samples
    (the first of several) among those that own its label.
    """

    name = "majority_label"
    needs_classes = True
    Params = MajorityLabelParameters
    params: MajorityLabelParameters

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """Assign the samples in order."""
        clients, samples = self.params.clients, len(dataset.train_y)
        if clients < dataset.classes:
            raise self.misfit(
                f"{format_count(clients)} clients cannot each own one of the {dataset.classes} labels of "
                f"{dataset.name}",
                f"use at least {dataset.classes} clients",
            )
        anywhere = rng.uniform(size=samples) < self.params.similarity
        drawn = rng.integers(clients, size=samples)
        owned = np.arange(clients) * dataset.classes // clients
        # Entries (size, client); an outdated size is corrected when the entry reaches the top.
        heaps = [
            [(0, client) for client in np.flatnonzero(owned == label).tolist()]
            for label in range(dataset.classes)
        ]
        sizes = [0] * clients
        owners = np.empty(samples, dtype=np.int64)
        for row, label in enumerate(dataset.train_y.tolist()):
            if anywhere[row]:
                client = int(drawn[row])
            else:
                heap = heaps[label]
                while heap[0][0] != sizes[heap[0][1]]:
                    heapq.heapreplace(heap, (sizes[heap[0][1]], heap[0][1]))
                client = heap[0][1]
                heapq.heapreplace(heap, (sizes[client] + 1, client))
            sizes[client] += 1
            owners[row] = client
        return Assignment(owners, clients)
