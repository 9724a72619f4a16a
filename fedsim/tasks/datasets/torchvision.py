"""The image data sets of torchvision."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from fedsim.errors import UserError, nearest_or_all
from fedsim.parts.extras import required
from fedsim.tasks.dataset import Dataset, DatasetComponent
from fedsim.tasks.reading.files import download_cache, local_folder, may_download
from fedsim.tasks.reading.samples import PictureParameters, dataset_of_splits


class TorchvisionParameters(PictureParameters):
    """Parameters of a data set of torchvision."""

    dataset: str
    """Class of `torchvision.datasets`, such as `SVHN`."""
    root: Path | None = None
    """Folder of the files, as torchvision expects them; by default ``$FEDSIM_DATA/datasets/torchvision`` if it exists,
    else the download cache, to which torchvision downloads them."""
    arguments: dict[str, Any] = {}
    """Further arguments of the class, such as `{split: letters}` of EMNIST. `train` or `split`, unless given here,
    distinguishes training and test samples; without them a random share becomes test samples."""
    test_split: str = "test"
    """Value of `split` for the test samples, such as `val`."""


class Torchvision(DatasetComponent):
    """A data set of torchvision (``pip install "fedsim-des[torchvision]"``) whose samples are images with one label.

    Images are decoded once, into the cache, and stored as 8-bit pixels that are divided by 255 when used; 16-bit gray
    images are stored as float32 and divided by 65535.
    """

    name = "torchvision"
    Params = TorchvisionParameters
    params: TorchvisionParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The images, from torchvision's class."""
        params, where = self.params, f"data set {self.params.dataset} of torchvision"
        known = required("torchvision.datasets", "torchvision", where)
        make = getattr(known, params.dataset, None)
        if not inspect.isclass(make):
            every = f"see torchvision.datasets: {', '.join(known.__all__)}"
            raise UserError(
                f"torchvision has no data set '{params.dataset}'",
                where="task.dataset.dataset",
                hint=nearest_or_all(params.dataset, known.__all__, every),
            )
        accepted = inspect.signature(make).parameters
        local = local_folder(self.name, params.root, folder)
        root = local or download_cache(self.name)
        given: dict[str, Any] = {"root": str(root), **params.arguments}
        # Some classes take it as a further keyword argument.
        takes_download = "download" in accepted or "kwargs" in accepted
        if takes_download and local is None and may_download():
            given.setdefault("download", True)
        kinds = {"train": (True, False), "split": ("train", params.test_split)}
        key = next((key for key in kinds if key in accepted and key not in given), None)
        if key is None and "kwargs" in accepted and "train" not in given:
            key = "train"
        each = [given] if key is None else [{**given, key: value} for value in kinds[key]]
        try:
            splits = [make(**arguments) for arguments in each]
        # The classes raise errors of many kinds: of arguments, files, archives and the network.
        except Exception as error:
            raise UserError(
                f"it cannot be made: {type(error).__name__}: {error}",
                where=where,
                hint=f"put its files into the folder root, or correct arguments; they are those of {params.dataset}"
                f"{inspect.signature(make)}",
            ) from error
        files = ((file, file.stat()) for file in sorted(root.rglob("*")))
        state = [(str(file), each.st_size, each.st_mtime_ns) for file, each in files]
        return dataset_of_splits(
            splits, where, params, name=params.dataset, key=[params.dataset, given, state]
        )
