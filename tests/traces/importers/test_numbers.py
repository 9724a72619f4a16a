"""Cells of numbers: what they may hold, and the message for the first one that does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.traces.importers._numbers import Number, microseconds
from fedsim.traces.tables import Bounds


def row(index: int) -> str:
    return f"row {index}"


@pytest.mark.parametrize(
    ("number", "cells", "expected"),
    [
        (Number("rate"), [1, 2.5], [1.0, 2.5]),
        (Number("rate"), ["1", " 2.5 ", "1e3"], [1.0, 2.5, 1000.0]),
        (Number("rate", missing=("", None)), ["1", "", None], [1.0, np.nan, np.nan]),
        (Number("count", whole=True), ["1", 2], [1.0, 2.0]),
        (Number("rate"), [], []),
    ],
)
def test_cells_that_are_read(number: Number, cells: list[Any], expected: list[float]) -> None:
    np.testing.assert_array_equal(number.read(cells, row), expected)


@pytest.mark.parametrize(
    ("number", "cells", "message", "hint"),
    [
        (Number("rate", "bit/s"), [1, -2], "rate is -2", "a number (in bit/s) of at least 0"),
        (Number("rate"), ["1", "1_000"], "rate is '1_000'", "a number of at least 0"),
        (Number("rate"), [1.0, np.inf], "rate is inf", "a number of at least 0"),
        (Number("rate"), ["nan"], "rate is 'nan'", "a number of at least 0"),
        (Number("rate", missing=("",)), ["", None], "rate is null", "or empty if unknown"),
        (Number("count", whole=True), [2, "2.5"], "count is '2.5'", "a whole number"),
        (Number("share", bounds=Bounds(0, 1)), [1.5], "share is 1.5", "at least 0 and at most 1"),
    ],
)
def test_cells_that_are_refused(number: Number, cells: list[Any], message: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        number.read(cells, row)
    assert (caught.value.message, caught.value.where) == (message, row(len(cells) - 1))
    assert hint in str(caught.value.hint)


def test_seconds_are_rounded_to_microseconds() -> None:
    assert microseconds(np.array([0.0000004, 0.0000006, 1.5])).tolist() == [0, 1, 1_500_000]
