"""Times to targets and their bootstrap intervals."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedsim.analysis.comparison import Comparison
from fedsim.analysis.comparison.targets import (
    RESAMPLES,
    Target,
    enough,
    mean_of_reached,
    median_of_reached,
    ratio_of_means,
    reaching,
)
from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.vocabulary.metrics import MetricDefinition
from tests.analysis.comparison.test_groups import facts, server

NAN = math.nan


def test_the_first_evaluation_that_reaches_the_target_counts() -> None:
    run = facts(server("fedavg"), 0, "a", (0.0, 1.0, 2.0, 3.0), (0.1, 0.7, 0.6, 0.8))
    assert reaching(run, Target("accuracy", 0.7))["time_s"] == 1.0
    assert reaching(run, Target("accuracy", 0.7))["bytes"] == 2.0
    assert reaching(run, Target("accuracy", 0.75))["time_s"] == 3.0
    assert math.isnan(reaching(run, Target("accuracy", 0.9))["time_s"])
    assert math.isnan(reaching(run, Target("f1", 0.1))["time_s"])


def test_a_target_in_percent_is_refused_as_in_a_scenario() -> None:
    run = facts(server("fedavg"), 0, "a", (0.0,), (0.1,))
    with pytest.raises(UserError, match=r"accuracy never reaches 80; .*\n  write 0\.8 for 80%"):
        Comparison(((run,), (), None), targets=[Target("accuracy", 80.0)])


@pytest.mark.parametrize(
    ("values", "is_enough", "median"),
    [
        ([1.0, 2.0, 3.0], True, 2.0),
        ([3.0, NAN, 1.0], True, 3.0),
        ([NAN, 1.0, NAN], False, NAN),
        ([4.0, NAN, NAN, 2.0], True, 4.0),
        ([NAN, NAN], False, NAN),
        ([7.0], True, 7.0),
    ],
)
def test_half_of_the_runs_are_enough(values: list[float], is_enough: bool, median: float) -> None:
    """The median exists exactly where the mean is shown: both take at least half of the runs."""
    array = np.array(values)
    assert enough(array) is is_enough
    assert median_of_reached(array) == pytest.approx(median, nan_ok=True)
    assert math.isnan(median) is not is_enough


@pytest.mark.parametrize(
    ("values", "baseline", "mean", "low"),
    [
        # Of fewer than three values, the resamples have few means: the interval would be their range.
        ([5.0], None, 5, NAN),
        ([5.0, 6.0], None, 5.5, NAN),
        ([5.0, 6.0, NAN, NAN], None, 5.5, NAN),
        ([3.0, 4.0, 5.0], [2.0, NAN, 3.0], 8 / 5, NAN),
        ([2.0, NAN, 3.0], [3.0, 4.0, 5.0], 5 / 8, NAN),
        ([3.0], [2.0], 1.5, NAN),
        # The interval of equal values is a point, where a bias-corrected bootstrap is not defined.
        ([4.0] * 3, None, 4, 4),
        ([6.0] * 3, [4.0] * 3, 1.5, 1.5),
        # A ratio is over the seeds that both have, and needs a baseline that reached the target.
        ([NAN, 3.0, 30.0, 4.0], [1.0, 2.0, NAN, 2.0], 1.75, NAN),
        ([NAN, 3.0], [1.0, NAN], NAN, NAN),
        ([1.0], [NAN], NAN, NAN),
        ([1.0], [0.0], NAN, NAN),
    ],
)
def test_means_and_ratios_with_their_intervals(
    values: list[float], baseline: list[float] | None, mean: float, low: float
) -> None:
    every = np.array(values)
    both = baseline is not None
    estimate = ratio_of_means(every, np.array(baseline)) if both else mean_of_reached(every)
    assert estimate == pytest.approx((mean, low, low), nan_ok=True)


def middle(runs: int) -> list[float]:
    """The percentiles of an interval."""
    tail = float(stats.norm.cdf(-((runs / (runs - 1)) ** 0.5) * stats.t.ppf(0.975, runs - 1)))
    return [tail, 1 - tail]


def test_intervals_of_few_runs_contain_what_they_should() -> None:
    """Of 95% intervals of six runs with the middle 95% of the resamples, 86% did."""
    samples = np.random.default_rng(0).lognormal(0, 0.3, (400, 6))
    estimates = map(mean_of_reached, samples)
    hits = [each.low <= np.exp(0.3**2 / 2) <= each.high for each in estimates]
    assert 0.9 < np.mean(hits) < 0.97


@pytest.mark.filterwarnings("error")
def test_resamples_that_reached_nothing_are_left_out_in_silence() -> None:
    estimate = mean_of_reached(np.array([1.0, 2.0, 3.0, *[NAN] * 9]))
    assert 1.0 <= estimate.low < 2.0 < estimate.high <= 3.0


def test_intervals_come_close_to_all_possible_resamples() -> None:
    """Brute force: of three values there are 27 resamples, all equally likely."""
    values = np.array([1.0, 2.0, 10.0])
    means = [values[list(draw)].mean() for draw in itertools.product(range(3), repeat=3)]
    low, high = np.quantile(means, middle(3), method="inverted_cdf")
    estimate = mean_of_reached(values)
    assert (estimate.low, estimate.high) == pytest.approx((low, high))


def test_a_metric_of_the_user_is_reached_in_its_own_direction() -> None:
    run = dataclasses.replace(
        facts(server("fedavg"), 0, "a", (0.0, 1.0, 2.0), (0.9, 0.7, 0.2)),
        definitions={"accuracy": MetricDefinition("accuracy", higher_is_better=False)},
    )
    assert reaching(run, Target("accuracy", 0.5))["time_s"] == 2.0


def test_intervals_are_those_of_scipy() -> None:
    values, baseline = np.array([3.0, 5.0, NAN, 4.5, 9.0]), np.array([2.0, 2.5, 3.0, NAN, 8.0])
    both = np.isfinite(values) & np.isfinite(baseline)

    def ratio(first: Any, second: Any, axis: int = -1) -> Any:
        return first.mean(axis=axis) / second.mean(axis=axis)

    for estimate, samples, statistic in (
        (mean_of_reached(values), (values,), np.nanmean),
        (ratio_of_means(values, baseline), (values[both], baseline[both]), ratio),
    ):
        resampled = stats.bootstrap(
            samples,
            statistic,
            n_resamples=RESAMPLES,
            paired=len(samples) > 1,
            method="percentile",
            rng=Stream(0, Purpose.ANALYSIS).generator(),
        ).bootstrap_distribution
        expected = np.quantile(
            resampled[np.isfinite(resampled)], middle(4 if len(samples) == 1 else 3)
        )
        assert (estimate.low, estimate.high) == pytest.approx(expected, rel=1e-12)


def test_a_target_that_nobody_measured_is_no_target() -> None:
    timed = facts({**server("fedavg"), "stop": {"target": {"accuracy": 0.9}}})
    assert Comparison(((timed,), (), None)).goals == ()
