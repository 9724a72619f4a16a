"""CIFAR-10: small color images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.files import locate
from fedsim.tasks.reading.images import ImageParameters, cifar_archive, cifar_dataset

_ARCHIVE = cifar_archive(
    "cifar-10-python", "md5:c58f30108f718f92721af3b95e74349a", "cifar-10-batches-py"
)
_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"


class Cifar10Parameters(ImageParameters):
    """Parameters of CIFAR-10."""

    batches: list[Annotated[int, Field(ge=1, le=5)]] = Field(default=[1, 2, 3, 4, 5], min_length=1)
    """Training batches to use, from 1 to 5, with 10,000 images each."""


class Cifar10(DatasetComponent):
    """CIFAR-10: 50,000 + 10,000 color images, 32 x 32, 10 classes (Krizhevsky 2009).

    Read from the python batches (``data_batch_1`` ... ``test_batch``), plain, .gz or .xz, in the folder or in
    ``cifar-10-batches-py`` below it, or from the downloaded archive.
    """

    name = "cifar10"
    Params = Cifar10Parameters
    params: Cifar10Parameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The images of the chosen batches."""
        pixels = self.params.pixel_map((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
        names = [f"data_batch_{number}" for number in self.params.batches]
        files = locate(self.name, [*names, "test_batch"], self.params.root, folder, _ARCHIVE)
        return cifar_dataset(self.name, files, "labels", _CLASSES.split(), pixels)
