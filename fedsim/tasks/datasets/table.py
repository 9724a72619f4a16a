"""A user's own table: one row per sample."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, Field

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.arrays import are_marks
from fedsim.tasks.reading.files import require_file, resolve
from fedsim.tasks.reading.splitting import held_out
from fedsim.tasks.reading.tables import read_table

if TYPE_CHECKING:
    import pandas as pd


class TableParameters(Parameters):
    """Parameters of a table."""

    path: Path
    """The file, .csv or .parquet, with a named column for each feature."""
    target: str
    """Column that holds the class."""
    group: str | None = None
    """Column that holds the natural group (client) of a row."""
    features: list[str] | None = None
    """Columns that a model sees; all others but target, group and is_test when not given. They must be numbers."""
    standardize: bool = Field(
        default=True, validation_alias=AliasChoices("standardize", "standardise")
    )
    """Subtract each feature's mean over the training rows and divide by its standard deviation."""
    is_test: str | None = None
    """Column that marks the test samples: true or false, or 1 or 0."""
    test_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of the rows that become test samples if no column marks them."""
    seed: int = Field(default=0, ge=0)
    """Seed of that choice."""


class Table(DatasetComponent):
    """A CSV or Parquet table: one row per sample, one column with the class, optionally one with the client."""

    name: ClassVar[str] = "table"
    Params = TableParameters
    params: TableParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The rows."""
        params = self.params
        path = resolve(params.path, folder)
        frame = _read(path)
        features = self._features(frame, path)
        self._refuse_missing(frame, features, path)
        x = frame[features].to_numpy(dtype=np.float64)
        _refuse_infinite(x, features, path)
        classes, labels = self._classes(frame, path)
        if params.is_test is None:
            test = held_out(len(frame), params.test_share, params.seed)
        else:
            test = _marks(frame, params.is_test, path)
        if params.standardize:
            std = x[~test].std(axis=0)
            x = (x - x[~test].mean(axis=0)) / np.where(std > 0, std, 1.0)
        groups = None
        names: tuple[str, ...] = ()
        if params.group is not None:
            values, numbers = np.unique(frame[params.group].to_numpy(), return_inverse=True)
            groups, names = numbers.astype(np.int64), tuple(str(value) for value in values)
        y = labels
        x = x.astype(np.float32)
        return Dataset(
            name=path.stem,
            train_x=x[~test],
            train_y=y[~test],
            test_x=x[test],
            test_y=y[test],
            classes=len(classes),
            kind="binary" if len(classes) == 2 else "classification",
            class_names=tuple(str(value) for value in classes),
            train_groups=None if groups is None else groups[~test],
            test_groups=None if groups is None else groups[test],
            group_names=names,
        )

    def _features(self, frame: pd.DataFrame, path: Path) -> list[str]:
        params = self.params
        taken = self._taken
        features = params.features
        if features is None:
            features = [name for name in frame.columns if name not in taken]
        missing = [name for name in [*taken, *features] if name not in frame.columns]
        if missing:
            raise UserError(
                f"no column {', '.join(repr(name) for name in missing)}",
                where=str(path),
                hint=f"its columns are: {', '.join(map(str, frame.columns))}",
            )
        told = [name for name in features if name in taken]
        if told:
            raise UserError(
                f"column {told[0]!r} is a feature and also target, group or is_test",
                where=str(path),
                hint="remove it from features; a model must not see it",
            )
        text = [name for name in features if frame[name].dtype.kind not in "fiub"]
        if text or not features:
            raise UserError(
                f"columns {', '.join(text)} are not numbers"
                if text
                else "it has no feature column",
                where=str(path),
                hint="name the numeric columns with features:, or turn text into numbers first",
            )
        return features

    @property
    def _taken(self) -> list[str]:
        """Columns that are no features."""
        params = self.params
        return [name for name in (params.target, params.group, params.is_test) if name is not None]

    def _classes(
        self, frame: pd.DataFrame, path: Path
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """The classes in order, and the number of each row's."""
        target = self.params.target
        column = frame[target]
        values = column.to_numpy()
        if column.dtype.kind == "f" and (values % 1 != 0).any():
            row = int(np.argmax(values % 1 != 0))
            raise UserError(
                f"column '{target}' holds {values[row]} in row {row}, a quantity, not a class",
                where=str(path),
                hint="target must name a column of classes: text, whole numbers, or true and false",
            )
        if column.dtype.kind not in "fiubO" or (
            values.dtype.kind == "O" and not all(isinstance(value, str) for value in values)
        ):
            raise UserError(
                f"column '{target}' holds values other than text, whole numbers, or true and false",
                where=str(path),
                hint="target must name a column of classes",
            )
        classes, labels = np.unique(values, return_inverse=True)
        if len(classes) < 2:
            raise UserError(
                f"column '{target}' holds one class only",
                where=str(path),
                hint="use at least two",
            )
        return classes, labels.astype(np.int64)

    def _refuse_missing(self, frame: pd.DataFrame, features: list[str], path: Path) -> None:
        used = [*features, *self._taken]
        empty = frame[used].isna()
        if empty.to_numpy().any():
            column = next(name for name in used if empty[name].any())
            row = int(np.argmax(empty[column].to_numpy()))
            raise UserError(
                f"{int(empty.to_numpy().sum()):,} cells are empty, the first in column '{column}', row {row}",
                where=str(path),
                hint="drop these rows or fill the cells first",
            )


def _refuse_infinite(x: npt.NDArray[np.float64], features: list[str], path: Path) -> None:
    """Refuse values that are not finite in float32, with row and column."""
    wrong = ~(np.abs(x) <= np.finfo(np.float32).max)
    if wrong.any():
        row, column = (int(index) for index in np.argwhere(wrong)[0])
        raise UserError(
            f"column '{features[column]}' holds {x[row, column]} in row {row}",
            where=str(path),
            hint="drop the row, or give it a finite number",
        )


def _marks(frame: pd.DataFrame, name: str, path: Path) -> npt.NDArray[np.bool_]:
    """Which rows are test samples."""
    values = frame[name].to_numpy()
    if not are_marks(values):
        raise UserError(
            f"column '{name}' holds values other than true and false, or 1 and 0",
            where=str(path),
            hint="is_test must name a column that marks the test samples",
        )
    return values.astype(bool)


def _read(path: Path) -> pd.DataFrame:
    require_file(path)
    if path.suffix not in (".csv", ".parquet"):
        raise UserError(
            f"'{path.suffix}' is not a known kind of table",
            where=str(path),
            hint="give a file that ends in .csv or .parquet",
        )
    frame = read_table(
        path,
        "fix the file or write it again; a CSV file is UTF-8 text with a line of column names",
    )
    if not len(frame):
        raise UserError("it has no rows", where=str(path))
    return frame
