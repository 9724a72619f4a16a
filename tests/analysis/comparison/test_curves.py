"""Curves of groups: values between, before and after the evaluations of runs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedsim.analysis.comparison.curves import curve, grid
from fedsim.analysis.comparison.groups import group_runs
from tests.analysis.comparison.test_groups import facts, server

NAN = math.nan


def test_a_value_counts_until_the_next_is_measured_and_after_the_last() -> None:
    runs = [
        facts(server("fedavg"), 0, "a", (0.0, 10.0), (0.1, 0.5)),
        facts(server("fedavg"), 1, "b", (0.0, 4.0, 20.0), (0.3, 0.4, 0.9)),
    ]
    (group,) = group_runs(runs).groups
    places = grid([group], "accuracy", "time_s")
    assert places.tolist() == [0.0, 4.0, 10.0, 20.0]
    drawn = curve(group, "accuracy", "time_s", places)
    assert drawn["mean"].tolist() == pytest.approx([0.2, 0.25, 0.45, 0.7])
    assert (drawn["high"] - drawn["mean"]).tolist() == pytest.approx(
        [math.sqrt(2) * half for half in (0.1, 0.15, 0.05, 0.2)]
    )


def test_a_curve_begins_when_all_are_measured_and_ends_with_its_longest_run() -> None:
    late = facts(server("fedavg"), 0, "a", (5.0, 10.0), (0.1, 0.5))
    early = facts(server("fedavg"), 1, "b", (0.0, 4.0), (0.3, 0.4))
    (group,) = group_runs([late, early]).groups
    drawn = curve(group, "accuracy", "time_s", np.array([0.0, 4.0, 5.0, 10.0, 11.0]))
    assert drawn["mean"].tolist() == pytest.approx([NAN, NAN, 0.25, 0.45, NAN], nan_ok=True)


def test_a_curve_ends_at_the_first_value_that_is_not_finite() -> None:
    """The other run has values until 3 s, and the mean does not go on with it alone."""
    other = facts(server("fedavg"), 0, "a", (0.0, 1.0, 3.0), (0.3, 0.7, 0.9))
    diverged = facts(server("fedavg"), 1, "b", (0.0, 1.0, 2.0, 3.0), (0.1, 0.5, math.inf, math.inf))
    (group,) = group_runs([other, replace(diverged, lost=("accuracy",))]).groups
    places = grid([group], "accuracy", "time_s")
    assert places.tolist() == [0.0, 1.0, 2.0, 3.0]
    drawn = curve(group, "accuracy", "time_s", places)
    assert drawn["mean"].tolist() == pytest.approx([0.2, 0.6, NAN, NAN], nan_ok=True)


def test_one_run_has_no_band() -> None:
    (group,) = group_runs([facts(server("fedavg"), 0, "a", (0.0, 1.0), (0.1, 0.5))]).groups
    drawn = curve(group, "accuracy", "time_s", np.array([0.0, 1.0]))
    assert drawn["mean"].tolist() == [0.1, 0.5]
    assert np.isnan(drawn["low"]).all()
