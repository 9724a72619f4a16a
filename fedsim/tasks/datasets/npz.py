"""A user's arrays in one .npz file, or in .npy files of one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset, DatasetComponent, TargetKind
from fedsim.tasks.reading.arrays import as_tokens, first_not_finite, read_arrays, test_marks
from fedsim.tasks.reading.files import resolve
from fedsim.tasks.reading.splitting import HeldOutParameters, split_dataset


class NpzParameters(HeldOutParameters):
    """Parameters of arrays in an .npz file."""

    path: Path
    """The file, or a folder. Arrays x, y (and optionally group and is_test): samples, integer labels from 0,
    natural group of each sample, and whether it is a test sample. In a folder they are the files x.npy, y.npy, ..."""
    tokens: bool = False
    """The integers of x are codes from 0, such as tokens or characters, which the model receives as int64."""
    target_kind: TargetKind = "class"
    """Content of y: integer labels, or quantities to be predicted (regression)."""


class Npz(DatasetComponent):
    """Arrays in an .npz file: ``x`` (n, ...) numbers, ``y`` (n,) targets, optionally ``group`` (n,) and ``is_test``
    (n,).

    8-bit samples are stored unchanged and divided by 255 when used; all others become float32, except tokens, which
    stay integers. Instead of a file, ``path`` may be a folder with ``x.npy``, ``y.npy`` and so on. Samples of 8 bits or
    float32 (tokens: also int32 or int64) are then read from disk as needed, and may be larger than memory if all
    training samples come before the test samples.
    """

    name = "npz"
    Params = NpzParameters
    params: NpzParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The arrays."""
        path = resolve(self.params.path, folder)
        arrays = read_arrays(path, ("x", "y"), ("group", "is_test"))
        quantity = self.params.target_kind == "quantity"
        _check_shapes(arrays, path, "fiu" if quantity else "iu")
        x, y = arrays["x"], arrays["y"].astype(np.float32 if quantity else np.int64)
        pixels: dict[str, Any] = {}
        if self.params.tokens:
            x = as_tokens(x, "x", path)
            pixels["tokens"] = True
        elif x.dtype == np.uint8:
            ones = (1,) * (x.ndim - 1)
            pixels["scale"] = np.full(ones, 1 / 255, dtype=np.float32)
            pixels["shift"] = np.zeros(ones, dtype=np.float32)
        else:
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
        if not quantity:
            _check_labels(y, path)
        if "is_test" in arrays:
            is_test = test_marks(arrays["is_test"], "is_test", path)
        else:
            is_test = self.params.held_out(len(y))
        return split_dataset(
            x,
            y,
            is_test,
            arrays.get("group"),
            name=path.stem,
            classes=1 if quantity else int(y.max(initial=0)) + 1,
            kind="regression" if quantity else "classification",
            **pixels,
        )


def _check_shapes(arrays: dict[str, npt.NDArray[Any]], path: Path, targets: str) -> None:
    """Check lengths, dimensions and types of the arrays; ``targets`` are the valid dtype kinds of y."""
    x, y = arrays["x"], arrays["y"]
    lengths = {name: array.shape[:1] for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or lengths["x"] == ():
        raise UserError(
            f"its arrays differ in length: {lengths}",
            where=str(path),
            hint="every array has one entry per sample",
        )
    if x.ndim < 2 or x.dtype.kind not in "fiub" or y.ndim != 1 or y.dtype.kind not in targets:
        raise UserError(
            f"x has {x.ndim} dimensions of type {x.dtype}, y {y.ndim} of type {y.dtype}",
            where=str(path),
            hint="x must be numbers (n, ...) and y integer labels (n,); for quantities, set target_kind: quantity",
        )
    for name in ("group", "is_test"):
        if name in arrays and arrays[name].ndim != 1:
            raise UserError(
                f"{name} has {arrays[name].ndim} dimensions",
                where=str(path),
                hint="it must contain one value for each sample (n,)",
            )


def _check_labels(y: npt.NDArray[Any], path: Path) -> None:
    """Check that labels are numbered from 0 and not all equal."""
    if len(y) and (y.min() < 0 or y.max() >= len(y)):
        raise UserError(
            f"y: labels run from {y.min()} to {y.max()}; there are {len(y)} samples",
            where=str(path),
            hint="number the classes 0, 1, 2, ...",
        )
    if len(y) and y.min() == y.max():
        raise UserError(f"y has only one class, {y[0]}", where=str(path), hint="use at least two")
