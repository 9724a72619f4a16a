"""Data sets of the UCI Machine Learning Repository: digits, which ship with fedsim, activities and heart disease."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np

from fedsim.errors import cut
from fedsim.files.downloads import Remote
from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.files import (
    FolderParameters,
    damaged,
    locate,
    read_arrays,
    read_bytes,
)
from fedsim.tasks.reading.samples import held_out, split_dataset, standardized
from fedsim.vocabulary.arrays import Floats, Ints
from fedsim.vocabulary.numbers import varies

_DIGITS = Path(__file__).parent.parent / "data" / "digits.npz"


class Digits(DatasetComponent):
    """UCI optical recognition of handwritten digits, as bundled with scikit-learn: 1,797 gray images of 8 x 8, 10
    classes.

    Every fifth image is a test image (1,438 training, 359 test images), so the split is fixed.
    Alpaydin and Kaynak 1998, UCI Machine Learning Repository, CC BY 4.0.
    """

    name = "digits"

    def load(self, folder: Path | None = None) -> Dataset:
        arrays = read_arrays(_DIGITS, ("images", "labels"))
        labels = arrays["labels"].astype(np.int64)
        return split_dataset(
            arrays["images"][:, None],
            labels,
            np.arange(len(labels)) % 5 == 4,
            name=self.name,
            classes=10,
            # Pixels run from 0 to 16.
            scale=np.float32(1 / 16).reshape(1, 1, 1),
            shift=np.zeros((1, 1, 1), dtype=np.float32),
        )


_HAR_CLASSES = (
    "walking",
    "walking upstairs",
    "walking downstairs",
    "sitting",
    "standing",
    "laying",
)
_HAR_SHAPE = (9, 128)  # Channels and instants.


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
        (path,) = locate(self.name, ["har_inertial.npz"], self.params.root, folder)
        arrays = read_arrays(path, ("x", "y", "subject", "is_test"))
        x = arrays.pop("x")
        if (
            x.shape[1:] != _HAR_SHAPE
            or x.dtype.kind not in "fiu"
            or not len(x)
            or not (np.abs(x) <= np.finfo(np.float32).max).all()
            or any(array.shape != x.shape[:1] for array in arrays.values())
            or any(array.dtype.kind not in "iub" for array in arrays.values())
            or not np.isin(arrays["is_test"], (0, 1)).all()
        ):
            raise damaged(
                path, "its arrays differ in length or have unexpected shapes, types or values"
            )
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
            classes=len(_HAR_CLASSES),
            class_names=_HAR_CLASSES,
            scale=(1 / std).astype(np.float32),
            shift=(-mean / std).astype(np.float32),
        )


_CENTERS = {
    "cleveland": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
    "hungarian": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
    "switzerland": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
    "va": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
}
_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/"
_COLUMNS = 14
# Columns 10 to 12 (slope, ca, thal) are missing for most patients outside Cleveland.
_FEATURES = 10
_TARGET = 13
# Chest pain type (1 to 4) and resting ECG (0 to 2) are codes, not quantities.
_CODES = {2: range(1, 5), 6: range(3)}
_CHOICES = {**_CODES, **dict.fromkeys((1, 5, 8), range(2)), _FEATURES: range(5)}
_TEST_SHARE = 1 / 3


class HeartDisease(DatasetComponent):
    """UCI heart disease: 740 patients of 4 centers, 13 features, healthy or sick (Janosi, Steinbrunn, Pfisterer,
    Detrano; CC BY 4.0).

    Prepared like FLamby's Fed-Heart-Disease (Ogier du Terrail et al. 2022): columns slope, ca and thal and then
    patients with missing values are removed, the two coded columns become indicator columns, features are standardized
    (here over the training patients of all centers), and a third of each center's patients are test samples. Files:
    ``processed.<center>.data``.
    """

    name = "heart_disease"
    Params = FolderParameters
    params: FolderParameters

    def load(self, folder: Path | None = None) -> Dataset:
        files = [f"processed.{center}.data" for center in _CENTERS]
        remotes = [
            Remote((f"{_URL}{file}",), f"sha256:{digest}")
            for file, digest in zip(files, _CENTERS.values(), strict=True)
        ]
        paths = locate(self.name, files, self.params.root, folder, remotes)
        features, labels = zip(*map(_read, paths), strict=True)
        sizes = [len(sick) for sick in labels]
        is_test = np.concatenate([held_out(size, _TEST_SHARE, k) for k, size in enumerate(sizes)])
        return split_dataset(
            standardized(np.concatenate(features), is_test),
            np.concatenate(labels),
            is_test,
            np.repeat(np.arange(len(sizes)), sizes),
            tuple(_CENTERS),
            name=self.name,
            classes=2,
            class_names=("healthy", "sick"),
        )


def _read(path: Path) -> tuple[Floats, Ints]:
    """Features (n, 13) and labels (n,) of the patients without missing values."""
    import pyarrow as pa

    from fedsim.files.cells import numbers

    lines, rows = [], []
    for number, line in enumerate(read_bytes(path).decode("utf-8", "replace").splitlines(), 1):
        cells = line.split(",")
        if len(cells) != _COLUMNS:
            raise damaged(path, f"line {number} has {len(cells)} columns, not {_COLUMNS}")
        used = [*cells[:_FEATURES], cells[_TARGET]]
        if "?" not in used:
            lines.append(number)
            rows.append(used)
    if not rows:
        raise damaged(path, "it has no complete patient")
    values, bad = numbers(pa.array([*chain.from_iterable(rows)]))
    table = values.reshape(len(rows), -1)
    wrong = bad.reshape(table.shape) | ~(np.abs(table) <= np.finfo(np.float32).max)
    for at, choices in _CHOICES.items():
        wrong[:, at] |= ~np.isin(table[:, at], choices)
    for row, column in np.argwhere(wrong)[:1].tolist():
        some = _CHOICES.get(column)
        any_number = "number that is finite in float32"
        what = f"code from {min(some)} to {max(some)}" if some else any_number
        raise damaged(path, f"line {lines[row]} has {cut(rows[row][column])!r}, not a {what}")
    plain = [table[:, column] for column in range(_FEATURES) if column not in _CODES]
    coded = [table[:, column] == code for column, codes in _CODES.items() for code in codes[1:]]
    return np.stack([*plain, *coded], axis=1).astype(np.float64), (table[:, -1] > 0).astype(int)
