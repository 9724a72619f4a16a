"""Partitions by the partitioners of Flower."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import UserError, nearest_or_all
from fedsim.parts.extras import required
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import UNUSED, Assignment, Partitioner, PartitionParameters


class Flwr(Partitioner):
    """A partitioner of Flower Datasets (``pip install "fedsim-des[flower]"``), which gets the columns ``label`` and, if
    there are natural groups, ``group``.
    """

    name = "flwr"

    class Params(PartitionParameters):
        partitioner: str
        """Class of `flwr_datasets.partitioner`, such as `DirichletPartitioner`."""
        arguments: dict[str, Any] = {}
        """Arguments of the class, such as `{num_partitions: 10, alpha: 0.3}`. `partition_by` is `label` and `seed`
        follows from the scenario's seed, unless they are given here."""

    params: Params

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """The rows of the partitioner's partitions."""
        where = "task.partition"
        known = required("flwr_datasets.partitioner", "flower", where)
        make = getattr(known, self.params.partitioner, None)
        if not inspect.isclass(make):
            names = [name for name in dir(known) if name.endswith("Partitioner")]
            raise UserError(
                f"Flower has no partitioner '{self.params.partitioner}'",
                where=f"{where}.partitioner",
                hint=nearest_or_all(self.params.partitioner, names, f"known: {', '.join(names)}"),
            )
        columns = {"row": np.arange(len(dataset.train_y)), "label": dataset.train_y}
        if dataset.train_groups is not None:
            columns["group"] = np.array(dataset.group_names)[dataset.train_groups]
        accepted = inspect.signature(make).parameters
        supplied = {"partition_by": "label", "seed": int(rng.integers(2**31))}
        arguments = {key: value for key, value in supplied.items() if key in accepted}
        arguments |= self.params.arguments
        try:
            partitioner: Any = make(**arguments)
            partitioner.dataset = required("datasets", "flower", where).Dataset.from_dict(columns)
            partitions = [
                np.array(partitioner.load_partition(client)["row"][:], np.int64)
                for client in range(partitioner.num_partitions)
            ]
        # The classes check their arguments and the data by errors of many kinds.
        except Exception as error:
            raise self.misfit(
                f"{self.params.partitioner} fails: {type(error).__name__}: {error}",
                f"its arguments are {inspect.signature(make)}; columns: {', '.join(columns)}",
            ) from error
        owners = np.full(len(dataset.train_y), UNUSED, dtype=np.int64)
        for client, rows in enumerate(partitions):
            owners[rows] = client
        if sum(map(len, partitions)) != np.count_nonzero(owners != UNUSED):
            raise self.misfit(
                f"{self.params.partitioner} gives a sample to more than one client",
                "use a partitioner that divides the samples",
            )
        natural = getattr(partitioner, "partition_id_to_natural_id", {})
        return Assignment(owners, len(partitions), tuple(map(str, natural.values())))
