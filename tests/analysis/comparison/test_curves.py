"""Curves of groups: values between, before and after the evaluations of runs, and lower bounds on their times."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim
from fedsim.analysis.comparison.curves import curves, durations_s, earliest_s
from fedsim.analysis.comparison.groups import group_runs
from fedsim.errors import UserError
from tests.analysis.comparison.test_groups import facts, server

NAN = math.nan
LOST = math.inf
Points = tuple[tuple[float, ...], tuple[float, ...]]


@pytest.mark.parametrize(
    ("runs", "places", "median", "spread"),
    [
        # A value counts until the next is measured, and after the last.
        (
            [((0, 10), (0.1, 0.5)), ((0, 4, 20), (0.3, 0.4, 0.9))],
            [0, 4, 10, 20],
            [0.2, 0.25, 0.45, 0.7],
            [0.1, 0.15, 0.05, 0.2],
        ),
        # The curve begins when all are measured.
        ([((5, 10), (0.1, 0.5)), ((0, 4), (0.3, 0.4))], [0, 4, 5, 10], [NAN, NAN, 0.25, 0.45], None),
        # It ends at the first value that is not finite; the median does not go on with the other run, until 3 s.
        (
            [((0, 1, 3), (0.3, 0.7, 0.9)), ((0, 1, 2, 3), (0.1, 0.5, LOST, LOST))],
            [0, 1, 2, 3],
            [0.2, 0.6, NAN, NAN],
            None,
        ),
        # It ends where fewer than half of the runs go on.
        (
            [((0, end), (0.1, 0.5)) for end in (2, 10, 20)],
            [0, 2, 10, 20],
            [0.1, 0.1, 0.5, NAN],
            None,
        ),
        # One run has no band.
        ([((0, 1), (0.1, 0.5))], [0, 1], [0.1, 0.5], [NAN, NAN]),
    ],
)  # fmt: skip
def test_medians_and_bands_of_a_group(
    runs: list[Points], places: list[float], median: list[float], spread: list[float] | None
) -> None:
    """Another variant is evaluated once more, at 30 s, when the group has ended."""
    made = []
    for seed, (times, values) in enumerate(runs):
        run = facts(server("fedavg"), seed, str(seed), tuple(map(float, times)), values)
        made.append(replace(run, lost=("accuracy",) if LOST in values else ()))
    other = facts(server("mifa"), 0, "other", (0.0, 30.0), (0.1, 0.2))
    x, (drawn, _) = curves(group_runs([*made, other]).groups, "accuracy", "time_s")
    assert x.tolist() == [*places, 30]
    assert drawn["median"].tolist() == pytest.approx([*median, NAN], nan_ok=True)
    if spread is not None:
        above, below = drawn["high"] - drawn["median"], drawn["median"] - drawn["low"]
        for half in (above, below):
            assert half.tolist() == pytest.approx([*spread, NAN], nan_ok=True)
    for (times, _), line in zip(runs, drawn["runs"], strict=True):
        known = x[np.isfinite(line)]
        assert (known >= times[0]).all(), "a line begins with its run"
        assert (known <= times[-1]).all(), "and ends with it"


@settings(max_examples=50)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(0, 40))
def test_the_least_time_by_brute_force(taus: list[int], count: int) -> None:
    expected = next(t for t in range(1000) if sum(t // tau for tau in taus) >= count)
    (time_s,) = earliest_s(np.array(taus, dtype=float), np.array([count]))
    assert time_s == pytest.approx(expected, abs=1e-9)


def test_clients_that_need_no_time_or_never_end() -> None:
    count = np.array([3])
    assert earliest_s(np.array([2.0, math.inf, math.nan]), count) == [6]
    assert earliest_s(np.array([2.0, 0.0, math.inf]), count) == [0]


def scenario(**server: Any) -> dict[str, Any]:
    """Three clients whose updates of two steps take 3, 4 and 7 s with their transfers of 0.5 s each way."""
    return {
        "name": "bound",
        "task": {"name": "quadratic", "centers": [1.0, 2.0, 3.0]},
        "training": {"local_steps": 2, "dtype": "float64", "device": "cpu"},
        "devices": {
            "compute": {"name": "values", "step": [1.0, 1.5, 3.0]},
            "network": {"name": "static", "latency": "0s", "down": "128bps", "up": "128bps"},
        },
        "server": {"method": {"name": "fedavg"}, **server},
        "stop": {"rounds": 6},
        "evaluation": {"every_rounds": 1},
    }


def test_a_thinned_curve_has_the_ends_of_its_runs() -> None:
    """The last value may be the one that reached the target."""
    runs = [
        facts(
            server("fedavg"),
            seed,
            str(seed),
            (*map(float, range(end)), end - 0.5),
            (0.1,) * end + (0.9,),
        )
        for seed, end in enumerate((40, 63))
    ]
    x, (drawn,) = curves(group_runs(runs).groups, "accuracy", "time_s", limit=10)
    assert len(x) < 20
    assert [line[np.isfinite(line)][-1] for line in drawn["runs"]] == [0.9, 0.9]


def test_a_bound_is_below_its_curve_and_met_by_rennala(tmp_path: Path) -> None:
    run = fedsim.run(scenario(), tmp_path / "sync")
    assert durations_s(run).tolist() == pytest.approx([3.0, 4.0, 7.0])
    rennala = {"method": {"name": "rennala"}, "schedule": {"name": "rennala", "batch": 4}}
    fedsim.run(scenario(**rennala), tmp_path / "rennala")
    comparison = fedsim.compare(tmp_path)
    bound = comparison.curves(bound=True)
    # Three updates per round: floor(t / 3) + floor(t / 4) + floor(t / 7) is 3 at 6 s, 6 at 9 s, 9 at 14 s.
    sync = bound[(bound["label"] == "fedavg") & bound["x"].isin([6, 9, 14])]
    assert len(sync) == 3
    curves = dict(iter(comparison.curves().groupby("label")))
    for label, rows in bound.groupby("label"):
        assert rows["x"].max() <= curves[label]["x"].max()
    # The first batch of Rennala is as early as possible: 4 updates at 7 s.
    assert curves["rennala"]["x"].drop_duplicates().iloc[1] == 7
    figure = comparison.plot(bound=True)
    assert "lower bound" in {text.get_text() for text in figure.legends[0].get_texts()}
    with pytest.raises(UserError, match="on time"):
        comparison.plot(against="bytes", bound=True)
