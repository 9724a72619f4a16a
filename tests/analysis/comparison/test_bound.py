"""The lower bound on the time of a curve."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim
from fedsim.analysis.comparison.bound import durations_s, earliest_s
from fedsim.errors import UserError

pytestmark = pytest.mark.usefixtures("without_reports")


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
