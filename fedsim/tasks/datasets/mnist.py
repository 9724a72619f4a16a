"""MNIST: handwritten digits."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.files import Remote
from fedsim.tasks.reading.images import MNIST_FILES, ImageParameters, load_idx_images

_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_SHA256 = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)


class Mnist(DatasetComponent):
    """MNIST: 60,000 + 10,000 grey images of handwritten digits, 28 x 28 (LeCun, Cortes, Burges; CC BY-SA 3.0)."""

    name: ClassVar[str] = "mnist"
    Params = ImageParameters
    params: ImageParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The images, from idx files."""
        remotes = {
            file: Remote(tuple(f"{mirror}{file}.gz" for mirror in _MIRRORS), f"sha256:{digest}")
            for file, digest in zip(MNIST_FILES, _SHA256, strict=True)
        }
        digits = tuple(str(digit) for digit in range(10))
        return load_idx_images(self.name, self.params, folder, remotes, 0.1307, 0.3081, digits)
