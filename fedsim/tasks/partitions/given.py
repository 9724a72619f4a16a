"""Partitions that are given: in a file, or by a partitioner of Flower."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import UserError, nearest_or_all, refused
from fedsim.parts.extras import required
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import UNUSED, Assignment, Partitioner, PartitionParameters
from fedsim.tasks.reading.files import read_table, resolve, row_place, test_marks
from fedsim.vocabulary.arrays import Bools, Ints

_COLUMNS = {"sample": "sample", "client": "client", "istest": "is_test"}
_COLUMNS |= dict.fromkeys(("test", "split", "istrain", "train"), "is_test")


class FromFile(Partitioner):
    """Samples and their clients from a table; samples that are not in the table are not used."""

    name = "file"

    class Params(PartitionParameters):
        path: Path
        """Table (.csv or .parquet) with the columns sample (row of the training data, from 0), client (number from 0)
        and, if clients have their own test samples, is_test (true or false, or 1 or 0)."""

    params: Params

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        import pandas as pd

        path = resolve(self.params.path, folder)
        sample, client, is_test = self._read(path)
        total = len(dataset.train_y)
        clients = int(client.max()) + 1
        for bad, what in (
            ((sample < 0) | (sample >= total), f"{dataset.name} has the samples 0 to {total - 1}"),
            (pd.Series(sample).duplicated().to_numpy(), "a sample belongs to at most one client"),
            (client < 0, "clients have the numbers 0, 1, 2, ..."),
        ):
            if bad.any():
                row = int(bad.argmax())
                message = f"has the sample {sample[row]} of client {client[row]}"
                raise UserError(message, where=row_place(path, row), hint=what)
        training = client if is_test is None else client[~is_test]
        idle = np.setdiff1d(np.arange(min(clients, len(client) + 1)), training)
        if len(idle):
            hint = "number the clients 0, 1, 2, ... without gaps"
            raise UserError(f"client {idle[0]} has no training samples", where=path, hint=hint)
        owners = np.full(total, UNUSED, dtype=np.int64)
        owners[sample] = client
        if is_test is None:
            return Assignment(owners, clients)
        marks = np.zeros(total, dtype=bool)
        marks[sample] = is_test
        return Assignment(owners, clients, is_test=marks)

    def _read(self, path: Path) -> tuple[Ints, Ints, Bools | None]:
        table = read_table(path, "give a CSV or Parquet table with the columns sample and client")
        for column in ("sample", "client"):
            if column in table and table[column].isna().any():
                where = row_place(path, int(table[column].isna().to_numpy().argmax()))
                hint = "number the sample and its client, or remove the row"
                raise UserError(f"{column} is empty", where=where, hint=hint)
            if column not in table or table[column].dtype.kind not in "iu" or not len(table):
                raise UserError(
                    f"it has no rows, or no column '{column}' of whole numbers",
                    where=path,
                    hint=f"its columns are: {', '.join(map(str, table.columns))}",
                )
        for name in map(str, table.columns):
            if (meant := _COLUMNS.get(re.sub(r"[\W_]", "", name.lower()), name)) != name:
                message = f"its column '{name}' is not '{meant}'"
                raise UserError(message, where=path, hint="rename or remove it")
        sample, client = (table[name].to_numpy() for name in ("sample", "client"))
        if "is_test" not in table:
            return sample, client, None
        if self.params.test != "none":
            raise UserError(
                "both its column is_test and the parameter test choose test samples",
                where=path,
                hint="remove one of them",
            )
        return sample, client, test_marks(table["is_test"].to_numpy(), "column 'is_test'", path)


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
        columns: dict[str, Any] = {"row": np.arange(len(dataset.train_y)), "label": dataset.train_y}
        if dataset.train_groups is not None:
            columns["group"] = [dataset.group_names[group] for group in dataset.train_groups]
        accepted = inspect.signature(make).parameters
        supplied = {"partition_by": "label", "seed": int(rng.integers(2**31))}
        arguments = {key: value for key, value in supplied.items() if key in accepted}
        arguments |= self.params.arguments
        hint = f"its arguments are {inspect.signature(make)}; columns: {', '.join(columns)}"
        # The classes check their arguments and the data by errors of many kinds.
        with refused(f"{self.params.partitioner} fails", where, hint, Exception):
            partitioner: Any = make(**arguments)
            partitioner.dataset = required("datasets", "flower", where).Dataset.from_dict(columns)
            partitions = [
                np.array(partitioner.load_partition(client)["row"][:], np.int64)
                for client in range(partitioner.num_partitions)
            ]
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
