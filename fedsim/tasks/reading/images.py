"""Data sets of 8-bit images: parameters, normalization, IDX files, the format of MNIST, and the batches of CIFAR."""

from __future__ import annotations

import gzip
import lzma
import math
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.files.downloads import Remote
from fedsim.files.unpickling import DamagedPickle, RefusedPickle, load_plain
from fedsim.tasks.dataset import Dataset, DatasetComponent, PixelMap, deferred, pixel_map
from fedsim.tasks.reading.files import Archive, FolderParameters, damaged, locate
from fedsim.vocabulary.formatting import format_count

MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
"""Names of the four files of MNIST and Fashion-MNIST: training images and labels, test images and labels."""


class ImageParameters(FolderParameters):
    """Parameters of the image data sets."""

    normalize: bool = True
    """Subtract the training set's mean and divide by its standard deviation; otherwise pixels run from 0 to 1."""

    def pixel_map(
        self, mean: float | tuple[float, ...], std: float | tuple[float, ...]
    ) -> PixelMap:
        """Scale and shift of 8-bit pixels, per channel."""
        return pixel_map(mean, std) if self.normalize else pixel_map()


class MnistFormat(DatasetComponent):
    """A data set in the four files of MNIST.

    Attributes:
        mirrors: base addresses of the compressed files, whose names end in .gz.
        digests: SHA-256 of the compressed files.
        mean, std: mean and standard deviation of the training pixels, as shares of white.
        class_names: names of the labels.
    """

    Params = ImageParameters
    params: ImageParameters
    mirrors: ClassVar[tuple[str, ...]]
    digests: ClassVar[tuple[str, ...]]
    mean: ClassVar[float]
    std: ClassVar[float]
    class_names: ClassVar[tuple[str, ...]]

    def load(self, folder: Path | None = None) -> Dataset:
        """The images, from IDX files."""
        remotes = [
            Remote(tuple(f"{mirror}{file}.gz" for mirror in self.mirrors), f"sha256:{digest}")
            for file, digest in zip(MNIST_FILES, self.digests, strict=True)
        ]
        paths = locate(self.name, MNIST_FILES, self.params.root, folder, remotes)
        pixels = self.params.pixel_map(self.mean, self.std)
        return idx_dataset(self.name, paths, self.class_names, pixels)


def idx_dataset(
    name: str,
    paths: Sequence[Path],
    class_names: tuple[str, ...],
    pixels: PixelMap,
    *,
    first_label: int = 0,
    transposed: bool = False,
) -> Dataset:
    """The data set in four IDX files: training images and labels, test images and labels.

    Compressed images are decompressed when they are first used.

    Args:
        name, paths, class_names, pixels: those of the data set.
        first_label: number of the first class in the files.
        transposed: whether the files store images column by column.
    """
    train_images, train_labels, test_images, test_labels = paths
    return Dataset(
        name=name,
        train_x=_images(train_images, transposed),
        train_y=read_idx(train_labels, 1).astype(np.int64) - first_label,
        test_x=_images(test_images, transposed),
        test_y=read_idx(test_labels, 1).astype(np.int64) - first_label,
        classes=len(class_names),
        class_names=class_names,
        scale=pixels[0],
        shift=pixels[1],
    )


def _images(path: Path, transposed: bool) -> npt.NDArray[Any]:
    """Images (n, 1, height, width)."""

    def read() -> npt.NDArray[Any]:
        images = read_idx(path, 3)
        return (images.transpose(0, 2, 1) if transposed else images)[:, None]

    shape = promised_shape(path, 3)
    if shape is None:
        return read()
    count, *size = shape
    return deferred((count, 1, *(reversed(size) if transposed else size)), np.uint8, read)


_UNSIGNED_BYTE = 8


def read_bytes(path: Path) -> bytes:
    """Content of a file, decompressed if its name ends in .gz or .xz."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as stream:
                return stream.read()
        if path.suffix == ".xz":
            with lzma.open(path) as stream:
                return stream.read()
        return path.read_bytes()
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise damaged(path, str(error)) from error


def promised_shape(path: Path, dimensions: int) -> tuple[int, ...] | None:
    """The shape in the header of a .gz file, if it agrees with the uncompressed size stored at the end.

    None for other files, and if the shape can be determined only by reading the whole file.
    """
    if path.suffix != ".gz":
        return None
    try:
        with gzip.open(path) as stream:
            shape = _shape(stream.read(4 + 4 * dimensions), dimensions)
        with path.open("rb") as content:
            content.seek(-4, os.SEEK_END)
            size = int.from_bytes(content.read(), "little")
    except (OSError, EOFError, zlib.error):
        return None
    return None if shape is None or size != 4 + 4 * dimensions + math.prod(shape) else shape


def read_idx(path: Path, dimensions: int) -> npt.NDArray[Any]:
    """The uint8 array of an IDX file; memory-mapped (copy on write) if the file is not compressed.

    Args:
        path: file, plain or compressed.
        dimensions: required number of dimensions: 1 for labels, 3 for images.
    """
    compressed = path.suffix in (".gz", ".xz")
    head_size = 4 + 4 * dimensions
    if compressed:
        content = read_bytes(path)
        head, size = content[:head_size], len(content)
    else:
        with path.open("rb") as stream:
            head = stream.read(head_size)
        size = path.stat().st_size
    shape = _shape(head, dimensions)
    if shape is None:
        raise damaged(path, f"it is not an IDX file of bytes with {dimensions} dimensions")
    expected = head_size + math.prod(shape)
    if size != expected:
        message = f"it has {format_count(size)} bytes, but {format_count(expected)} according to its header"
        raise damaged(path, message)
    if compressed:
        flat = np.frombuffer(bytearray(content), dtype=np.uint8, offset=head_size)
        return flat.reshape(shape)
    return np.memmap(path, dtype=np.uint8, mode="c", offset=head_size, shape=shape)


def _shape(head: bytes, dimensions: int) -> tuple[int, ...] | None:
    """The shape in a header; None if it is not the header of such a file."""
    if len(head) < 4 + 4 * dimensions or head[:4] != bytes([0, 0, _UNSIGNED_BYTE, dimensions]):
        return None
    return tuple(int(length) for length in np.frombuffer(head, dtype=">u4", offset=4))


_CIFAR_SHAPE = (3, 32, 32)
_CIFAR_MIRRORS = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")


def cifar_archive(name: str, digest: str, inner: str) -> Archive:
    """The archive of this name, with the batches in the folder ``inner``."""
    return Archive(tuple(f"{mirror}{name}.tar.gz" for mirror in _CIFAR_MIRRORS), digest, inner)


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
        *_cifar_images(train, label_key),
        *_cifar_images([test], label_key),
        classes=len(class_names),
        class_names=tuple(class_names),
        scale=pixels[0],
        shift=pixels[1],
    )


def _cifar_images(
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
            and pixels.shape[1:] == (np.prod(_CIFAR_SHAPE),)
            and isinstance(batch_labels, list)
            and len(batch_labels) == len(pixels)
            and all(isinstance(label, int) for label in batch_labels)
        ):
            what = f"it does not hold images of 3 x 32 x 32 bytes and one entry of {label_key} for each"
            raise damaged(path, what)
        images.append(pixels.reshape(-1, *_CIFAR_SHAPE))
        labels.append(np.array(batch_labels, dtype=np.int64))
    return np.concatenate(images), np.concatenate(labels)
