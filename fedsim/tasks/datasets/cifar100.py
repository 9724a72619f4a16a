"""CIFAR-100: small color images of a hundred classes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.files import damaged, locate
from fedsim.tasks.reading.images import ImageParameters, cifar_archive, cifar_dataset, read_batch

_ARCHIVE = cifar_archive(
    "cifar-100-python", "md5:eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python"
)


class Cifar100Parameters(ImageParameters):
    """Parameters of CIFAR-100."""

    labels: Literal["fine", "coarse"] = "fine"
    """The 100 classes, or the 20 superclasses."""


class Cifar100(DatasetComponent):
    """CIFAR-100: 50,000 + 10,000 color images, 32 x 32, 100 classes in 20 superclasses (Krizhevsky 2009).

    Read from the python files ``train``, ``test`` and ``meta``, plain, .gz or .xz, in the folder or in
    ``cifar-100-python`` below it, or from the downloaded archive.
    """

    name = "cifar100"
    Params = Cifar100Parameters
    params: Cifar100Parameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The images with the chosen labels."""
        kind = self.params.labels
        *batches, meta = locate(
            self.name, ["train", "test", "meta"], self.params.root, folder, _ARCHIVE
        )
        classes = 100 if kind == "fine" else 20
        names = read_batch(meta).get(f"{kind}_label_names")
        if not isinstance(names, list) or len(names) != classes:
            raise damaged(meta, f"it does not name {classes} {kind} labels")
        pixels = self.params.pixel_map((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
        return cifar_dataset(self.name, batches, f"{kind}_labels", list(map(str, names)), pixels)
