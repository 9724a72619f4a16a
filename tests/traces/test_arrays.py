"""Arrow arrays as NumPy arrays: types, nulls and slices; runs of equal rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedsim.traces.arrays import filled, run_starts, to_numpy


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, 2, 3]), np.array([1, 2, 3])),
        (pa.array([1, None, 3]), np.array([1.0, np.nan, 3.0])),
        (pa.array([1.5, None]), np.array([1.5, np.nan])),
        (pa.array([True, None, True]), np.array([True, False, True])),
        (pa.array(["a", None]), np.array(["a", None], dtype=object)),
        (pa.array([], pa.int64()), np.array([], np.int64)),
    ],
)
def test_types_and_nulls(values: Any, expected: np.ndarray[Any, Any]) -> None:
    got = to_numpy(values)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == expected.dtype


def test_a_slice_begins_at_its_own_first_value() -> None:
    values = pa.array([9, None, 7, None, 5])[2:]
    assert filled(values, -1).tolist() == [7, -1, 5]
    assert filled(pa.array([True, None, False])[1:].cast(pa.int8()), 1).tolist() == [1, 0]


def test_numbers_without_nulls_are_not_copied() -> None:
    values = pa.array([1.0, 2.0])
    assert to_numpy(values).ctypes.data == values.buffers()[1].address


def test_a_run_ends_where_any_column_changes() -> None:
    names = np.array(["a", "a", "b", "b"], dtype=object)
    assert run_starts(names).tolist() == [True, False, True, False]
    assert run_starts(names, np.array([1, 2, 2, 2])).tolist() == [True, True, True, False]
    assert run_starts(names[:0], np.zeros(0)).tolist() == []
