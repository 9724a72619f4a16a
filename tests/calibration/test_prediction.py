"""Cross-validation: rounds and coverage by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fedsim.calibration.prediction import Prediction, fitting_rounds, round_durations_s


def test_coverage_is_the_share_within_the_bands() -> None:
    values = Prediction("x", [1.0, 2.0, 3.0, 4.0], [0, 2, 4, 4], [1, 2, 5, 4], [2, 2, 6, 4])
    assert values.coverage == 0.75
    assert math.isnan(Prediction("x", [], [], [], []).coverage)


def test_a_round_lasts_until_the_next_begins() -> None:
    log = pd.DataFrame({"round": [1, 1, 0, 0, 2], "start_s": [3.0, 4.0, 1.0, 0.5, 9.0]})
    assert round_durations_s(log).to_dict() == {0: 2.5, 1: 6.0}


@pytest.mark.parametrize(("rounds", "fitting"), [(4, 0), (5, 1), (10, 2), (11, 3)])
def test_the_first_fifth_is_fitted(rounds: int, fitting: int) -> None:
    log = pd.DataFrame({"round": [*range(rounds), None]})
    assert fitting_rounds(log) == fitting
