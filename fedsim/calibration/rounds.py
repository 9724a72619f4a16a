"""Rounds of a log: how long they last, when they time out, and how long the server takes between them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedsim.vocabulary.outcomes import Outcome

_NEARLY = 0.99
"""Rounds that last at least this share of the rounds with late updates are taken to end at the timeout, too."""
IN_TIME = (Outcome.AGGREGATED.label, Outcome.DISCARDED.label)
_MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""Standard error of a median relative to that of a mean, for normal values."""


@dataclass(frozen=True)
class Rounds:
    """What a log shows about the server.

    Attributes:
        timeout_s: how long a round waits for its updates; None if no update is late.
        gap_s, gap_error_s: time from the last arrival of a round to the first dispatch of the next one, and its
            standard error; NaN if no round shows it.
        gaps_s: this time in each round that shows it.
    """

    timeout_s: float | None
    gap_s: float
    gap_error_s: float
    gaps_s: tuple[float, ...]


def round_durations_s(log: pd.DataFrame) -> pd.Series:
    """Time from the first dispatch of each round to that of the next; the last round has none."""
    starts = log.groupby("round")["start_s"].min().sort_index()
    return starts.diff().shift(-1).dropna()


def rounds_of(log: pd.DataFrame, last: float = math.inf, *, always_online: bool = True) -> Rounds:
    """What the rounds of a log show about the server.

    A round shows the time until the next one if all its updates arrived before a timeout.

    Args:
        log: the dispatches.
        last: the last round to be considered.
        always_online: the clients are always online, so that no round begins later because it waits for them. Otherwise
            the shortest time counts instead of the median.
    """
    durations_s = round_durations_s(log)
    durations_s = durations_s[durations_s.index <= last]
    arrived = log["outcome"].isna() | log["outcome"].isin(IN_TIME)
    rounds = (
        log.assign(
            late=log["outcome"] == Outcome.LATE.label, arrived=arrived & log["end_s"].notna()
        )
        .groupby("round")
        .agg({"start_s": "min", "end_s": "max", "late": "any", "arrived": "all"})
        .reindex(durations_s.index)
    )
    late = rounds["late"].astype(bool)
    timeout_s = float(durations_s[late].median()) if late.any() else math.inf
    whole = rounds["arrived"].astype(bool) & (durations_s < _NEARLY * timeout_s)
    gaps_s = (durations_s - (rounds["end_s"] - rounds["start_s"]))[whole].to_numpy()
    # Updates that arrive after the end of their round say nothing about the next one.
    gaps_s = gaps_s[gaps_s >= 0]
    gap_s = error_s = math.nan
    if count := len(gaps_s):
        gap_s = float(np.median(gaps_s) if always_online else gaps_s.min())
        error_s = _MEDIAN_ERROR * float(gaps_s.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    return Rounds(
        None if timeout_s == math.inf else timeout_s - (0.0 if math.isnan(gap_s) else gap_s),
        gap_s,
        error_s,
        tuple(gaps_s.tolist()),
    )
