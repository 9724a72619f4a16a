"""EMNIST: handwritten characters."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Literal

from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.files import Archive, locate
from fedsim.tasks.reading.images import ImageParameters, idx_dataset

_ARCHIVE = Archive(
    ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
    "md5:58c8d27c78d21e728a6bc7b3cc06412e",
    inner="gzip",
    ending=".gz",
)
_ALL = string.digits + string.ascii_uppercase + string.ascii_lowercase
# The 15 letters whose two cases look alike have no separate lower-case class.
_MERGED = string.digits + string.ascii_uppercase + "abdefghnqrt"
_CLASSES = {
    "balanced": _MERGED,
    "bymerge": _MERGED,
    "byclass": _ALL,
    "letters": string.ascii_uppercase,
    "digits": string.digits,
    "mnist": string.digits,
}


class EmnistParameters(ImageParameters):
    """Parameters of EMNIST."""

    split: Literal["balanced", "bymerge", "byclass", "letters", "digits", "mnist"] = "balanced"
    """The one of EMNIST's six data sets to use."""


class Emnist(DatasetComponent):
    """EMNIST: handwritten letters and digits of NIST SD 19, 28 x 28, without writers (Cohen et al. 2017).

    Files: ``emnist-<split>-{train,test}-{images-idx3,labels-idx1}-ubyte``, plain or .gz. For one client per writer,
    use femnist.
    """

    name = "emnist"
    Params = EmnistParameters
    params: EmnistParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The images, upright, from idx files."""
        split = self.params.split
        files = [
            f"emnist-{split}-{subset}-{kind}-ubyte"
            for subset in ("train", "test")
            for kind in ("images-idx3", "labels-idx1")
        ]
        return idx_dataset(
            self.name,
            locate(self.name, files, self.params.root, folder, _ARCHIVE),
            tuple(_CLASSES[split]),
            self.params.pixel_map(0.1736, 0.3317),
            first_label=1 if split == "letters" else 0,
            transposed=True,
        )
