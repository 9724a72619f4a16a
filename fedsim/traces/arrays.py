"""Types of the arrays that hold traces, and their conversion from Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def run_starts(*columns: npt.NDArray[Any]) -> Bools:
    """Whether each row begins a run of rows that are equal in all ``columns``, shape (rows,)."""
    starts = np.ones(len(columns[0]), np.bool_)
    starts[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return starts


def to_numpy(values: Any) -> npt.NDArray[Any]:
    """An Arrow array as a NumPy array; nulls become NaN in numbers, which become float64, and false in Booleans.

    Numbers without nulls are not copied. Arrow's conversion and every function with a scalar would import pandas,
    which takes as long as the rest of a small command; they are used only for text.
    """
    kind = values.type
    if pa.types.is_boolean(kind):
        return filled(values.cast(pa.int8()), 0).view(np.bool_)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return array
    if values.null_count and pa.types.is_integer(kind):
        values = values.cast(pa.float64(), safe=False)
    return filled(values, np.nan)


def filled(values: Any, fill: float) -> npt.NDArray[Any]:
    """An Arrow array of numbers as a NumPy array, with ``fill`` in place of nulls."""
    if not values.null_count:
        return np.from_dlpack(values)
    data = pa.Array.from_buffers(
        values.type, len(values), [None, values.buffers()[1]], offset=values.offset
    )
    return np.where(to_numpy(pc.is_null(values)), fill, np.from_dlpack(data))
