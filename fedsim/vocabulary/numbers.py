"""What rounding does to statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.vocabulary.arrays import Bools


def varies(deviation: npt.ArrayLike, mean: npt.ArrayLike, count: int) -> Bools:
    """Whether a computed standard deviation is more than rounding error; elementwise.

    The deviation of equal values is not exactly 0, because their mean is rounded. Divide by it only if this is true.

    Args:
        deviation: standard deviation, computed in float64.
        mean: mean of the values, or their largest magnitude.
        count: number of values.
    """
    rounding: Any = 10 * count * np.finfo(np.float64).eps * np.abs(mean)
    return np.asarray(np.asarray(deviation) > rounding)
