"""Counts of what clients hold."""

from __future__ import annotations

import numpy as np

from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import Partition, partition_table


def rows_of(partition: Partition) -> np.ndarray:
    return np.sort(partition.train_rows)


def labels_per_client(dataset: Dataset, partition: Partition) -> np.ndarray:
    return (partition_table(dataset, partition) > 0).sum(axis=1)
