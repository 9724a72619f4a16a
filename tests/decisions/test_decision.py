"""What a decision shows of runs that missed the target."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedsim.decisions.decision import Finalist, better_by_chance, joined
from fedsim.decisions.goal import Measured


def finalist(*times_s: float, ended_s: float = 9.0) -> Finalist:
    """One run per time; NaN is a miss, of a run that ended after ``ended_s``."""
    runs = []
    for time_s in times_s:
        reached = not math.isnan(time_s)
        costs = {"time": time_s if reached else ended_s}
        runs.append(Measured(costs, reached, 0.0 if reached else 0.4))
    return Finalist({}, "", tuple(runs), ("time",))


@pytest.mark.parametrize(
    ("times_s", "middle", "words"),
    [
        ([10.0, 20.0], 15.0, ("15 s", "0 s to 1 min 19 s")),
        ([10.0, 20.0, math.nan], 20.0, ("20 s", "median")),
        ([math.nan, 10.0, math.nan], math.inf, ("–", "–")),
        ([10.0, math.nan], math.inf, ("–", "–")),
    ],
)
def test_a_miss_is_not_a_time(times_s: list[float], middle: float, words: tuple[str, str]) -> None:
    """Neither the end of the run nor how much was missing enters a number."""
    shown = finalist(*times_s)
    assert shown.missed == sum(map(math.isnan, times_s))
    assert shown.middle() == middle
    assert shown.described() == words
    assert np.isnan(shown.interval()[1]) == bool(shown.missed)


def test_settings_with_the_same_values_are_one_row() -> None:
    named = [
        replace(finalist(*times_s), words=words)
        for words, times_s in (("a", (1.0, 2.0)), ("b", (2.0, 1.0)), ("c", (1.0, 2.0)))
    ]
    assert [each.words for each in joined(named)] == ["a (same results with c)", "b"]


def test_rivals_that_did_better_with_fresh_seeds_are_named() -> None:
    chances = (0.6, 0.3, math.nan)  # that of a scenario as given that misses a limit
    finalists = [
        replace(finalist(time_s), probability=chance)
        for time_s, chance in zip((2.0, 1.0, 0.5), chances, strict=True)
    ]
    assert better_by_chance(finalists) == finalists[1:2]
