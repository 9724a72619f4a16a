"""A partition from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.partition import UNUSED, Assignment, IntArray, Partitioner, PartitionParameters
from fedsim.tasks.reading.arrays import test_marks
from fedsim.tasks.reading.files import read_table, resolve, row_place


class FromFile(Partitioner):
    """Samples and their clients from a table; samples that are not in the table are not used."""

    name = "file"

    class Params(PartitionParameters):
        path: Path
        """Table (.csv or .parquet) with the columns sample (row of the training data, from 0), client (number from 0)
        and, if clients have their own test samples, is_test (true or false, or 1 or 0)."""

    params: Params

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """Read and check the table."""
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
            raise UserError(f"client {idle[0]} has no training samples", where=str(path), hint=hint)
        owners = np.full(total, UNUSED, dtype=np.int64)
        owners[sample] = client
        if is_test is None:
            return Assignment(owners, clients)
        marks = np.zeros(total, dtype=bool)
        marks[sample] = is_test
        return Assignment(owners, clients, is_test=marks)

    def _read(self, path: Path) -> tuple[IntArray, IntArray, npt.NDArray[np.bool_] | None]:
        """Sample and client of each row, and whether it is a test sample if the table has such a column."""
        table = read_table(path, "give a CSV or Parquet table with the columns sample and client")
        for column in ("sample", "client"):
            if column not in table or table[column].dtype.kind not in "iu" or not len(table):
                raise UserError(
                    f"it has no rows, or no column '{column}' of whole numbers",
                    where=str(path),
                    hint=f"its columns are: {', '.join(map(str, table.columns))}",
                )
        sample, client = (table[name].to_numpy(dtype=np.int64) for name in ("sample", "client"))
        if "is_test" not in table:
            return sample, client, None
        if self.params.test != "none":
            raise UserError(
                "both its column is_test and the parameter test choose test samples",
                where=str(path),
                hint="remove one of them",
            )
        return sample, client, test_marks(table["is_test"].to_numpy(), "column 'is_test'", path)
