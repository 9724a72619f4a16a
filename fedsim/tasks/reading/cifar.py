"""The python batches of CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.tasks.reading.files import Remote, absent, damaged, download, find, local_folder
from fedsim.tasks.reading.idx import read_bytes
from fedsim.tasks.reading.pickles import read_batch

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True, slots=True)
class Batch:
    """One unpickled file.

    Attributes:
        path: where it comes from, for messages.
        values: its dictionary.
    """

    path: Path
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CifarArchive:
    """Where one of the two data sets is.

    Attributes:
        name: of the dataset.
        inner: folder inside the archive.
        remote: the archive (.tar.gz).
    """

    name: str
    inner: str
    remote: Remote

    def read(self, files: Sequence[str], root: Path | None, folder: Path | None) -> list[Batch]:
        """The named files, from a folder or from the downloaded archive.

        Raises:
            UserError: files are missing or damaged.
        """
        place = local_folder(self.name, root, folder)
        if place is not None and (place / self.inner).is_dir():
            place = place / self.inner
        found = {file: None if place is None else find(place, file) for file in files}
        present = [file for file, path in found.items() if path is not None]
        if len(present) == len(files):
            return [
                Batch(path, read_batch(read_bytes(path), path))
                for path in found.values()
                if path is not None
            ]
        missing = [file for file in files if file not in present]
        if root is None and not present:
            return self._from_archive(download(self.name, self.remote), files)
        error = absent(self.name, missing, place)
        batches = [file.removeprefix("data_batch_") for file in present if "data_batch_" in file]
        if batches and "test_batch" in present:
            hint = f"to use the batches that are there, give batches: [{', '.join(batches)}]"
            raise UserError(error.message, where=error.where, hint=hint)
        raise error

    def _from_archive(self, archive: Path, files: Sequence[str]) -> list[Batch]:
        batches = []
        try:
            with tarfile.open(archive) as content:
                for file in files:
                    stream = content.extractfile(f"{self.inner}/{file}")
                    if stream is None:
                        raise damaged(archive, f"{file} is not a file")
                    batches.append(Batch(archive, read_batch(stream.read(), archive)))
        except (tarfile.TarError, KeyError, OSError, EOFError, zlib.error) as error:
            raise damaged(archive, str(error)) from error
        return batches


def join_batches(
    batches: Sequence[Batch], label_key: str
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images (n, 3, 32, 32) and labels (n,) of the batches in order.

    Raises:
        UserError: a batch holds something else.
    """
    images, labels = [], []
    for batch in batches:
        data, own = batch.values.get("data"), batch.values.get(label_key)
        if (
            not isinstance(data, np.ndarray)
            or data.dtype != np.uint8
            or data.ndim != 2
            or data.shape[1] != _PIXELS
            or not isinstance(own, list)
            or len(own) != len(data)
            or not all(isinstance(label, int) for label in own)
        ):
            raise damaged(
                batch.path, f"it has no images of 3 x 32 x 32 bytes with as many {label_key}"
            )
        images.append(data.reshape(-1, 3, 32, 32))
        labels.append(np.array(own, dtype=np.int64))
    return np.concatenate(images), np.concatenate(labels)
