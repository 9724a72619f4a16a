"""Cross-validation: rounds and coverage by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from fedsim.calibration.log import round_durations_s
from fedsim.calibration.prediction import (
    Lateness,
    Prediction,
    _lateness,
    fitting_rounds,
    verdict,
)


def test_coverage_is_the_share_within_the_bands() -> None:
    values = Prediction("x", [1.0, 2.0, 3.0, 4.0], [0, 2, 4, 4], [1, 2, 5, 4], [2, 2, 6, 4])
    assert values.coverage == 0.75
    assert math.isnan(Prediction("x", [], [], [], []).coverage)


def test_lateness_by_hand() -> None:
    """Four dispatches, two late; predicted 0.9, 0.4, 0.2, 0: three right; Brier (0.01 + 0.36 + 0.04) / 4 = 0.1025."""
    late = Lateness(np.array([0.9, 0.4, 0.2, 0.0]), np.array([True, True, False, False]))
    assert (late.right, late.commonest) == (0.75, 0.5)
    assert late.brier == pytest.approx(0.1025)
    assert late.skill == pytest.approx(1 - 0.1025 / 0.25)


@pytest.mark.parametrize(("rounds", "fitting"), [(4, 0), (5, 1), (10, 2), (11, 3)])
def test_the_first_fifth_is_fitted(rounds: int, fitting: int) -> None:
    log = pd.DataFrame({"round": [*range(rounds), None]})
    assert fitting_rounds(log) == fitting


@pytest.mark.parametrize(
    ("inside", "values", "expected"),
    [
        # P(at most 3 of 7) = 0.0027, P(at most 4 of 7) = 0.026, P(at most 5 of 7) = 0.15 with bands that hold 90%.
        (3, 7, "Too confident: 3 of 7 later rounds"),
        (5, 7, "In agreement with the log: 5 of 7 later rounds"),
        (4, 7, "Too confident: 4 of 7 later rounds"),
        (40, 40, "In agreement with the log: 40 of 40 later rounds"),
    ],
)
def test_the_verdict_counts_the_rounds_within_their_band(
    inside: int, values: int, expected: str
) -> None:
    logged = [1.0] * inside + [3.0] * (values - inside)
    bands = ([0.5] * values, [1.0] * values, [1.5] * values)
    assert verdict([Prediction("duration of a round (s)", logged, *bands)]).startswith(expected)


def test_without_rounds_the_verdict_is_that_nothing_was_tested() -> None:
    assert verdict([]).startswith("Not tested")


@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        ([2.0] * 10 + [3.5] * 2, "Rounds predicted too long: 10 of 12 lay below"),
        ([2.0] * 2 + [3.5] * 10, "Rounds predicted too short: 10 of 12 lay above"),
        ([2.0, 3.5] * 6, "In agreement with the log: 12 of 12 later rounds fell into the 90% band"),
    ],
)
def test_the_verdict_says_if_the_middle_of_the_bands_is_biased(
    logged: list[float], expected: str
) -> None:
    bands = ([1.0] * 12, [3.0] * 12, [4.0] * 12)
    said = verdict([Prediction("", logged, *bands)])
    assert said.startswith(expected)
    assert not expected.startswith("Rounds") or said.endswith("their 90% band (12 within it)")


def test_a_round_lasts_until_the_next_begins() -> None:
    log = pd.DataFrame({"round": [1, 1, 0, 0, 2], "start_s": [3.0, 4.0, 1.0, 0.5, 9.0]})
    assert round_durations_s(log).to_dict() == {0: 2.5, 1: 6.0}


def test_dispatches_that_did_not_arrive_are_not_predicted() -> None:
    def log(*rows: tuple[int, int, str]) -> pd.DataFrame:
        return pd.DataFrame(rows, columns=["round", "client", "outcome"])

    logged = log((0, 0, "late"), (1, 0, "late"), (1, 1, "aggregated"), (1, 2, "dropped"))
    one = log((1, 0, "late"), (1, 1, "aggregated"), (1, 2, "late"))
    two = log((1, 0, "aggregated"), (1, 1, "dropped"), (1, 2, "late"))
    lateness = _lateness(logged, [one, two, one], 1)
    assert lateness is not None
    assert lateness.late.tolist() == [True, False]
    assert lateness.probability == pytest.approx([2 / 3, 0])
    never = logged.replace("late", "aggregated")
    assert _lateness(never, [never], 1) is None
