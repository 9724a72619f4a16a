"""Data sets: arrays in memory or on disk, and the parts that load them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError, located
from fedsim.parts.component import Component, is_bundled, place
from fedsim.parts.functions import returned, shown
from fedsim.randomness import isolated
from fedsim.tasks.reading.files import first_not_finite
from fedsim.vocabulary.arrays import Array, Ints

Kind = Literal["classification", "next_character", "binary", "regression"]
"""``binary`` is classification into two classes, with label 1 as the positive one."""

TargetKind = Literal["class", "quantity"]
"""The target of a sample in a user's file: a class, or a quantity to be predicted (regression)."""

_NO_NAMES = ("NA", "N/A", "n/a", "#N/A")
"""What programs write for an unknown value, and what may be a name, such as that of Namibia."""


def _short(name: str) -> str | None:
    """A whole number that is written with decimals, without them; None for any other name."""
    number = re.fullmatch(r"(.*\d)\.0*", name, re.DOTALL)
    return number and number[1]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels, split into a training and a shared test part.

    Samples are stored unchanged (8-bit images stay 8-bit, files may be memory-mapped); the input of a model,
    ``raw * scale + shift``, is computed per batch.

    Attributes:
        train_x, test_x: samples, (n, *input_shape), uint8 or float32; integers if they are tokens.
        train_y, test_y: their labels, (n,) int64 in ``0 .. classes - 1``; float32 quantities for ``regression``.
        classes: number of labels, and of outputs of a model; 1 for ``regression``.
        kind: ``classification``, which becomes ``binary`` if there are two classes; ``next_character`` (samples are
            sequences of character codes and the label is the next one); ``regression`` (the label is a number).
        class_names: names of the labels; by default their numbers.
        scale: factor, float32, broadcastable to ``input_shape``; None leaves samples as they are.
        shift: added after scaling, float32, broadcastable to ``input_shape``; None with ``scale`` None.
        train_groups, test_groups: natural group (writer, role, subject, center) of each sample, (n,) int64.
        group_names: names of the groups.
        tokens: whether samples are integer codes, such as characters or tokens, which models receive as int64.
        feature_names: names of the columns of a table, in the order of the values of a sample.
        notes: what was decided when files were read, such as which axis has the channels; shown with the warnings.
    """

    name: str
    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array
    classes: int
    kind: Kind = "classification"
    class_names: tuple[str, ...] = ()
    scale: npt.NDArray[np.float32] | None = None
    shift: npt.NDArray[np.float32] | None = None
    train_groups: Ints | None = None
    test_groups: Ints | None = None
    group_names: tuple[str, ...] = ()
    tokens: bool = False
    feature_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "classification" and self.classes == 2:
            object.__setattr__(self, "kind", "binary")
        if self.kind == "next_character":
            object.__setattr__(self, "tokens", True)
        if not self.class_names and self.kind != "regression":
            object.__setattr__(self, "class_names", tuple(map(str, range(self.classes))))
        for name in (*self.class_names, *self.group_names, *self.feature_names):
            if name.encode(errors="ignore").decode() != name:
                raise self._damaged(f"the class, group or feature {name!r} is not Unicode text")
        self._check_split("train")
        self._check_split("test")
        train_shape, test_shape = self.train_x.shape[1:], self.test_x.shape[1:]
        if not len(self.train_y) or 0 in train_shape:
            raise self._damaged(f"it has no training samples: {self.train_x.shape}")
        if train_shape != test_shape:
            raise self._damaged(
                f"training samples have shape {train_shape}, test samples {test_shape}"
            )

    def _check_split(self, split: str) -> None:
        x, y, groups = (getattr(self, f"{split}_{part}") for part in ("x", "y", "groups"))
        of_type = np.dtype(np.float32 if self.kind == "regression" else np.int64)
        for name, array in ((f"{split}_x", x), (f"{split}_y", y)):
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
                raise self._damaged(f"{name} is {shown(array)}, not a NumPy array of numbers")
        if y.shape != (len(x),) or y.dtype != of_type:
            raise self._damaged(f"{split}_y is {shown(y)}, not {len(x)} numbers of type {of_type}")
        if self.kind == "regression":
            if self.classes != 1 or not np.isfinite(y).all():
                raise self._damaged(f"{split}_y must be finite, with classes = 1")
        elif len(y) and not (y.min() >= 0 and y.max() < self.classes):
            limits = f"{y.min()} to {y.max()}, outside 0 to {self.classes - 1}"
            raise self._damaged(f"{split} labels run from {limits}")
        if (row := first_not_finite(x)) is not None:
            raise self._damaged(f"{split}_x: sample {row} is not finite")
        if groups is not None and (
            len(groups) != len(y)
            or (len(groups) and (groups.min() < 0 or groups.max() >= len(self.group_names)))
        ):
            raise self._damaged(f"{split}_groups does not match the samples and group_names")

    def _damaged(self, what: str) -> UserError:
        hint = "fix its files, or the code that reads them"
        return UserError(what, where=f"data set {self.name}", hint=hint)

    def doubts(self) -> list[UserError]:
        """The notes, and a warning if labels probably begin at 1: no sample has label 0."""
        where = "task.dataset"
        doubts = [UserError(f"data set {self.name}: {note}", where=where) for note in self.notes]
        labeled = self.kind in ("classification", "binary")
        if labeled and 0 not in self.train_y and 0 not in self.test_y:
            hint = "number the classes 0, 1, 2, ...; for arrays in files, set task.dataset.labels_from: 1"
            message = f"class 0 of data set {self.name} has no samples"
            doubts.append(UserError(message, where=where, hint=hint))
        for what, names in {"class": {*self.class_names}, "group": {*self.group_names}}.items():
            if odd := [name for name in names if name in _NO_NAMES or _short(name) in names]:
                message = f"data set {self.name} has a {what} '{min(odd)}'"
                hint = "if it means unknown, leave its samples out; if it is a number, write it in one form"
                doubts.append(UserError(message, where=where, hint=hint))
        return doubts

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.train_x.shape[1:]

    @property
    def vocabulary(self) -> int | None:
        """The largest code in the samples plus one; None if samples are not codes."""
        if not self.tokens:
            return None
        if self.kind == "next_character":
            return self.classes
        return 1 + max(int(x.max(initial=0)) for x in (self.train_x, self.test_x))

    @property
    def bytes(self) -> int:
        """Bytes of samples and labels as stored."""
        arrays = (self.train_x, self.train_y, self.test_x, self.test_y)
        return sum(array.nbytes for array in arrays)


class DatasetComponent(Component, ABC):
    """A data set by name; loads from files, a download or a formula."""

    @abstractmethod
    def load(self, folder: Path | None = None) -> Dataset:
        """The data; relative paths in the parameters start at ``folder``, by default the current one."""

    def loaded(self, folder: Path | None = None) -> Dataset:
        """The result of :meth:`load`; a user's finds the global random generators starting from 0."""
        if is_bundled(type(self)):
            return self.load(folder)
        with located(place(type(self), "load")), isolated(0):
            return returned(type(self), "load", self.load(folder), Dataset)


PixelMap = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]


def pixel_map(
    mean: float | tuple[float, ...] = 0.0, std: float | tuple[float, ...] = 1.0
) -> PixelMap:
    """Scale and shift that turn 8-bit pixels into ``(pixel / 255 - mean) / std``, per channel, (C, 1, 1)."""
    means, stds = (np.array(value, np.float64).reshape(-1, 1, 1) for value in (mean, std))
    return (1 / (255 * stds)).astype(np.float32), (-means / stds).astype(np.float32)
