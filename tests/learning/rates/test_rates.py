"""Learning-rate schedules by their formulas."""

import math
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.learning.rates import RateSchedule, learning_rate
from fedsim.scenario.training import Training


def rate(schedule: Any) -> Any:
    return learning_rate(Training(optimizer={"lr": 0.2}, lr_schedule=schedule))


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        ("constant", {0: 0.2, 50: 0.2}),
        ({"name": "inverse_sqrt", "scale": 5.0}, {0: 0.2, 15: 0.1}),
        (
            {"name": "exponential", "factor": 0.5, "every": 10.0},
            {0: 0.2, 9: 0.2, 10: 0.1, 25: 0.05},
        ),
        ({"name": "cosine", "length": 10.0, "floor": 0.5}, {0: 0.2, 5: 0.15, 10: 0.1, 99: 0.1}),
        (
            {"name": "piecewise", "points": [(10, 0.5), (20, 1.0), (20, 0.1), (30, 0.1)]},
            {0: 0.1, 10: 0.1, 14: 0.14, 19: 0.19, 20: 0.02, 25: 0.02, 99: 0.02},
        ),
        ({"name": "piecewise", "points": [(5, 0.5)]}, {0: 0.1, 5: 0.1, 6: 0.1}),
    ],
)
def test_by_round(schedule: Any, values: dict[int, float]) -> None:
    for round_number, expected in values.items():
        assert rate(schedule)(round_number, 1e9) == pytest.approx(expected, rel=1e-12)


def test_by_time() -> None:
    by_time = rate({"name": "inverse_sqrt", "scale": 60.0, "by": "time"})
    assert by_time(1000, 60.0) == pytest.approx(0.2 / math.sqrt(2), rel=1e-12)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([(10, 1.0), (5, 0.5)], "in order of t"),
        ([(0, 1.0), (5, 0.0)], "above zero"),
        ([], "at least 1"),
    ],
)
def test_points_that_make_no_schedule(points: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rate({"name": "piecewise", "points": points})


@pytest.mark.parametrize("factor", ["0.5", math.nan, math.inf, -1.0, None])
def test_a_factor_is_a_number_of_at_least_zero(factor: Any) -> None:
    class Mine(RateSchedule):
        name = "mine"

        def factor(self, round_number: int, time_s: float) -> float:
            return factor  # type: ignore[no-any-return]

    with pytest.raises(UserError, match=r"returns .*\n  return a finite number") as caught:
        rate({"name": Mine})(0, 0.0)
    assert "test_rates.py:" in str(caught.value.where)
