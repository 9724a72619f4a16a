"""UCI HAR: activities recognized from the motion of a phone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.arrays import read_npz
from fedsim.tasks.reading.files import FolderParameters, damaged, locate
from fedsim.tasks.reading.splitting import split_dataset
from fedsim.vocabulary.numbers import varies

_FILE = "har_inertial.npz"
_CLASSES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")


class UciHar(DatasetComponent):
    """UCI HAR: 10,299 windows of 128 samples of 9 motion channels, 6 activities, 30 subjects (Reyes-Ortiz et
    al. 2013; CC BY 4.0).

    Read from ``har_inertial.npz`` with the arrays ``x`` (n, 9, 128), ``y``, ``subject`` and ``is_test``.
    Each channel is standardized over the training windows.
    """

    name = "uci_har"
    Params = FolderParameters
    params: FolderParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The windows, grouped by subject."""
        (path,) = locate(self.name, [_FILE], self.params.root, folder)
        arrays = read_npz(path, ("x", "y", "subject", "is_test"))
        x = arrays.pop("x")
        if (
            x.ndim != 3
            or x.dtype.kind not in "fiu"
            or any(array.shape != x.shape[:1] for array in arrays.values())
            or any(array.dtype.kind not in "iub" for array in arrays.values())
        ):
            raise damaged(path, "its arrays differ in length or have unexpected types")
        x, is_test = x.astype(np.float32), arrays["is_test"].astype(bool)
        subject = arrays["subject"].astype(np.int64)
        if is_test.all() or subject.min() < 0 or subject.max() >= len(subject):
            raise damaged(path, "all windows are test samples, or subjects are not numbered from 0")
        mean = x[~is_test].mean(axis=(0, 2), dtype=np.float64)[:, None]
        std = x[~is_test].std(axis=(0, 2), dtype=np.float64)[:, None]
        std = np.where(varies(std, mean, x[~is_test, 0].size), std, 1.0)
        return split_dataset(
            x,
            arrays["y"].astype(np.int64),
            is_test,
            subject,
            tuple(f"subject {number + 1}" for number in range(subject.max() + 1)),
            name=self.name,
            classes=len(_CLASSES),
            class_names=_CLASSES,
            scale=(1 / std).astype(np.float32),
            shift=(-mean / std).astype(np.float32),
        )
