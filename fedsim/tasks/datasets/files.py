"""A user's files: arrays, a table, or folders of images."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.files.checksums import PATHS_ARE_RELATIVE, require_file
from fedsim.files.delimited import hint_of_header
from fedsim.tasks.dataset import Dataset, DatasetComponent, TargetKind
from fedsim.tasks.reading.files import (
    as_tokens,
    names_of_arrays,
    read_arrays,
    read_table,
    resolve,
    row_place,
    test_marks,
)
from fedsim.tasks.reading.samples import (
    HeldOutParameters,
    Layout,
    PictureParameters,
    array_names,
    dataset_of_arrays,
    decoded,
    joined,
    opened,
    split_dataset,
    standardized,
)
from fedsim.vocabulary.arrays import Array, Bools, Floats, Ints
from fedsim.vocabulary.formatting import format_names

if TYPE_CHECKING:
    import pandas as pd
    from PIL.Image import Image


class Npz(DatasetComponent):
    """Arrays in an .npz file: ``x`` (n, ...) numbers, ``y`` (n,) targets, optionally ``group`` (n,) and ``is_test``
    (n,); or a training and a test pair such as ``x_train``, ``y_train``, ``x_test`` and ``y_test``.

    Labels are integers, whole numbers in floats, one-hot rows, or names, whose classes are sorted. 8-bit samples are
    stored unchanged and divided by 255 when used; all others become float32, except tokens, which stay integers.
    Instead of a file, ``path`` may be a folder with ``x.npy``, ``y.npy`` and so on. Samples ``x`` of 8 bits or float32
    (tokens: also int32 or int64) are then read from disk as needed, and may be larger than memory if all training
    samples come before the test samples.
    """

    name = "npz"

    class Params(HeldOutParameters):
        path: Path
        """The file, or a folder with the arrays as .npy files. Arrays x, y (and optionally group and is_test): samples,
        labels, natural group of each sample, and whether it is a test sample. Or a training and a test pair: x_train,
        y_train, x_test, y_test; train_images, train_labels, test_images, test_labels; and similar names."""
        layout: Layout = "auto"
        """Order of the axes of images: channels_first (n, channels, height, width), the order of models, or
        channels_last; auto recognizes gray images without channels and channels in the last axis."""
        labels_from: int = 0
        """Label of the first class: 1 if labels run from 1 to the number of classes."""
        tokens: bool = False
        """The integers of x are codes from 0, such as tokens or characters, which the model receives as int64."""
        target_kind: TargetKind = "class"
        """Content of y: labels, or quantities to be predicted (regression)."""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        params = self.params
        path = resolve(params.path, folder)
        available = names_of_arrays(path)
        read = read_arrays(path, array_names(available), ("group", "is_test"))
        arrays, notes = joined(read, available, str(path))
        return dataset_of_arrays(
            arrays,
            str(path),
            params.held_out,
            name=path.stem,
            notes=notes,
            **params.model_dump(include={"target_kind", "labels_from", "tokens", "layout"}),
        )


class Table(DatasetComponent):
    """A CSV or Parquet table: one row per sample, one column with the target, optionally one with the client."""

    name = "table"

    class Params(HeldOutParameters):
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
        """The features are integer codes from 0, such as tokens, which the model receives as int64, not
        standardized."""
        is_test: str | None = None
        """Column that marks the test samples: true or false, or 1 or 0."""

        @classmethod
        def how_to_give(cls, key: str, given: Mapping[str, Any]) -> str:
            """The columns of the file, if it can be read."""
            with contextlib.suppress(UserError, TypeError, KeyError):
                columns = map(str, read_table(Path(given["path"]), "").columns)
                return f"its columns are: {', '.join(columns)}"
            return ""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        params = self.params
        path = resolve(params.path, folder)
        hint = "give a .csv or .parquet file; CSV is UTF-8 text with a line of column names"
        if path.is_file() and path.suffix.lower() not in (".csv", ".parquet"):
            raise UserError(f"'{path.suffix}' is not a table", where=path, hint=hint)
        names = [params.group] if params.group else []
        names += [params.target] if params.target_kind == "class" else []
        frame = read_table(path, hint, names)
        if not len(frame):
            raise UserError("it has no rows", where=path)
        features = self._features(frame, path)
        used = [*features, *self._not_features]
        _refuse(
            frame[used].isna().to_numpy(),
            used,
            path,
            "has an empty cell, or one that means none, such as nan",
        )
        if params.tokens:
            x = as_tokens(frame[features].to_numpy(), f"columns {', '.join(features)}", path)
        else:
            x = _finite(frame[features].to_numpy(dtype=np.float64), features, path)
        labels: Array
        target: dict[str, Any] = {"classes": 1, "kind": "regression"}
        if params.target_kind == "class":
            classes, labels = _classes(frame[params.target], path)
            target = {"classes": len(classes), "class_names": tuple(map(str, classes))}
        else:
            labels = _quantities(frame[params.target], path)
        if params.is_test is None:
            is_test = params.held_out(len(frame))
        else:
            is_test = test_marks(
                frame[params.is_test].to_numpy(), f"column '{params.is_test}'", path
            )
        if is_test.all():
            raise UserError(f"column '{params.is_test}' marks all rows as test samples", where=path)
        if not params.tokens:
            x = standardized(x, is_test) if params.standardize else x.astype(np.float32)
        doubtful = [name for name in features if re.sub(r"[\W_]", "", name.lower()) in _MARKS]
        if params.features is None and doubtful:
            what = f"features, not marks of samples: {', '.join(doubtful)}"
            target["notes"] = (f"{what} (to change that, give is_test, group or features)",)
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
        params = self.params
        return [name for name in (params.target, params.group, params.is_test) if name is not None]

    def _features(self, frame: pd.DataFrame, path: Path) -> list[str]:
        import pandas as pd

        columns = list(map(str, frame.columns))
        features = self.params.features
        if features is None:
            features = [name for name in columns if name not in self._not_features]
        known = {*columns}
        missing = [name for name in [*self._not_features, *features] if name not in known]
        if missing:
            raise UserError(
                f"no column {', '.join(map(repr, missing))}",
                where=path,
                hint=hint_of_header(columns, f"its columns are: {', '.join(columns)}"),
            )
        others = {*map(str.lower, self._not_features)}
        leaks = [name for name in features if name.lower() in others]
        kinds = dict(zip(columns, frame.dtypes, strict=True))
        text = [name for name in features if kinds[name].kind not in "fiub"]
        # The name that pandas gives to a column without one, which may be an index instead of a feature.
        unnamed = [
            name for name in features if not self.params.features and name.startswith("Unnamed: ")
        ]
        if wrong := leaks or text or unnamed or ([] if features else ["none"]):
            where = str(path)
            if text and not leaks:
                column = frame[text[0]]
                numbers = pd.to_numeric(column.map(str), errors="coerce")
                # Numbers beyond 64 bits are text, too.
                unread = (numbers.isna() | (numbers.abs() >= 2**63)) & column.notna()
                where = row_place(path, int(unread.to_numpy().argmax()))
            unfit = {*leaks, *text, *unnamed}
            usable = [name for name in features if name not in unfit]
            example = f"; choose, for example, features: [{', '.join(usable)}]" if usable else ""
            raise UserError(
                f"{format_names([repr(name) for name in wrong])} cannot be a feature",
                where=where,
                hint=f"a feature is a named column of numbers, not target, group or is_test{example}",
            )
        return features


_MARKS = {"istest", "test", "istrain", "train", "split", "fold", "group", "client", "clientid"}
"""Names of columns that seldom are features."""


def _classes(column: pd.Series[Any], path: Path) -> tuple[Array, Ints]:
    values = column.to_numpy()
    is_float = column.dtype.kind == "f" and np.isfinite(values).all()
    is_whole = column.dtype.kind in "iub" or (is_float and not (values % 1).any())
    is_text = column.dtype.kind == "O" and all(isinstance(value, str) for value in values)
    if not (is_whole or is_text) or (values == values[0]).all():
        raise UserError(
            f"column '{column.name}' does not contain classes",
            where=path,
            hint="target must name a column of at least two classes: text, whole numbers, or true and false; "
            "to predict a number, set target_kind: quantity",
        )
    classes, labels = np.unique(values, return_inverse=True)
    return classes, labels.astype(np.int64)


def _quantities(column: pd.Series[Any], path: Path) -> npt.NDArray[np.float32]:
    if column.dtype.kind not in "fiu":
        raise UserError(
            f"column '{column.name}' does not contain numbers",
            where=path,
            hint="name a numeric column as target, or remove target_kind: quantity",
        )
    values = column.to_numpy(dtype=np.float64)[:, None]
    return _finite(values, [str(column.name)], path)[:, 0].astype(np.float32)


def _finite(x: Floats, columns: list[str], path: Path) -> Floats:
    """The values (n, columns), all finite in float32."""
    wrong = ~(np.abs(x) <= np.finfo(np.float32).max)
    _refuse(wrong, columns, path, "has a number that is not finite in float32")
    return x


def _refuse(wrong: Bools, columns: list[str], path: Path, what: str) -> None:
    """Refuse marked cells (n, columns); the message gives row and column of the first."""
    for row, column in np.argwhere(wrong)[:1].tolist():
        raise UserError(
            f"column '{columns[column]}' {what}",
            where=row_place(path, row),
            hint="drop such rows, or fill or correct their cells",
        )


_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
_ENDINGS |= {".jfif", ".jpe", ".ppm", ".pgm"}
_SETS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}
"""Folders that are not classes."""
_TRAINING = r"(?<![a-z])train(ing)?(set)?(?![a-z])"
_TESTING = r"(?<![a-z])(test(ing)?|val(id(ation)?)?|eval|holdout)(set)?(?![a-z])"
_KNOWN = f"known: {', '.join(sorted(_ENDINGS))}"
_MOST_OTHERS = 100_000
"""Files and folders without an image after which a folder counts as one of something else."""


class ImageFolder(DatasetComponent):
    """Images in folders named after their classes, stored as 8-bit pixels and divided by 255 when used; 16-bit gray
    images are stored as float32 and divided by 65535.

    Files are read in order of their names; names that begin with a dot are ignored.
    """

    name = "image_folder"

    class Params(PictureParameters):
        root: Path
        """Folder that contains ``train/<class>/`` and ``test/<class>/``, or only ``<class>/``."""
        channels: Literal[1, 3] = 3
        """3 for color, 1 for gray."""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        root = resolve(self.params.root, folder)
        if not root.is_dir():
            raise UserError("no such folder", where=root, hint=PATHS_ARE_RELATIVE)
        parts = [root / "train", root / "test"]
        if not all(part.is_dir() for part in parts):
            parts = [root]
        classes = _class_folders(parts[0])
        if len(classes) < 2:
            raise UserError(
                f"has {len(classes)} class folders, but at least two are needed",
                where=parts[0],
                hint="put images into <class>/, or with a separate test set into train/<class>/ and test/<class>/",
            )
        named = {name.lower() for name in classes}
        trains = {name for name in named if re.search(_TRAINING, name)}
        if named <= _SETS or (trains and any(re.search(_TESTING, name) for name in named - trains)):
            raise UserError(
                f"its folders {format_names(classes)} are sets of samples, not classes",
                where=parts[0],
                hint="name them train and test, each with the folders of the classes in it",
            )
        if unknown := sorted(set(_class_folders(parts[-1])) - set(classes)):
            message = f"there is no class '{unknown[0]}' in {parts[0]}"
            raise UserError(message, where=parts[-1])
        folders = [part / name for part in parts for name in classes]
        for path in [*parts, *folders]:
            if path != root and root.resolve().is_relative_to(path.resolve()):
                message = f"leads to {path.resolve()}, which contains the data set"
                raise UserError(message, where=path, hint="link to the images of one class")
        others = list[Path]()
        files = [_images(path, others) for path in folders]
        empty = [parts[0] / name for name, found in zip(classes, files, strict=False) if not found]
        counts = [sum(map(len, files[: len(classes)])), sum(map(len, files[len(classes) :]))]
        if empty or (len(parts) > 1 and not counts[1]):
            raise UserError("contains no images", where=[*empty, parts[-1]][0], hint=_KNOWN)
        pairs = (
            (_opened(path), number % len(classes))
            for number, paths in enumerate(files)
            for path in paths
        )
        x, y = decoded(pairs, sum(counts), self.params, str(root))
        arrays = {"x": x, "y": y}
        if len(parts) > 1:
            arrays["is_test"] = np.arange(len(y)) >= counts[0]
        return dataset_of_arrays(
            arrays,
            str(root),
            self.params.held_out,
            name=root.name,
            layout="channels_first",
            class_names=classes,
            notes=[f"not used: {path} (and {len(others) - 1} others)" for path in others[:1]],
        )


def _images(folder: Path, others: list[Path]) -> list[Path]:
    """The images in a folder; its other files are added to ``others``."""
    images = list[Path]()
    for number, path in enumerate(folder.rglob("*")):
        if not images and number >= _MOST_OTHERS:
            break
        if any(map(_is_hidden, path.relative_to(folder).parts)):
            continue
        if path.suffix.lower() in _ENDINGS:
            images.append(path)
        elif path.is_file():
            others.append(path)
    return sorted(images)


def _opened(path: Path) -> Image:
    require_file(path)
    return opened(path, str(path))


def _class_folders(top: Path) -> list[str]:
    return sorted(
        path.name for path in top.iterdir() if path.is_dir() and not _is_hidden(path.name)
    )


def _is_hidden(name: str) -> bool:
    """Whether a file or folder is one of a system, as on network drives and in archives of macOS."""
    return name[0] in ".@" or name == "__MACOSX"
