"""Arrays as people save them: their names, the order of their axes, and the forms of labels.

Each function returns what was read and, if it had to decide something, a note for the user.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Layout = Literal["auto", "channels_first", "channels_last"]

_PARTS = (
    *(("x", "y"), ("X", "y"), ("images", "labels"), ("data", "labels"), ("features", "labels")),
    *(("inputs", "targets"), ("data", "targets"), ("x", "label"), ("image", "label")),
)
_CHANNELS = (1, 3, 4)
_NARROWEST_IMAGE = 8


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the arrays of samples and labels, and of those with the test samples, if these are separate."""

    x: str
    y: str
    test_x: str | None = None
    test_y: str | None = None

    def all(self) -> list[str]:
        """Every name."""
        return [name for name in (self.x, self.y, self.test_x, self.test_y) if name is not None]


def array_names(available: Collection[str]) -> Names | None:
    """The arrays to use among those of a file, such as ``x_train`` and its three companions; None if unknown."""
    return next((names for names in _known() if set(names.all()) <= set(available)), None)


def _known() -> Iterator[Names]:
    yield Names("x", "y")
    for samples, labels in _PARTS:
        for form in ("{part}_{split}", "{split}_{part}"):
            yield Names(
                *(
                    form.format(part=part, split=split)
                    for split in ("train", "test")
                    for part in (samples, labels)
                )
            )
        yield Names(samples, labels)


def channels_first(x: npt.NDArray[Any], layout: Layout) -> tuple[npt.NDArray[Any], str | None]:
    """Samples with their channels in the second axis; other samples are returned as they are.

    With ``auto``, (n, height, width) of at least 8 x 8 and at most twice as long as wide are gray images, and (n,
    height, width, channels) have their channels last if only the last axis can be the channels.
    """
    if layout == "channels_first" or x.ndim not in (3, 4):
        return x, None
    shape = x.shape[1:]
    if x.ndim == 3:
        gray = min(shape) >= _NARROWEST_IMAGE and max(shape) <= 2 * min(shape)
        if layout == "auto" and not gray:
            return x, None
        note = f"samples of {shape[0]} x {shape[1]} numbers are gray images with one channel"
        return x[:, None], note if layout == "auto" else None
    if layout == "auto" and (shape[2] not in _CHANNELS or shape[0] in _CHANNELS):
        return x, None
    note = f"samples of {' x '.join(map(str, shape))} numbers are images with channels last"
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), note if layout == "auto" else None


def class_labels(
    y: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.int64], tuple[str, ...], str | None] | None:
    """Labels (n,) int64 of integers, whole numbers in floats, one-hot rows or names; None if they are none of these.

    Returns:
        Labels; names of the classes, sorted, if ``y`` has names; and the note.
    """
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 2 and y.dtype.kind in "fiub" and np.isin(y, (0, 1)).all():
        if not (y.sum(axis=1) == 1).all():
            return None
        return y.argmax(axis=1).astype(np.int64), (), "the one-hot rows of y are the labels"
    if y.ndim != 1:
        return None
    if y.dtype.kind in "US":
        names, labels = np.unique(y.astype(str), return_inverse=True)
        listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        note = f"the names in y are the classes 0 to {len(names) - 1} in sorted order: {listed}"
        return labels.astype(np.int64), tuple(map(str, names)), note
    if y.dtype.kind == "f" and np.isfinite(y).all() and (y % 1 == 0).all():
        return y.astype(np.int64), (), "the whole numbers in y are labels"
    return (y.astype(np.int64), (), None) if y.dtype.kind in "iub" else None
