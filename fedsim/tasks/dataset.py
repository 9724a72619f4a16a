"""Datasets: arrays in memory or on disk, and the parts that load them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from fedsim.components import Component
from fedsim.errors import UserError
from fedsim.tasks.reading.arrays import first_not_finite

Kind = Literal["classification", "next_character", "binary"]


@dataclass(frozen=True, slots=True)
class _Deferred:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], npt.NDArray[Any]]

    def __len__(self) -> int:
        return self.shape[0]


def deferred(
    shape: tuple[int, ...], dtype: npt.DTypeLike, read: Callable[[], npt.NDArray[Any]]
) -> npt.NDArray[Any]:
    """Samples for :class:`Dataset` that are read when they are first used.

    Args:
        shape: (n, *input_shape).
        dtype: of the samples.
        read: returns the array; a pure function.
    """
    return cast(npt.NDArray[Any], _Deferred(shape, np.dtype(dtype), read))


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels, split into a training and a shared test part.

    Labels and shapes are known at once; samples may be :func:`deferred` until they are used.

    Samples are stored as they come (8-bit images stay 8-bit, files may be memory-mapped); ``raw * scale +
    shift`` gives what a model sees, and is applied after the samples of a batch were gathered.

    Attributes:
        name: of the dataset.
        train_x: training samples, (n, *input_shape), uint8 or float32.
        train_y: their labels, (n,) int64 in ``0 .. classes - 1``.
        test_x: test samples, (m, *input_shape).
        test_y: their labels, (m,) int64.
        classes: number of labels.
        kind: ``classification``; ``next_character`` (samples are sequences of character codes and the label
            is the next one); ``binary`` (two classes, label 1 is the positive one).
        class_names: of the labels.
        scale: factor, float32, broadcastable to ``input_shape``; None leaves samples as they are.
        shift: added after scaling, float32, broadcastable to ``input_shape``; None with ``scale`` None.
        train_groups: natural group (writer, role, subject, center) of each training sample, (n,) int64.
        test_groups: the same for the test samples, (m,) int64.
        group_names: names of the groups.
    """

    name: str
    train_x: npt.NDArray[Any]
    train_y: npt.NDArray[np.int64]
    test_x: npt.NDArray[Any]
    test_y: npt.NDArray[np.int64]
    classes: int
    kind: Kind = "classification"
    class_names: tuple[str, ...] = ()
    scale: npt.NDArray[np.float32] | None = None
    shift: npt.NDArray[np.float32] | None = None
    train_groups: npt.NDArray[np.int64] | None = None
    test_groups: npt.NDArray[np.int64] | None = None
    group_names: tuple[str, ...] = ()
    _unread: dict[str, _Deferred] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        shapes = [self.train_x.shape[1:], self.test_x.shape[1:]]
        for part, x, y, groups in (
            ("training", self.train_x, self.train_y, self.train_groups),
            ("test", self.test_x, self.test_y, self.test_groups),
        ):
            self._check_part(part, x, y, groups)
        if not len(self.train_y):
            raise self._damaged("it has no training samples")
        if 0 in shapes[0]:
            raise self._damaged(f"its samples hold no numbers: they have shape {shapes[0]}")
        if shapes[0] != shapes[1]:
            raise self._damaged(
                f"training samples have shape {shapes[0]}, test samples {shapes[1]}"
            )
        for name in ("train_x", "test_x"):
            if isinstance(self.__dict__[name], _Deferred):
                self._unread[name] = self.__dict__.pop(name)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Called only for missing attributes: samples that have not been read yet.
            unread = self.__dict__.get("_unread", {}).get(name)
            if unread is None:
                raise AttributeError(name)
            array = unread.read()
            if array.shape != unread.shape or array.dtype != unread.dtype:
                raise self._damaged(f"its samples have another shape or type than {unread.shape}")
            self._check_finite(name.removesuffix("_x").replace("train", "training"), array)
            object.__setattr__(self, name, array)
            return array

    def _check_part(
        self,
        part: str,
        x: npt.NDArray[Any],
        y: npt.NDArray[np.int64],
        groups: npt.NDArray[np.int64] | None,
    ) -> None:
        if len(x) != len(y):
            raise self._damaged(f"{len(x)} {part} samples but {len(y)} labels")
        if len(y) and not (y.min() >= 0 and y.max() < self.classes):
            raise self._damaged(
                f"{part} labels run from {y.min()} to {y.max()}, outside 0 to {self.classes - 1}"
            )
        if not isinstance(x, _Deferred):
            self._check_finite(part, x)
        if groups is not None and (
            len(groups) != len(y)
            or (len(groups) and (groups.min() < 0 or groups.max() >= len(self.group_names)))
        ):
            raise self._damaged(f"the groups of the {part} samples do not fit the samples")

    def _check_finite(self, part: str, x: npt.NDArray[Any]) -> None:
        row = first_not_finite(x)
        if row is not None:
            raise self._damaged(f"{part} sample {row} is not finite")

    def _damaged(self, what: str) -> UserError:
        return UserError(
            what,
            where=f"dataset {self.name}",
            hint="fix its files, or the part that reads them",
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self._stored("train_x").shape[1:])

    @property
    def bytes(self) -> int:
        """Bytes of samples and labels as stored."""
        samples = [self._stored(name) for name in ("train_x", "test_x")]
        return (
            sum(math.prod(array.shape) * array.dtype.itemsize for array in samples)
            + self.train_y.nbytes
            + self.test_y.nbytes
        )

    def _stored(self, name: str) -> npt.NDArray[Any] | _Deferred:
        """Samples, or their shape and type if they have not been read."""
        return (
            cast(npt.NDArray[Any], self.__dict__[name])
            if name in self.__dict__
            else self._unread[name]
        )


class DatasetComponent(Component, ABC):
    """A dataset by name; loads from files, a download or a formula.

    Attributes:
        params: its validated parameters.
    """

    def __init__(self, params: Any) -> None:
        self.params = params

    @abstractmethod
    def load(self, folder: Path | None = None) -> Dataset:
        """The data.

        Args:
            folder: folder that relative paths in the parameters refer to (that of the scenario); None is the
                current one.

        Raises:
            UserError: files are missing, damaged, or not what was expected.
        """


def pixel_map(
    mean: float | tuple[float, ...] = 0.0, std: float | tuple[float, ...] = 1.0
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Scale and shift that turn 8-bit pixels into ``(pixel / 255 - mean) / std``, per channel, (C, 1, 1)."""
    means = np.atleast_1d(np.asarray(mean, dtype=np.float64))[:, None, None]
    stds = np.atleast_1d(np.asarray(std, dtype=np.float64))[:, None, None]
    return (1 / (255 * stds)).astype(np.float32), (-means / stds).astype(np.float32)
