"""Curves of groups: values between, before and after the evaluations of runs."""

import math
from dataclasses import replace

import pytest

from fedsim.analysis.comparison.curves import curves
from fedsim.analysis.comparison.groups import group_runs
from tests.analysis.comparison.test_groups import facts, server

NAN = math.nan
LOST = math.inf
Points = tuple[tuple[float, ...], tuple[float, ...]]


@pytest.mark.parametrize(
    ("runs", "places", "mean", "spread"),
    [
        # A value counts until the next is measured, and after the last.
        (
            [((0, 10), (0.1, 0.5)), ((0, 4, 20), (0.3, 0.4, 0.9))],
            [0, 4, 10, 20],
            [0.2, 0.25, 0.45, 0.7],
            [math.sqrt(2) * half for half in (0.1, 0.15, 0.05, 0.2)],
        ),
        # The curve begins when all are measured.
        ([((5, 10), (0.1, 0.5)), ((0, 4), (0.3, 0.4))], [0, 4, 5, 10], [NAN, NAN, 0.25, 0.45], None),
        # It ends at the first value that is not finite; the mean does not go on with the other run, until 3 s.
        (
            [((0, 1, 3), (0.3, 0.7, 0.9)), ((0, 1, 2, 3), (0.1, 0.5, LOST, LOST))],
            [0, 1, 2, 3],
            [0.2, 0.6, NAN, NAN],
            None,
        ),
        # One run has no band.
        ([((0, 1), (0.1, 0.5))], [0, 1], [0.1, 0.5], [NAN, NAN]),
    ],
)  # fmt: skip
def test_means_and_bands_of_a_group(
    runs: list[Points], places: list[float], mean: list[float], spread: list[float] | None
) -> None:
    """Another variant is evaluated once more, at 30 s, when the group has ended."""
    made = []
    for seed, (times, values) in enumerate(runs):
        run = facts(server("fedavg"), seed, str(seed), tuple(map(float, times)), values)
        made.append(replace(run, lost=("accuracy",) if LOST in values else ()))
    other = facts(server("mifa"), 0, "other", (0.0, 30.0), (0.1, 0.2))
    x, (drawn, _) = curves(group_runs([*made, other]).groups, "accuracy", "time_s")
    assert x.tolist() == [*places, 30]
    assert drawn["mean"].tolist() == pytest.approx([*mean, NAN], nan_ok=True)
    if spread is not None:
        above, below = drawn["high"] - drawn["mean"], drawn["mean"] - drawn["low"]
        for half in (above, below):
            assert half.tolist() == pytest.approx([*spread, NAN], nan_ok=True)
