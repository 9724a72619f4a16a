"""A user's own arrays in one .npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.arrays import read_npz
from fedsim.tasks.reading.files import resolve
from fedsim.tasks.reading.splitting import held_out


class NpzParameters(Parameters):
    """Parameters of arrays in an .npz file."""

    path: Path
    """The file. Arrays x, y (and group, is_test where there are any): samples, integer labels from 0,
    natural group of each sample, and whether it is a test sample."""
    test_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of the samples that become test samples where the file has no is_test."""
    seed: int = Field(default=0, ge=0)
    """Seed of that choice."""


class Npz(DatasetComponent):
    """Arrays in an .npz file: ``x`` (n, ...) numbers, ``y`` (n,) labels, optionally ``group`` (n,) and
    ``is_test`` (n,).

    8-bit samples stay as they are and are divided by 255 when used; everything else becomes float32.
    """

    name: ClassVar[str] = "npz"
    Params = NpzParameters
    params: NpzParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The arrays."""
        path = resolve(self.params.path, folder)
        arrays = read_npz(path, ("x", "y"), ("group", "is_test"))
        x, y = arrays["x"], arrays["y"]
        lengths = {name: array.shape[:1] for name, array in arrays.items()}
        if len(set(lengths.values())) > 1 or lengths["x"] == ():
            raise UserError(f"its arrays differ in length: {lengths}", where=str(path))
        if x.ndim < 2 or x.dtype.kind not in "fiub" or y.ndim != 1 or y.dtype.kind not in "iu":
            raise UserError(
                f"x has {x.ndim} dimensions of type {x.dtype}, y {y.ndim} of type {y.dtype}",
                where=str(path),
                hint="x must be numbers (n, ...) and y integer labels (n,)",
            )
        images = x.dtype == np.uint8
        x = x if images else x.astype(np.float32)
        y = y.astype(np.int64)
        test = (
            arrays["is_test"].astype(bool)
            if "is_test" in arrays
            else held_out(len(y), self.params.test_share, self.params.seed)
        )
        groups, names = _numbered(arrays.get("group"))
        classes = int(y.max(initial=0)) + 1
        return Dataset(
            name=path.stem,
            train_x=x[~test],
            train_y=y[~test],
            test_x=x[test],
            test_y=y[test],
            classes=classes,
            kind="binary" if classes == 2 else "classification",
            class_names=tuple(str(label) for label in range(classes)),
            scale=np.full((1,) * (x.ndim - 1), 1 / 255, dtype=np.float32) if images else None,
            shift=np.zeros((1,) * (x.ndim - 1), dtype=np.float32) if images else None,
            train_groups=None if groups is None else groups[~test],
            test_groups=None if groups is None else groups[test],
            group_names=names,
        )


def _numbered(
    groups: npt.NDArray[Any] | None,
) -> tuple[npt.NDArray[np.int64] | None, tuple[str, ...]]:
    """Groups as numbers and their names, in order of name."""
    if groups is None:
        return None, ()
    names, numbers = np.unique(groups, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(name) for name in names)
