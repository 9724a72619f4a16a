"""A user's table, one row per sample."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset, DatasetComponent, TargetKind
from fedsim.tasks.reading.arrays import as_tokens, test_marks
from fedsim.tasks.reading.files import read_table, resolve, row_place
from fedsim.tasks.reading.splitting import HeldOutParameters, split_dataset, standardized
from fedsim.vocabulary.formatting import format_counted, format_names

if TYPE_CHECKING:
    import pandas as pd


class TableParameters(HeldOutParameters):
    """Parameters of a table."""

    path: Path
    """The file, .csv or .parquet, with a named column for each feature, such as `patients.csv`."""
    target: str
    """Column of the class, such as `diagnosis`, or of the quantity to be predicted."""
    target_kind: TargetKind = "class"
    """Type of the target: a class, or a quantity (regression), which keeps its unit."""
    group: str | None = None
    """Column of the natural group (client) of each row."""
    features: list[str] | None = None
    """Feature columns, which must be numeric; by default all but target, group and is_test."""
    standardize: bool = True
    """Subtract each feature's mean over the training rows and divide by its standard deviation."""
    tokens: bool = False
    """The features are integer codes from 0, such as tokens, which the model receives as int64, not standardized."""
    is_test: str | None = None
    """Column that marks the test samples: true or false, or 1 or 0."""


class Table(DatasetComponent):
    """A CSV or Parquet table: one row per sample, one column with the target, optionally one with the client."""

    name = "table"
    Params = TableParameters
    params: TableParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The rows."""
        params = self.params
        path = resolve(params.path, folder)
        if path.is_file() and path.suffix not in (".csv", ".parquet"):
            raise UserError(
                f"'{path.suffix}' is not a known extension of a table",
                where=str(path),
                hint="use a .csv or .parquet file",
            )
        frame = read_table(
            path,
            "fix the file or write it again; a CSV file is UTF-8 text with a line of column names",
        )
        if not len(frame):
            raise UserError("it has no rows", where=str(path))
        features = self._features(frame, path)
        _refuse_missing(frame[[*features, *self._not_features]], path)
        if params.tokens:
            x = as_tokens(frame[features].to_numpy(), f"columns {', '.join(features)}", path)
        else:
            x = frame[features].to_numpy(dtype=np.float64)
            _refuse_infinite(x, features, path)
        labels: npt.NDArray[Any]
        target: dict[str, Any] = {"classes": 1, "kind": "regression"}
        if params.target_kind == "class":
            classes, labels = _classes(frame[params.target], path)
            target = {"classes": len(classes), "class_names": tuple(map(str, classes))}
        else:
            labels = _quantities(frame[params.target], path)
        if params.group is not None:
            _refuse_spaces(frame[params.group], path)
        if params.is_test is None:
            is_test = params.held_out(len(frame))
        else:
            is_test = test_marks(
                frame[params.is_test].to_numpy(), f"column '{params.is_test}'", path
            )
        if not params.tokens:
            x = standardized(x, is_test) if params.standardize else x.astype(np.float32)
        return split_dataset(
            x,
            labels,
            is_test,
            None if params.group is None else frame[params.group].to_numpy(),
            name=path.stem,
            tokens=params.tokens,
            feature_names=tuple(features),
            **target,
        )

    @property
    def _not_features(self) -> list[str]:
        """Columns that cannot be features."""
        params = self.params
        return [name for name in (params.target, params.group, params.is_test) if name is not None]

    def _features(self, frame: pd.DataFrame, path: Path) -> list[str]:
        """The feature columns, all numeric."""
        features = self.params.features
        if features is None:
            features = [name for name in frame.columns if name not in self._not_features]
            # The name that pandas gives to a column without one.
            if unnamed := [name for name in features if str(name).startswith("Unnamed: ")]:
                raise UserError(
                    f"column {list(frame.columns).index(unnamed[0]) + 1} has no name, so it may be an index instead of "
                    "a feature",
                    where=str(path),
                    hint="write the file with to_csv(index=False), or list the columns to use in features: "
                    f"[{', '.join(name for name in features if name not in unnamed)}]",
                )
        missing = [name for name in [*self._not_features, *features] if name not in frame.columns]
        if missing:
            hint = f"its columns are: {', '.join(map(str, frame.columns))}"
            separators = [one for one in ";\t|" if one in str(frame.columns[0])]
            if len(frame.columns) == 1 and separators:
                hint = f"its columns are separated by {separators[0]!r}; separate them by commas"
            raise UserError(
                f"no column {', '.join(repr(name) for name in missing)}",
                where=str(path),
                hint=hint,
            )
        leaks = [name for name in features if name in self._not_features]
        if leaks:
            raise UserError(
                f"column {leaks[0]!r} is both a feature and target, group or is_test",
                where=str(path),
                hint="remove it from features, because a model must not see it",
            )
        text = [name for name in features if frame[name].dtype.kind not in "fiub"]
        if text or not features:
            where, example = str(path), ""
            numeric = [name for name in features if name not in text]
            if text:
                values = frame[text[0]].tolist()
                row = next((row for row, value in enumerate(values) if not _is_number(value)), 0)
                where, example = row_place(path, row), f", such as '{values[row]}'"
            raise UserError(
                f"not all values of {format_names([repr(name) for name in text])} are numbers{example}"
                if text
                else "it has no feature column",
                where=where,
                hint=f"use the numeric columns, features: [{', '.join(numeric)}], or turn text into numbers first"
                if numeric
                else "turn text into numbers first",
            )
        return features


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _classes(column: pd.Series[Any], path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The sorted classes, and the index of each row's class."""
    values, problem, where = column.to_numpy(), None, str(path)
    if column.dtype.kind == "f" and (values % 1 != 0).any():
        row = int(np.argmax(values % 1 != 0))
        problem = f"{values[row]}, which is a quantity, not a class"
        where = row_place(path, row)
    elif column.dtype.kind not in "fiubO" or (
        values.dtype.kind == "O" and not all(isinstance(value, str) for value in values)
    ):
        problem = "values other than text, whole numbers, or true and false"
    elif (values == values[0]).all():
        problem = "one class only"
    if problem is not None:
        raise UserError(
            f"column '{column.name}' contains {problem}",
            where=where,
            hint="target must name a column of at least two classes: text, whole numbers, or true and false; "
            "to predict a number, set target_kind: quantity",
        )
    _refuse_spaces(column, path)
    classes, labels = np.unique(values, return_inverse=True)
    return classes, labels.astype(np.int64)


def _refuse_spaces(column: pd.Series[Any], path: Path) -> None:
    """Refuse names of classes or groups that differ only in the spaces around them."""
    if column.dtype.kind == "O":
        rows = Counter(value for value in column if isinstance(value, str))
        first = dict[str, str]()
        for value in rows:
            other = first.setdefault(value.strip(), value)
            if other != value:
                rare, common = sorted((value, other), key=rows.__getitem__)
                raise UserError(
                    f"column '{column.name}' contains {rare!r} ({format_counted(rows[rare], 'row')}) and {common!r} "
                    f"({format_counted(rows[common], 'row')}), which differ only in spaces",
                    where=row_place(path, column.tolist().index(rare)),
                    hint="remove the spaces, as frame[column].str.strip() of pandas does",
                )


def _quantities(column: pd.Series[Any], path: Path) -> npt.NDArray[np.float32]:
    """The numbers to be predicted, (n,) float32."""
    if column.dtype.kind not in "fiu":
        raise UserError(
            f"column '{column.name}' does not contain numbers, but target_kind is quantity",
            where=str(path),
            hint="name a numeric column as target, or remove target_kind",
        )
    values = column.to_numpy(dtype=np.float64)
    _refuse_infinite(values[:, None], [str(column.name)], path)
    return values.astype(np.float32)


def _refuse_missing(frame: pd.DataFrame, path: Path) -> None:
    """Refuse empty cells; the message gives row and column of the first."""
    empty = frame.isna().to_numpy()
    if empty.any():
        row, column = (int(index) for index in np.argwhere(empty)[0])
        count = int(empty.sum())
        raise UserError(
            f"{format_counted(count, 'cell')} {'is empty,' if count == 1 else 'are empty, the first'} "
            f"in column '{frame.columns[column]}'",
            where=row_place(path, row),
            hint="drop these rows or fill the cells first",
        )


def _refuse_infinite(x: npt.NDArray[np.float64], features: list[str], path: Path) -> None:
    """Refuse values that are not finite in float32; the message gives row and column of the first."""
    wrong = ~(np.abs(x) <= np.finfo(np.float32).max)
    if wrong.any():
        row, column = (int(index) for index in np.argwhere(wrong)[0])
        raise UserError(
            f"column '{features[column]}' contains {x[row, column]}",
            where=row_place(path, row),
            hint="drop the row, or give it a finite number",
        )
