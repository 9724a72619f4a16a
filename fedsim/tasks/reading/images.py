"""Data sets of 8-bit images: parameters, normalization, and IDX files, the format of MNIST."""

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
from fedsim.tasks.dataset import Dataset, DatasetComponent, PixelMap, deferred, pixel_map
from fedsim.tasks.reading.files import FolderParameters, damaged, locate
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
