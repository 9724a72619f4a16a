"""Deviations that are rounding error."""

import numpy as np
import pytest

from fedsim.vocabulary.numbers import varies


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -1e-9, 7e12])
@pytest.mark.parametrize("count", [2, 24, 999])
def test_equal_values_do_not_vary(value: float, count: int) -> None:
    values = np.full(count, value)
    assert not varies(values.std(), values.mean(), count)
    values[0] += max(abs(value), 1) * 1e-6
    assert varies(values.std(), values.mean(), count)
