"""The handwritten digits that come with scikit-learn; nothing to download."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from fedsim.tasks.dataset import Dataset, DatasetComponent


class Digits(DatasetComponent):
    """UCI optical recognition of handwritten digits, as bundled with scikit-learn: 1,797 grey images of 8 x
    8, 10 classes.

    Every fifth image is a test image (1,438 training, 359 test images), so the split never changes.
    Alpaydin and Kaynak 1998, UCI Machine Learning Repository, CC BY 4.0.
    """

    name: ClassVar[str] = "digits"

    def load(self, folder: Path | None = None) -> Dataset:
        """The digits; nothing is read outside scikit-learn."""
        from sklearn.datasets import load_digits

        bunch = load_digits()
        images = bunch.images.astype(np.uint8)[:, None]
        labels = bunch.target.astype(np.int64)
        is_test = np.arange(len(labels)) % 5 == 4
        return Dataset(
            name=self.name,
            train_x=images[~is_test],
            train_y=labels[~is_test],
            test_x=images[is_test],
            test_y=labels[is_test],
            classes=10,
            class_names=tuple(str(digit) for digit in range(10)),
            # Pixels run from 0 to 16.
            scale=np.float32(1 / 16).reshape(1, 1, 1),
            shift=np.zeros((1, 1, 1), dtype=np.float32),
        )
