"""What the image datasets in IDX files share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.tasks.dataset import Dataset, pixel_normalisation
from fedsim.tasks.reading.files import FolderParameters, Remote, locate
from fedsim.tasks.reading.idx import read_idx

MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
"""Names of the four files of MNIST and Fashion-MNIST."""


class ImageParameters(FolderParameters):
    """Parameters of the image datasets."""

    normalise: bool = True
    """Subtract the training set's mean and divide by its standard deviation; otherwise pixels run from 0 to 1."""


def normalisation(
    normalise: bool, mean: float | tuple[float, ...], std: float | tuple[float, ...]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Scale and shift of 8-bit pixels, per channel."""
    return pixel_normalisation(mean, std) if normalise else pixel_normalisation(0.0, 1.0)


def load_idx_images(
    name: str,
    params: ImageParameters,
    folder: Path | None,
    remotes: Mapping[str, Remote],
    mean: float,
    std: float,
    class_names: tuple[str, ...],
) -> Dataset:
    """MNIST or a data set in its format.

    Raises:
        UserError: files are missing or damaged.
    """
    paths = locate(name, MNIST_FILES, params.root, folder, remotes)
    arrays: list[npt.NDArray[Any]] = [
        read_idx(paths[file], 3 if "images" in file else 1) for file in MNIST_FILES
    ]
    scale, shift = normalisation(params.normalise, mean, std)
    return Dataset(
        name=name,
        train_x=arrays[0][:, None],
        train_y=arrays[1].astype(np.int64),
        test_x=arrays[2][:, None],
        test_y=arrays[3].astype(np.int64),
        classes=len(class_names),
        class_names=class_names,
        scale=scale,
        shift=shift,
    )
