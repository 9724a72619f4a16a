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


class FileParameters(PartitionParameters):
    """Parameters of a partition from a file."""

    path: Path
    """Table (.csv or .parquet) with the columns sample (row of the training data, from 0), client (number from 0) and,
    if clients have their own test samples, is_test (true or false, or 1 or 0)."""


class FromFile(Partitioner):
    """Samples and their clients from a table; samples that are not in the table are not used."""

    name = "file"
    Params = FileParameters
    params: FileParameters

    def assign(self, dataset: Dataset, rng: np.random.Generator, folder: Path | None) -> Assignment:
        """Read and check the table."""
        path = resolve(self.params.path, folder)
        sample, client, is_test = self._read(path)
        total = len(dataset.train_y)
        outside = np.flatnonzero((sample < 0) | (sample >= total))
        if len(outside):
            row = int(outside[0])
            raise UserError(
                f"there is no sample {sample[row]}; {dataset.name} has samples 0 to {total - 1}",
                where=row_place(path, row),
            )
        _, first_rows = np.unique(sample, return_index=True)
        if len(first_rows) < len(sample):
            repeated = int(np.setdiff1d(np.arange(len(sample)), first_rows)[0])
            raise UserError(
                f"sample {sample[repeated]} appears twice",
                where=row_place(path, repeated),
                hint="a sample belongs to at most one client",
            )
        clients = int(client.max()) + 1
        training = client if is_test is None else client[~is_test]
        idle = np.setdiff1d(np.arange(min(clients, len(client) + 1)), training)
        hint = "number the clients 0, 1, 2, ... without gaps"
        if client.min() < 0:
            row = int(np.argmax(client < 0))
            raise UserError(
                f"client {client[row]} is negative", where=row_place(path, row), hint=hint
            )
        if len(idle):
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
                f"both its column is_test and the parameter test ({self.params.test}) choose test samples",
                where=str(path),
                hint="remove the column is_test or the parameter test",
            )
        return sample, client, test_marks(table["is_test"].to_numpy(), "column 'is_test'", path)
