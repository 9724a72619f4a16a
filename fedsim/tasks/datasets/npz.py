"""A user's arrays in one .npz file, or in .npy files of one folder."""

from __future__ import annotations

from pathlib import Path

from fedsim.tasks.dataset import Dataset, DatasetComponent, TargetKind
from fedsim.tasks.reading.arrays import names_of_arrays, read_arrays
from fedsim.tasks.reading.files import resolve
from fedsim.tasks.reading.samples import Layout, array_names, dataset_of_arrays, joined
from fedsim.tasks.reading.splitting import HeldOutParameters


class NpzParameters(HeldOutParameters):
    """Parameters of arrays in an .npz file."""

    path: Path
    """The file, or a folder with the arrays as .npy files. Arrays x, y (and optionally group and is_test): samples,
    labels, natural group of each sample, and whether it is a test sample. Or a training and a test pair: x_train,
    y_train, x_test, y_test; train_images, train_labels, test_images, test_labels; and similar names."""
    layout: Layout = "auto"
    """Order of the axes of images: channels_first (n, channels, height, width), the order of models, or channels_last;
    auto recognizes gray images without channels and channels in the last axis."""
    labels_from: int = 0
    """Label of the first class: 1 if labels run from 1 to the number of classes."""
    tokens: bool = False
    """The integers of x are codes from 0, such as tokens or characters, which the model receives as int64."""
    target_kind: TargetKind = "class"
    """Content of y: labels, or quantities to be predicted (regression)."""


class Npz(DatasetComponent):
    """Arrays in an .npz file: ``x`` (n, ...) numbers, ``y`` (n,) targets, optionally ``group`` (n,) and ``is_test``
    (n,); or a training and a test pair such as ``x_train``, ``y_train``, ``x_test`` and ``y_test``.

    Labels are integers, whole numbers in floats, one-hot rows, or names, whose classes are sorted. 8-bit samples are
    stored unchanged and divided by 255 when used; all others become float32, except tokens, which stay integers.
    Instead of a file, ``path`` may be a folder with ``x.npy``, ``y.npy`` and so on. Samples ``x`` of 8 bits or float32
    (tokens: also int32 or int64) are then read from disk as needed, and may be larger than memory if all training
    samples come before the test samples.
    """

    name = "npz"
    Params = NpzParameters
    params: NpzParameters

    def load(self, folder: Path | None = None) -> Dataset:
        """The arrays."""
        params = self.params
        path = resolve(params.path, folder)
        available = names_of_arrays(path)
        read = read_arrays(path, array_names(available), ("group", "is_test"))
        arrays, notes = joined(read, available, str(path))
        return dataset_of_arrays(
            arrays,
            str(path),
            params.held_out,
            name=path.stem,
            notes=notes,
            **params.model_dump(include={"target_kind", "labels_from", "tokens", "layout"}),
        )
