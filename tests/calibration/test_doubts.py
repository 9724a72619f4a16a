"""Logs of several runs, overlapping rounds, pauses and throttling devices have a flag."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.calibration.worlds import LOG, TIMES, calibrated


def _several_runs() -> pd.DataFrame:
    later = LOG.assign(**{name: LOG[name] + 1000 for name in TIMES})
    return pd.concat([LOG, later])


def _throttled() -> pd.DataFrame:
    """Local steps that take 5% longer from round to round."""
    more = (LOG["computed"] - LOG["downloaded"]) * 0.05 * LOG["round"]
    return LOG.assign(computed=LOG["computed"] + more, end=LOG["end"] + more)


def _overlapping() -> pd.DataFrame:
    return LOG.assign(**{name: LOG[name] - 8 * LOG["round"] for name in TIMES})


def _paused() -> pd.DataFrame:
    return LOG.assign(**{name: LOG[name] + 30_000 * (LOG["round"] > 4) for name in TIMES})


DOUBTS = {
    "several runs": (_several_runs, "Round 0 begins again 16 min 40 s after"),
    "throttling": (_throttled, "Step times grow by "),
    "overlapping rounds": (_overlapping, "In 7 rounds, the next one begins before"),
    "a pause": (_paused, "pass after round 4, far more than after the others"),
}


@pytest.mark.parametrize(("make", "said"), DOUBTS.values(), ids=DOUBTS)
def test_a_doubtful_log_has_a_flag(
    make: Callable[[], pd.DataFrame], said: str, tmp_path: Path
) -> None:
    result = calibrated(tmp_path, make())
    sound = calibrated(tmp_path, LOG)
    starts = [text for _, text in DOUBTS.values()]
    assert [text for text in starts if any(text in flag for flag in result.flags)] == [said]
    assert not [text for text in starts if any(text in flag for flag in sound.flags)]


def test_a_pause_is_no_time_between_rounds(tmp_path: Path) -> None:
    rounds = calibrated(tmp_path, _paused()).estimates.rounds
    assert rounds.gap_s == pytest.approx(5.011, abs=2e-3)
    assert rounds.gap_error_s < 0.01
    assert rounds.pause == pytest.approx((4, 30_005.011), abs=0.01)
