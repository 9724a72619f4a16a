"""A user's arrays in one .npz file, or in .npy files of one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset, DatasetComponent, TargetKind
from fedsim.tasks.reading.arrays import (
    as_tokens,
    first_not_finite,
    names_of_arrays,
    read_arrays,
    test_marks,
)
from fedsim.tasks.reading.files import resolve
from fedsim.tasks.reading.layouts import (
    Layout,
    Names,
    array_names,
    channels_first,
    class_labels,
)
from fedsim.tasks.reading.splitting import HeldOutParameters, split_dataset


class NpzParameters(HeldOutParameters):
    """Parameters of arrays in an .npz file."""

    path: Path
    """The file, or a folder with the arrays as .npy files. Arrays x, y (and optionally group and is_test): samples,
    labels, natural group of each sample, and whether it is a test sample. Or a training and a test pair: x_train,
    y_train, x_test, y_test; train_images, train_labels, test_images, test_labels; and similar names."""
    layout: Layout = "auto"
    """Order of the axes of images: channels_first (n, channels, height, width), the order of models, or channels_last;
    auto recognizes gray images without channels and channels in the last axis."""
    labels_from: int = 0
    """Label of the first class: 1 if labels run from 1 to the number of classes."""
    tokens: bool = False
    """The integers of x are codes from 0, such as tokens or characters, which the model receives as int64."""
    target_kind: TargetKind = "class"
    """Content of y: labels, or quantities to be predicted (regression)."""


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
    Params = NpzParameters
    params: NpzParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The arrays."""
        params = self.params
        path = resolve(params.path, folder)
        arrays, notes = _arrays(path)
        quantity = params.target_kind == "quantity"
        _check_shapes(arrays, path)
        class_names: tuple[str, ...] = ()
        x, y = arrays["x"], arrays["y"]
        if quantity:
            y = _quantities(y, path)
        else:
            y, class_names = _labels(y, params.labels_from, path, notes)
        pixels: dict[str, Any] = {}
        if params.tokens:
            x = as_tokens(x, "x", path)
            pixels["tokens"] = True
        else:
            x, note = channels_first(x, params.layout)
            notes += [note] if note else []
        if x.dtype == np.uint8 and not params.tokens:
            ones = (1,) * (x.ndim - 1)
            pixels["scale"] = np.full(ones, 1 / 255, dtype=np.float32)
            pixels["shift"] = np.zeros(ones, dtype=np.float32)
        elif not params.tokens:
            # A value too large for float32 becomes infinite, and is refused with its row.
            with np.errstate(over="ignore"):
                x = x.astype(np.float32, copy=False)
        row = first_not_finite(x)
        if row is not None:
            raise UserError(
                f"x: sample {row} is not finite",
                where=str(path),
                hint="remove such samples or fill in their values; samples are stored as float32",
            )
        if "is_test" in arrays:
            is_test = test_marks(arrays["is_test"], "is_test", path)
        else:
            is_test = params.held_out(len(y))
        return split_dataset(
            x,
            y,
            is_test,
            arrays.get("group"),
            name=path.stem,
            classes=1 if quantity else len(class_names) or int(y.max(initial=0)) + 1,
            class_names=class_names,
            kind="regression" if quantity else "classification",
            notes=tuple(notes),
            **pixels,
        )


def _arrays(path: Path) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """The arrays x, y and, if known, group and is_test; and notes on what was read."""
    available = names_of_arrays(path)
    names = array_names(available) or Names("x", "y")
    if names.test_x is None or names.test_y is None:
        arrays = read_arrays(path, names.all(), ("group", "is_test"))
        return arrays | {"x": arrays[names.x], "y": arrays[names.y]}, []
    arrays = read_arrays(path, names.all())
    pairs = {
        "x": (arrays[names.x], arrays[names.test_x]),
        "y": (arrays[names.y], arrays[names.test_y]),
    }
    for (training, test), name in zip(pairs.values(), (names.test_x, names.test_y), strict=True):
        if training.shape[1:] != test.shape[1:]:
            raise UserError(
                f"{name} has entries of shape {test.shape[1:]}, those of training have {training.shape[1:]}",
                where=str(path),
                hint="training and test arrays differ only in their length",
            )
    lengths = [len(array) for pair in pairs.values() for array in pair]
    if lengths[0] != lengths[2] or lengths[1] != lengths[3]:
        named = dict(zip((names.x, names.test_x, names.y, names.test_y), lengths, strict=True))
        raise UserError(
            f"its arrays differ in length: {named}",
            where=str(path),
            hint="every array has one entry per sample",
        )
    joined = {name: np.concatenate(pair) for name, pair in pairs.items()}
    joined["is_test"] = np.arange(sum(lengths[:2])) >= lengths[0]
    unused = [name for name in available if name not in names.all()]
    return joined, [f"not used: {', '.join(unused)}"] if unused else []


def _check_shapes(arrays: dict[str, npt.NDArray[Any]], path: Path) -> None:
    """Check lengths and dimensions of the arrays, and that samples are numbers."""
    x = arrays["x"]
    used = {name: arrays[name] for name in ("x", "y", "group", "is_test") if name in arrays}
    lengths = {name: array.shape[:1] for name, array in used.items()}
    if len(set(lengths.values())) > 1 or lengths["x"] == ():
        raise UserError(
            f"its arrays differ in length: {lengths}",
            where=str(path),
            hint="every array has one entry per sample",
        )
    if x.ndim < 2 or x.dtype.kind not in "fiub":
        raise UserError(
            f"x has {x.ndim} dimensions of type {x.dtype}",
            where=str(path),
            hint="x must be numbers (n, ...), one entry per sample",
        )
    for name in ("group", "is_test"):
        if name in used and used[name].ndim != 1:
            raise UserError(
                f"{name} has {used[name].ndim} dimensions",
                where=str(path),
                hint="it must contain one value for each sample (n,)",
            )


def _quantities(y: npt.NDArray[Any], path: Path) -> npt.NDArray[np.float32]:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "fiu":
        raise UserError(
            f"y has {y.ndim} dimensions of type {y.dtype}, but target_kind is quantity",
            where=str(path),
            hint="y must be numbers (n,)",
        )
    return y.astype(np.float32)


def _labels(
    y: npt.NDArray[Any], first: int, path: Path, notes: list[str]
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    read = class_labels(y)
    if read is None:
        raise UserError(
            f"y has {y.ndim} dimensions of type {y.dtype}, which are not labels",
            where=str(path),
            hint="y must be integer labels (n,), one-hot rows (n, classes) or names; for quantities, set "
            "target_kind: quantity",
        )
    labels, names, note = read
    notes += [note] if note else []
    labels = labels if names else labels - first
    _check_labels(labels, path)
    return labels, names


def _check_labels(y: npt.NDArray[Any], path: Path) -> None:
    """Check that labels are numbered from 0 and not all equal."""
    if len(y) and (y.min() < 0 or y.max() >= len(y)):
        raise UserError(
            f"y: labels run from {y.min()} to {y.max()}; there are {len(y)} samples",
            where=str(path),
            hint="number the classes 0, 1, 2, ..., or set labels_from to the first label",
        )
    if len(y) and y.min() == y.max():
        raise UserError(f"y has only one class, {y[0]}", where=str(path), hint="use at least two")
