"""Training and test samples from one array."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.tasks.reading.splitting import held_out, split_dataset, standardized


@pytest.mark.parametrize(("samples", "share", "tests"), [(10, 0.2, 2), (10, 0.25, 2), (7, 0.5, 4)])
def test_the_rounded_share_of_samples_is_held_out(samples: int, share: float, tests: int) -> None:
    marks = held_out(samples, share, 3)
    assert marks.dtype == bool
    assert marks.sum() == tests
    assert np.array_equal(marks, held_out(samples, share, 3))


def test_held_out_samples_are_spread_evenly() -> None:
    """Each position is a test sample about as often as the share says."""
    counts = np.sum([held_out(20, 0.25, seed) for seed in range(400)], axis=0)
    assert counts.sum() == 400 * 5
    assert abs(counts - 100).max() < 5 * np.sqrt(400 * 0.25 * 0.75)


@pytest.mark.parametrize("is_test", [[0, 0, 1, 1], [1, 0, 0, 1]])
def test_samples_labels_and_groups_stay_together(is_test: list[int]) -> None:
    marks = np.array(is_test, dtype=bool)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    dataset = split_dataset(
        x, np.arange(4), marks, np.array(["b", "a", "b", "c"]), name="own", classes=4
    )
    assert np.array_equal(dataset.train_x, x[~marks])
    assert np.array_equal(dataset.test_x, x[marks])
    assert dataset.train_y.tolist() == np.flatnonzero(~marks).tolist()
    assert dataset.group_names == ("a", "b", "c")
    assert dataset.test_groups is not None
    assert dataset.test_groups.tolist() == np.array([1, 0, 1, 2])[marks].tolist()
    assert np.shares_memory(dataset.train_x, x) == (not is_test[0]), "a view if no copy is needed"


def test_features_are_standardized_by_the_training_samples() -> None:
    x = np.array([[1.0, 5.0], [3.0, 5.0], [100.0, 7.0]])
    scaled = standardized(x, np.array([False, False, True]))
    assert scaled.dtype == np.float32
    assert scaled.tolist() == [[-1, 0], [1, 0], [98, 2]], "a constant feature is only shifted"


def test_a_constant_feature_is_not_divided_by_rounding_error() -> None:
    """The mean of a hundred times 0.3 is not 0.3, so the computed deviation is 5.6e-17; the test rows have 0.35."""
    x = np.full((120, 1), 0.3)
    x[100:] = 0.35
    scaled = standardized(x, np.arange(120) >= 100)
    np.testing.assert_allclose(scaled[:100], 0.0, atol=1e-12)
    np.testing.assert_allclose(scaled[100:], 0.05, rtol=1e-6)
    # A small spread about a large mean is one.
    small = standardized(1e6 + np.array([[0.0], [1e-3]]), np.zeros(2, bool))
    np.testing.assert_allclose(small, [[-1.0], [1.0]], rtol=1e-4)
