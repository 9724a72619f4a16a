"""UCI HAR: what people do, from the motion of their phone."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.arrays import read_npz
from fedsim.tasks.reading.files import FolderParameters, damaged, locate

_FILE = "har_inertial.npz"
_CLASSES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")


class UciHar(DatasetComponent):
    """UCI HAR: 10,299 windows of 128 samples of 9 motion channels, 6 activities, 30 subjects (Reyes-Ortiz et
    al. 2013; CC BY 4.0).

    Read from ``har_inertial.npz`` with the arrays ``x`` (n, 9, 128), ``y``, ``subject`` and ``is_test``.
    Each channel is normalized by mean and standard deviation of the training windows.
    """

    name: ClassVar[str] = "uci_har"
    Params = FolderParameters
    params: FolderParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The windows, grouped by subject."""
        path = locate(self.name, [_FILE], self.params.root, folder, {})[_FILE]
        arrays = read_npz(path, ("x", "y", "subject", "is_test"))
        one_each = {name: arrays[name] for name in ("y", "subject", "is_test")}
        if (
            arrays["x"].ndim != 3
            or arrays["x"].dtype.kind not in "fiu"
            or any(
                array.shape != arrays["x"].shape[:1] or array.dtype.kind not in "iub"
                for array in one_each.values()
            )
        ):
            raise damaged(path, "its arrays do not fit together")
        x, is_test = arrays["x"].astype(np.float32), arrays["is_test"].astype(bool)
        y, subject = arrays["y"].astype(np.int64), arrays["subject"].astype(np.int64)
        if is_test.all() or subject.min() < 0 or subject.max() >= len(subject):
            raise damaged(path, "all windows are for tests, or subjects are not numbered from 0")
        mean = x[~is_test].mean(axis=(0, 2), dtype=np.float64)[:, None]
        std = x[~is_test].std(axis=(0, 2), dtype=np.float64)[:, None]
        return Dataset(
            name=self.name,
            train_x=x[~is_test],
            train_y=y[~is_test],
            test_x=x[is_test],
            test_y=y[is_test],
            classes=len(_CLASSES),
            class_names=_CLASSES,
            scale=(1 / std).astype(np.float32),
            shift=(-mean / std).astype(np.float32),
            train_groups=subject[~is_test],
            test_groups=subject[is_test],
            group_names=tuple(f"subject {number + 1}" for number in range(subject.max() + 1)),
        )
