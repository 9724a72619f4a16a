"""Timeout and time between rounds, on logs written by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from fedsim.calibration.rounds import round_durations_s, rounds_of


def _log(*rows: tuple[float, int, float, float, str | None]) -> pd.DataFrame:
    """Dispatches from (round, client, start, end, outcome)."""
    return pd.DataFrame(rows, columns=["round", "client", "start_s", "end_s", "outcome"])


# Rounds of 4, 6, 5 and 3 s, followed by 2, 3, 7 and an unknown time.
ROUNDS = _log(
    (0, 0, 0.0, 1.0, "aggregated"),
    (0, 1, 0.0, 4.0, "aggregated"),
    (1, 0, 6.0, 12.0, "aggregated"),
    (2, 1, 15.0, 20.0, "discarded"),
    (3, 0, 27.0, 30.0, "aggregated"),
)


def test_time_between_rounds() -> None:
    assert round_durations_s(ROUNDS).to_dict() == {0: 6.0, 1: 9.0, 2: 12.0}
    found = rounds_of(ROUNDS)
    assert found.gaps_s == (2.0, 3.0, 7.0)
    error_s = math.sqrt(math.pi / 2) * np.std([2, 3, 7], ddof=1) / math.sqrt(3)
    assert (found.timeout_s, found.gap_s) == (None, 3.0)
    assert found.gap_error_s == pytest.approx(error_s)
    assert rounds_of(ROUNDS, last=1).gaps_s == (2.0, 3.0)
    # Waiting for clients lengthens it.
    assert rounds_of(ROUNDS, always_online=False).gap_s == 2.0


@pytest.mark.parametrize("outcome", ["dropped", "unfinished", "late", None])
def test_rounds_that_wait_for_something_else_show_none(outcome: str | None) -> None:
    # The round ends with its deadline, 8 s after its start, or with an arrival that is missing in the log.
    end_s = 9.0 if outcome == "late" else math.nan
    found = rounds_of(
        _log(
            (0, 0, 0.0, 1.0, "aggregated"),
            (0, 1, 0.0, end_s, outcome),
            (1, 0, 8.0, 9.0, "aggregated"),
        )
    )
    assert math.isnan(found.gap_s)
    assert found.gaps_s == ()
    assert found.timeout_s == (8.0 if outcome == "late" else None)


def test_a_round_that_lasts_until_the_timeout_shows_none() -> None:
    found = rounds_of(
        _log(
            (0, 0, 0.0, 20.0, "late"),
            (1, 0, 10.0, 12.0, "aggregated"),
            # Replies until just before the timeout of 8 s, then 2 s for the server.
            (2, 0, 14.0, 21.99, "aggregated"),
            (3, 0, 24.0, 25.0, "aggregated"),
        )
    )
    assert found.gaps_s == (2.0,)
    assert found.timeout_s == 8.0


def test_a_log_without_rounds_shows_nothing() -> None:
    found = rounds_of(_log((math.nan, 0, 0.0, 1.0, None), (math.nan, 0, 2.0, 3.0, None)))
    assert (found.timeout_s, found.gaps_s) == (None, ())
    assert math.isnan(found.gap_s)
