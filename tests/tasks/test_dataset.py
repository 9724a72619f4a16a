"""What a data set refuses."""

from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset

X, Y = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([0, 1], dtype=np.int64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_x": [[0, 1, 2]] * 2}, "train_x is .*not a NumPy array of numbers"),
        ({"train_x": np.where(X == 4, np.nan, X)}, "train_x: sample 1 is not finite"),
        ({"train_x": X[:, :2]}, r"training samples have shape \(2,\), test samples \(3,\)"),
        ({"train_x": X[:0], "train_y": Y[:0]}, "it has no training samples"),
        ({"test_y": Y[:1]}, "test_y is .*, not 2 numbers of type int64"),
        ({"test_y": Y + 1}, "test labels run from 1 to 2, outside 0 to 1"),
        ({"train_y": Y.astype(np.float32)}, "train_y is .*, not 2 numbers of type int64"),
        ({"test_groups": Y, "group_names": ("a",)}, "test_groups does not match the samples"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    arrays = {"train_x": X, "train_y": Y, "test_x": X, "test_y": Y}
    assert Dataset("own", **arrays, classes=2).bytes == 2 * (24 + 16)
    with pytest.raises(UserError, match=f"data set own: {message}"):
        Dataset("own", **{**arrays, **changes}, classes=2)
