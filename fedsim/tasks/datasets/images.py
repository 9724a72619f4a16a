"""Data sets of 8-bit images in their original files: MNIST, Fashion-MNIST and EMNIST (IDX files), CIFAR (batches)."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedsim.errors import UserError
from fedsim.files.downloads import Remote
from fedsim.files.sources import CODECS
from fedsim.files.unpickling import load_plain
from fedsim.tasks.dataset import Dataset, DatasetComponent, PixelMap, pixel_map
from fedsim.tasks.reading.files import (
    Archive,
    FolderParameters,
    damaged,
    locate,
    read_bytes,
    reading,
)
from fedsim.vocabulary.arrays import Array, Ints
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
        remotes = [
            Remote(tuple(f"{mirror}{file}.gz" for mirror in self.mirrors), f"sha256:{digest}")
            for file, digest in zip(MNIST_FILES, self.digests, strict=True)
        ]
        paths = locate(self.name, MNIST_FILES, self.params.root, folder, remotes)
        return self.dataset(paths, self.class_names)

    def dataset(self, paths: Sequence[Path], class_names: Sequence[str]) -> Dataset:
        """The data set in four IDX files: training images and labels, test images and labels."""
        images, labels = zip(*map(_labeled, paths[::2], paths[1::2]), strict=True)
        pixels = self.params.pixel_map(self.mean, self.std)
        return image_dataset(self.name, images, labels, class_names, pixels)


def image_dataset(
    name: str,
    images: Sequence[npt.NDArray[np.uint8]],
    labels: Sequence[Ints],
    class_names: Sequence[str],
    pixels: PixelMap,
) -> Dataset:
    """The data set of images (n, channels, height, width) and labels (n,) for training and for testing."""
    return Dataset(
        name=name,
        train_x=images[0],
        train_y=labels[0],
        test_x=images[1],
        test_y=labels[1],
        classes=len(class_names),
        class_names=tuple(class_names),
        scale=pixels[0],
        shift=pixels[1],
    )


def _labeled(images_path: Path, labels_path: Path) -> tuple[npt.NDArray[np.uint8], Ints]:
    """The images (n, 1, height, width) of one IDX file, and their labels (n,) in another one."""
    images, labels = read_idx(images_path, 3)[:, None], read_idx(labels_path, 1).astype(np.int64)
    if len(images) != len(labels):
        message = f"has {len(labels)} labels for the {len(images)} images of {images_path.name}"
        raise UserError(message, where=labels_path, hint="download both files again")
    return images, labels


_UNSIGNED_BYTE = 8


def read_idx(path: Path, dimensions: int) -> Array:
    """The uint8 array of an IDX file; memory-mapped (copy on write) if the file is not compressed.

    Args:
        path: file, plain or compressed.
        dimensions: required number of dimensions: 1 for labels, 3 for images.
    """
    content: npt.NDArray[np.uint8]
    if path.suffix.lower() in CODECS or not path.stat().st_size:
        content = np.frombuffer(bytearray(read_bytes(path)), dtype=np.uint8)
    else:
        content = np.memmap(path, dtype=np.uint8, mode="c")
    head_size = 4 + 4 * dimensions
    head = bytes(content[:head_size])
    if len(head) < head_size or head[:4] != bytes([0, 0, _UNSIGNED_BYTE, dimensions]):
        raise damaged(path, f"it is not an IDX file of bytes with {dimensions} dimensions")
    shape = np.frombuffer(head, dtype=">u4", offset=4).tolist()
    expected = head_size + math.prod(shape)
    if len(content) != expected:
        message = f"it has {format_count(len(content))} bytes, but {format_count(expected)} according to its header"
        raise damaged(path, message)
    return content[head_size:].reshape(shape)


class Mnist(MnistFormat):
    """MNIST: 60,000 + 10,000 gray images of handwritten digits, 28 x 28 (LeCun, Cortes, Burges; CC BY-SA 3.0)."""

    name = "mnist"
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    digests = (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    )
    mean, std = 0.1307, 0.3081
    class_names = tuple(string.digits)


class FashionMnist(MnistFormat):
    """Fashion-MNIST: 60,000 + 10,000 gray images of garments, 28 x 28, 10 classes (Xiao, Rasul, Vollgraf
    2017; MIT)."""

    name = "fashion_mnist"
    mirrors = (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    )
    digests = (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    )
    mean, std = 0.2860, 0.3530
    class_names = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )


_EMNIST = Archive(
    ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
    "md5:58c8d27c78d21e728a6bc7b3cc06412e",
    inner="gzip",
    ending=".gz",
)
_ALL = string.digits + string.ascii_uppercase + string.ascii_lowercase
# The 15 letters whose two cases look alike have no separate lower-case class.
_MERGED = string.digits + string.ascii_uppercase + "abdefghnqrt"
_EMNIST_CLASSES = {
    "balanced": _MERGED,
    "bymerge": _MERGED,
    "byclass": _ALL,
    "letters": string.ascii_uppercase,
    "digits": string.digits,
    "mnist": string.digits,
}


class Emnist(MnistFormat):
    """EMNIST: handwritten letters and digits of NIST SD 19, 28 x 28, without writers (Cohen et al. 2017).

    Files: ``emnist-<split>-{train,test}-{images-idx3,labels-idx1}-ubyte``, plain or .gz. For one client per writer,
    use femnist.
    """

    name = "emnist"
    mean, std = 0.1736, 0.3317

    class Params(ImageParameters):
        split: Literal["balanced", "bymerge", "byclass", "letters", "digits", "mnist"] = "balanced"
        """The one of EMNIST's six data sets to use."""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        split = self.params.split
        files = [
            f"emnist-{split}-{subset}-{kind}-ubyte"
            for subset in ("train", "test")
            for kind in ("images-idx3", "labels-idx1")
        ]
        paths = locate(self.name, files, self.params.root, folder, _EMNIST)
        # The files store images column by column, and number letters from 1.
        images, labels = zip(*map(_labeled, paths[::2], paths[1::2]), strict=True)
        images = tuple(each.swapaxes(2, 3) for each in images)
        first = 1 if split == "letters" else 0
        labels = tuple(each - first for each in labels)
        pixels = self.params.pixel_map(self.mean, self.std)
        return image_dataset(self.name, images, labels, _EMNIST_CLASSES[split], pixels)


class _Cifar(DatasetComponent):
    """A data set in CIFAR's python batches."""

    mean: ClassVar[tuple[float, ...]]
    std: ClassVar[tuple[float, ...]]

    def _dataset(self, paths: Sequence[Path], key: str, class_names: Sequence[str]) -> Dataset:
        """The data set in some batches, of which the last contains the test images, with the labels of this key."""
        *train, test = (_images(path, key) for path in paths)
        images, labels = zip(*train, strict=True)
        pixels = self.params.pixel_map(self.mean, self.std)
        x, y = [np.concatenate(images), test[0]], [np.concatenate(labels), test[1]]
        return image_dataset(self.name, x, y, class_names, pixels)


def _batch(path: Path) -> dict[str, Any]:
    """The dictionary of a batch, of plain data and NumPy arrays; Python 2 strings become text."""
    with reading(path, "it is not a CIFAR batch"):
        value = load_plain(read_bytes(path), encoding="latin1")
    if not isinstance(value, dict):
        raise damaged(path, "it is not a CIFAR batch (not a dictionary)")
    return value


def _images(path: Path, key: str) -> tuple[npt.NDArray[np.uint8], Ints]:
    batch = _batch(path)
    pixels, labels = batch.get("data"), batch.get(key)
    if not (
        isinstance(pixels, np.ndarray)
        and pixels.dtype == np.uint8
        and pixels.shape[1:] == (3 * 32 * 32,)
        and isinstance(labels, list)
        and len(labels) == len(pixels)
        and all(type(label) is int and label.bit_length() < 64 for label in labels)
    ):
        what = f"it does not hold images of 3 x 32 x 32 bytes and one entry of {key} for each"
        raise damaged(path, what)
    return pixels.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _cifar_archive(name: str, digest: str, inner: str) -> Archive:
    mirrors = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
    return Archive(tuple(f"{mirror}{name}.tar.gz" for mirror in mirrors), digest, inner)


_CIFAR10 = _cifar_archive(
    "cifar-10-python", "md5:c58f30108f718f92721af3b95e74349a", "cifar-10-batches-py"
)


class Cifar10(_Cifar):
    """CIFAR-10: 50,000 + 10,000 color images, 32 x 32, 10 classes (Krizhevsky 2009).

    Read from the python batches (``data_batch_1`` ... ``test_batch``), plain, .gz or .xz, in the folder or in
    ``cifar-10-batches-py`` below it, or from the downloaded archive.
    """

    name = "cifar10"
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

    class Params(ImageParameters):
        batches: list[Annotated[int, Field(ge=1, le=5)]] = Field(
            default=[1, 2, 3, 4, 5], min_length=1
        )
        """Training batches to use, from 1 to 5, with 10,000 images each."""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        names = [f"data_batch_{number}" for number in self.params.batches]
        files = locate(self.name, [*names, "test_batch"], self.params.root, folder, _CIFAR10)
        classes = "airplane automobile bird cat deer dog frog horse ship truck"
        return self._dataset(files, "labels", classes.split())


_CIFAR100 = _cifar_archive(
    "cifar-100-python", "md5:eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python"
)


class Cifar100(_Cifar):
    """CIFAR-100: 50,000 + 10,000 color images, 32 x 32, 100 classes in 20 superclasses (Krizhevsky 2009).

    Read from the python files ``train``, ``test`` and ``meta``, plain, .gz or .xz, in the folder or in
    ``cifar-100-python`` below it, or from the downloaded archive.
    """

    name = "cifar100"
    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)

    class Params(ImageParameters):
        labels: Literal["fine", "coarse"] = "fine"
        """The 100 classes, or the 20 superclasses."""

    params: Params

    def load(self, folder: Path | None = None) -> Dataset:
        kind, files = self.params.labels, ["train", "test", "meta"]
        *batches, meta = locate(self.name, files, self.params.root, folder, _CIFAR100)
        classes = 100 if kind == "fine" else 20
        names = _batch(meta).get(f"{kind}_label_names")
        if not isinstance(names, list) or len(names) != classes:
            raise damaged(meta, f"it does not name {classes} {kind} labels")
        return self._dataset(batches, f"{kind}_labels", list(map(str, names)))
