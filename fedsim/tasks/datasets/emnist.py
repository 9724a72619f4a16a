"""EMNIST: handwritten characters."""

from __future__ import annotations

import string
import zipfile
from pathlib import Path
from typing import ClassVar, Literal

from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.files import Remote, absent, damaged, download, find, local_folder
from fedsim.tasks.reading.images import ImageParameters, idx_dataset

_ARCHIVE = Remote(
    ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
    "md5:58c8d27c78d21e728a6bc7b3cc06412e",
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
    """Which of EMNIST's six data sets."""


class Emnist(DatasetComponent):
    """EMNIST: handwritten letters and digits of NIST SD 19, 28 x 28, without writers (Cohen et al. 2017).

    Files: ``emnist-<split>-{train,test}-{images-idx3,labels-idx1}-ubyte``, plain or .gz. Use femnist for
        clients by writer.
    """

    name: ClassVar[str] = "emnist"
    Params = EmnistParameters
    params: EmnistParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The images, upright, from idx files."""
        split = self.params.split
        files = [
            f"emnist-{split}-{part}-{kind}-ubyte"
            for part in ("train", "test")
            for kind in ("images-idx3", "labels-idx1")
        ]
        return idx_dataset(
            self.name,
            self._locate(files, folder),
            tuple(_CLASSES[split]),
            self.params.pixel_map(0.1736, 0.3317),
            first_label=1 if split == "letters" else 0,
            transposed=True,
        )

    def _locate(self, files: list[str], folder: Path | None) -> list[Path]:
        local = local_folder(self.name, self.params.root, folder)
        candidates = [None if local is None else find(local, file) for file in files]
        missing = [file for file, path in zip(files, candidates, strict=True) if path is None]
        if missing and self.params.root is not None:
            raise absent(self.name, missing, local)
        if missing:
            return _unpack(download(self.name, _ARCHIVE), files)
        return [path for path in candidates if path is not None]


def _unpack(archive: Path, files: list[str]) -> list[Path]:
    """The members ``files`` of the archive, written beside it once."""
    paths = [archive.parent / f"{file}.gz" for file in files]
    try:
        with zipfile.ZipFile(archive) as content:
            for path in paths:
                if not path.is_file():
                    partial = path.with_suffix(".part")
                    partial.write_bytes(content.read(f"gzip/{path.name}"))
                    partial.rename(path)
    except (zipfile.BadZipFile, KeyError) as error:
        raise damaged(archive, str(error)) from error
    return paths
