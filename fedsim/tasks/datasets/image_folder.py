"""A user's images, one folder per class."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import PositiveInt

from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset, DatasetComponent, pixel_map
from fedsim.tasks.reading.files import PATHS_ARE_RELATIVE, resolve
from fedsim.tasks.reading.samples import pixels
from fedsim.tasks.reading.splitting import HeldOutParameters

_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
_Form: TypeAlias = "tuple[tuple[int, ...], np.dtype[Any]]"
_KNOWN = f"known: {', '.join(sorted(_ENDINGS))}"


class ImageFolderParameters(HeldOutParameters):
    """Parameters of a folder of images."""

    root: Path
    """Folder that contains ``train/<class>/`` and ``test/<class>/``, or only ``<class>/``."""
    size: tuple[PositiveInt, PositiveInt] | None = None
    """Height and width to which images are resized; by default all images must have the same size."""
    channels: Literal[1, 3] = 3
    """3 for color, 1 for gray."""


class ImageFolder(DatasetComponent):
    """Images in folders named after their classes, stored as 8-bit pixels and divided by 255 when used; 16-bit gray
    images are stored as float32 and divided by 65535.

    Files are read in order of their names; names that begin with a dot are ignored.
    """

    name = "image_folder"
    Params = ImageFolderParameters
    params: ImageFolderParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The images."""
        root = resolve(self.params.root, folder)
        if not root.is_dir():
            raise UserError("no such folder", where=str(root), hint=PATHS_ARE_RELATIVE)
        split = (root / "train").is_dir() and (root / "test").is_dir()
        top = root / "train" if split else root
        classes = _class_folders(top)
        if len(classes) < 2:
            raise UserError(
                f"has {len(classes)} class folders, but at least two are needed",
                where=str(top),
                hint="put images into <class>/, or with a separate test set into train/<class>/ and test/<class>/",
            )
        x, y, form = self._read(top, classes)
        for label in np.setdiff1d(np.arange(len(classes)), y):
            raise UserError("contains no images", where=str(top / classes[label]), hint=_KNOWN)
        if split:
            unknown = [name for name in _class_folders(root / "test") if name not in classes]
            if unknown:
                message = f"there is no class '{unknown[0]}' in {top}"
                raise UserError(message, where=str(root / "test"))
            test_x, test_y, _ = self._read(root / "test", classes, form)
        else:
            is_test = self.params.held_out(len(y))
            x, y, test_x, test_y = x[~is_test], y[~is_test], x[is_test], y[is_test]
        scale, shift = pixel_map() if x.dtype == np.uint8 else (None, None)
        return Dataset(
            root.name,
            *(x, y, test_x, test_y),
            classes=len(classes),
            class_names=tuple(classes),
            scale=scale,
            shift=shift,
        )

    def _read(
        self, top: Path, classes: list[str], form: _Form | None = None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], _Form]:
        """Images (n, channels, height, width), labels (n,), and size and type of all files below ``top``."""
        from PIL import Image

        files = {
            path: label
            for label, name in enumerate(classes)
            for path in sorted((top / name).rglob("*"))
            if path.suffix.lower() in _ENDINGS and not path.name.startswith(".")
        }
        if not files:
            raise UserError("contains no images", where=str(top), hint=_KNOWN)
        images = []
        for path in files:
            try:
                with Image.open(path) as image:
                    array = pixels(image, self.params.channels, self.params.size, str(path))
            except (OSError, ValueError) as error:
                raise UserError(f"it cannot be read: {error}", where=str(path)) from error
            form = form or (array.shape[1:], array.dtype)
            if (array.shape[1:], array.dtype) != form:
                raise UserError(
                    f"it has {_form(array.shape[1:], array.dtype)}, others {_form(*form)}",
                    where=str(path),
                    hint="give size: [height, width] to resize all images; save all with the same depth",
                )
            images.append(array)
        assert form is not None
        return np.stack(images), np.array(list(files.values()), dtype=np.int64), form


def _form(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"{shape[0]} x {shape[1]} pixels of {8 if dtype == np.uint8 else 16} bits"


def _class_folders(top: Path) -> list[str]:
    """Names of the folders in ``top``, without hidden ones."""
    return sorted(
        path.name for path in top.iterdir() if path.is_dir() and not path.name.startswith(".")
    )
