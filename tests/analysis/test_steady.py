"""The steady state: the warm-up by hand and by force, and intervals of series with a known mean."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.signal import lfilter

from fedsim.analysis.steady import BATCHES, batch_half_width, throughput, warm_up
from tests.runs.synthetic_runs import build_run

Floats = npt.NDArray[np.float64]


def series(random: np.random.Generator, start: float, count: int = 1000) -> Floats:
    """A first-order autoregression around 10 whose start decays by 5% per value."""
    noise: Floats = lfilter([1], [1, -0.5], random.normal(0, 1, count))
    return 10 + noise + start * 0.95 ** np.arange(count)


def test_the_warm_up_is_that_with_the_smallest_standard_error() -> None:
    values = series(np.random.default_rng(0), -10)
    means = values.reshape(-1, 5).mean(axis=1)
    errors = [means[d:].var() / (len(means) - d) for d in range(len(means) // 2 + 1)]
    assert warm_up(values) == 5 * int(np.argmin(errors))
    assert 20 <= (warm_up(values) or 0) <= 100


def test_a_constant_series_has_no_warm_up_and_a_rising_one_has_nothing_else() -> None:
    assert warm_up(np.ones(100)) == 0
    assert warm_up(np.arange(1000.0)) is None


def test_without_the_warm_up_the_mean_is_right_and_its_interval_keeps_its_word() -> None:
    """The mean of the whole series is 0.2 too small; 95% of 300 intervals are 285, with a standard deviation of 4."""
    random, errors, right = np.random.default_rng(1), np.zeros((300, 2)), 0
    for number in range(300):
        values = series(random, -10)
        steady = values[warm_up(values) :]
        errors[number] = steady.mean() - 10, values.mean() - 10
        right += abs(errors[number, 0]) <= batch_half_width(steady)
    assert abs(errors[:, 0].mean()) < 0.03
    assert errors[:, 1].mean() < -0.15
    assert 265 <= right <= 297


def test_batches_are_consecutive() -> None:
    """Within batches, the values differ; their means are 1, 2, ..., 20."""
    means = np.arange(1, BATCHES + 1)
    values = np.concatenate([[mean - 9, mean, mean + 9] for mean in means]).astype(float)
    expected = 2.093024 * means.std(ddof=1) / np.sqrt(BATCHES)
    assert batch_half_width(values) == pytest.approx(expected)


def test_the_throughput_of_a_run_counts_client_updates(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", hours=120, asynchronous=True, learning=False)
    steady = throughput(run)
    assert steady is not None
    entered = run.dispatches["outcome"].eq("aggregated").sum()
    assert steady.per_h == pytest.approx(entered / 120, rel=0.1)
    assert 0 < steady.half_width < steady.per_h
    assert 0 <= steady.warm_up_s < 60 * 3600
    assert throughput(build_run(tmp_path / "short", hours=3)) is None
