"""Rounds as long as the k-th fastest client needs, with work in proportion to speed."""

from __future__ import annotations

import pytest

from tests.scheduling.stories import run, versions


@pytest.mark.parametrize(
    ("share", "length_s", "steps"), [(0.25, 1.2, [10, 6, 5, 2]), (0.5, 1.7, [15, 10, 7, 3])]
)
def test_steps_fit_into_the_round(share: float, length_s: float, steps: list[int]) -> None:
    # Ten steps, and 0.2 s of transfers, which leave 1 or 1.5 s of the round.
    step_s = [0.1, 0.15, 0.2, 0.4]
    kept = []
    book = run(
        step_s,
        {"name": "timely", "share": share},
        rounds=1,
        observe=lambda schedule, server: kept.append(schedule),
        until_s=1000,
        expected_s=[10 * each + 0.2 for each in step_s],
    )
    assert [row["steps_assigned"] for row in sorted(book.rows, key=lambda r: r["client"])] == steps
    (schedule,) = kept
    assert schedule.limit_s(range(4)) == length_s


def test_updates_in_time_make_the_version() -> None:
    # One step per dispatch, so that the expected duration is the true one: only half of the clients have time for it.
    book = run([1.0, 1.5, 2.0, 4.0], {"name": "timely"}, steps=1, rounds=1)
    assert versions(book) == [(1.5, [0, 1], [0, 0])]
