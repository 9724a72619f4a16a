"""Doubts whether a log is of one run of one server, on devices that stay as they are."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from fedsim.calibration.log import Rounds
from fedsim.vocabulary.formatting import format_counted, format_duration, format_share

_LEAST_CHANGE, _LEAST_Z = 0.1, 4.0
"""Relative change of step times over a log, and its number of standard errors, from which a trend is flagged."""


def doubts(log: pd.DataFrame, rounds: Rounds, *, is_synchronous: bool) -> Iterator[str]:
    """Flags of several runs in one file, overlapping rounds, a pause of the server, and a trend of the step times."""
    numbers = log["round"].dropna()
    if len(back := numbers[numbers < numbers.cummax()]):
        yield (
            f"Round {back.iloc[0]:.0f} begins again {format_duration(log['start_s'][back.index[0]])} after the first"
            " dispatch: the log seems to contain several runs, whose rounds are mixed. Calibrate each alone."
        )
    elif is_synchronous and rounds.overlaps:
        yield (
            f"In {format_counted(rounds.overlaps, 'round')}, the next one begins before the last update arrives, so"
            " they do not show the time between rounds. Give late updates the outcome late, or an asynchronous"
            " server its scenario."
        )
    if rounds.pause is not None:
        number, pause_s = rounds.pause
        yield (
            f"{format_duration(pause_s)} pass after round {number:.0f}, far more than after the others: this is not"
            " part of the time between rounds, but of the log's total time."
        )
    total_s = log["end_s"] - log["start_s"]
    step_s = log["compute_s"].fillna(total_s if log["compute_s"].isna().all() else np.nan)
    step_s /= log["steps"].fillna(1)
    seen = log.loc[step_s > 0, ["client", "start_s"]].assign(y=np.log(step_s[step_s > 0]))
    centered = seen[["start_s", "y"]] - seen.groupby("client")[["start_s", "y"]].transform("mean")
    x, y = centered["start_s"], centered["y"]
    freedom, square = len(seen) - seen["client"].nunique() - 1, float((x**2).sum())
    if freedom < 1 or not square:
        return
    slope = float((x * y).sum()) / square
    error = math.sqrt(float(((y - slope * x) ** 2).sum()) / freedom / square)
    change = math.expm1(slope * float(np.ptp(log["start_s"])))
    if abs(change) >= _LEAST_CHANGE and abs(slope) > _LEAST_Z * error:
        yield (
            f"Step times {'grow' if change > 0 else 'shrink'} by {format_share(abs(change))} from the begin to the end"
            " of the log, as those of devices that throttle their clock: the estimates are means over it, and a"
            " simulation has no such trend."
        )
