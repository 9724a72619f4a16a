"""The Python batches of CIFAR-10 and CIFAR-100: pickles of a dictionary of NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.files.unpickling import DamagedPickle, RefusedPickle, load_plain
from fedsim.tasks.dataset import Dataset, PixelMap
from fedsim.tasks.reading.files import Archive, damaged
from fedsim.tasks.reading.images import read_bytes

_SHAPE = (3, 32, 32)
_MIRRORS = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")


def cifar_archive(name: str, digest: str, inner: str) -> Archive:
    """The archive of this name, with the batches in the folder ``inner``."""
    return Archive(tuple(f"{mirror}{name}.tar.gz" for mirror in _MIRRORS), digest, inner)


def read_batch(path: Path) -> dict[str, Any]:
    """The dictionary of a batch, of plain data and NumPy arrays; Python 2 strings become text."""
    try:
        value = load_plain(read_bytes(path), encoding="latin1")
    except (RefusedPickle, DamagedPickle) as error:
        raise damaged(path, f"it is not a CIFAR batch ({type(error).__name__}: {error})") from error
    if not isinstance(value, dict):
        raise damaged(path, "it is not a CIFAR batch (not a dictionary)")
    return value


def cifar_dataset(
    name: str, paths: Sequence[Path], label_key: str, class_names: Sequence[str], pixels: PixelMap
) -> Dataset:
    """The data set in the batches ``paths``; the last one contains the test images."""
    *train, test = paths
    return Dataset(
        name,
        *_images(train, label_key),
        *_images([test], label_key),
        classes=len(class_names),
        class_names=tuple(class_names),
        scale=pixels[0],
        shift=pixels[1],
    )


def _images(
    paths: Sequence[Path], label_key: str
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images (n, 3, 32, 32) and labels (n,) of the batches in order."""
    images, labels = [], []
    for path in paths:
        batch = read_batch(path)
        pixels, batch_labels = batch.get("data"), batch.get(label_key)
        if not (
            isinstance(pixels, np.ndarray)
            and pixels.dtype == np.uint8
            and pixels.shape[1:] == (np.prod(_SHAPE),)
            and isinstance(batch_labels, list)
            and len(batch_labels) == len(pixels)
            and all(isinstance(label, int) for label in batch_labels)
        ):
            what = f"it does not hold images of 3 x 32 x 32 bytes and one entry of {label_key} for each"
            raise damaged(path, what)
        images.append(pixels.reshape(-1, *_SHAPE))
        labels.append(np.array(batch_labels, dtype=np.int64))
    return np.concatenate(images), np.concatenate(labels)
