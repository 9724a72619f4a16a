"""Tasks by learned speeds: the allocation by brute force, and rounds on paper."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.scheduling.schedules.ata import allocated
from tests.scheduling.stories import run, versions


@settings(max_examples=60)
@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=4), st.integers(1, 7))
def test_the_allocation_ends_as_early_as_possible(times: list[float], tasks: int) -> None:
    counts = allocated(np.array(times), tasks)
    assert sum(counts) == tasks
    ends = min(
        max(count * time for count, time in zip(each, times, strict=True))
        for each in itertools.product(range(tasks + 1), repeat=len(times))
        if sum(each) == tasks
    )
    assert max(count * time for count, time in zip(counts, times, strict=True)) == ends


def test_unknown_clients_share_the_tasks() -> None:
    assert allocated(np.zeros(3), 7) == [3, 2, 2]


def test_rounds_by_hand() -> None:
    # Nothing is known in round 1: two tasks each of 1, 2 and 6 s. With spread 0, round 2 then trusts these times:
    # (4, 2, 0) ends after 4 s.
    book = run([1.0, 2.0, 6.0], {"name": "ata", "tasks": 6, "spread": 0}, rounds=2)
    assert versions(book) == [(12, [0, 1, 2], [0, 0, 0]), (16, [0, 1], [0, 0])]
    assert [(row["client"], row["steps_done"]) for row in book.rows] == [
        (0, 2),
        (1, 2),
        (2, 2),
        (0, 4),
        (1, 2),
    ]


@pytest.mark.parametrize("spread", [0.1, 0.4])
def test_lower_bounds(spread: float) -> None:
    kept = []
    run(
        [1.0, 2.0, 6.0],
        {"name": "ata", "tasks": 6, "spread": spread},
        rounds=1,
        observe=lambda schedule, server: kept.append(schedule),
    )
    (schedule,) = kept
    assert schedule._rounds == 1
    surprise = math.log(2) / 2
    width = 2 * spread * max(math.sqrt(surprise), surprise)
    assert schedule.lower_bounds_s() == pytest.approx(np.array([1.0, 2.0, 6.0]) * max(1 - width, 0))
