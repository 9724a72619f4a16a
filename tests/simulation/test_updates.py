"""Which updates have arrived."""

from typing import Any

import pytest

from tests.simulation.harness import simulate


@pytest.mark.parametrize("shared", [False, True])
def test_an_update_due_when_its_dispatch_is_called_off_has_not_arrived(shared: bool) -> None:
    """Three clients, two wanted, all due at once: the second arrival closes the round and calls the third off.

    A round takes 1.01 s down, ten steps of 1 s and 1.01 s up. The third client has done all its work and sent all its
    bytes; only the server no longer listens.
    """
    book = simulate(
        step_s=[1, 1, 1],
        latency_s=0.01,
        selection={"name": "uniform", "cohort": 2},
        schedule={"name": "sync", "over_selection": 1.5, "stragglers": "cut"},
        rounds=3,
        shared=shared,
    )
    columns = ("round", "dispatched", "downloaded", "computed", "arrived", "ended", "steps_done")
    expected = []
    for number, start in enumerate((0.0, 12.02, 24.04)):
        marks = (number, *(pytest.approx(start + after) for after in (0, 1.01, 11.01)))
        end = pytest.approx(start + 12.02)
        arrived = (*marks, end, end, 10, "aggregated")
        expected += [arrived, arrived, (*marks, None, end, 10, "cut")]
    assert book.table(*columns) == expected
    assert {row["bytes_up"] for row in book.rows} == {1_000_000}
    assert [aggregate.time_s for aggregate in book.aggregates] == pytest.approx(
        [12.02, 24.04, 36.06]
    )
    assert [row["staleness"] for row in book.rows if row["arrived"] != row["arrived"]] == [-1] * 3


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("schedule", "outcomes"),
    [
        ({"name": "sync", "over_selection": 2}, ["aggregated"] * 2 + ["late"] * 2),
        ({"name": "buffered", "buffer_size": 3}, ["aggregated"] * 3 + ["late"]),
        ({"name": "async"}, ["aggregated"] + ["late"] * 3),
    ],
)
def test_updates_due_when_the_last_round_closes_have_all_arrived(
    schedule: dict[str, Any], outcomes: list[str], shared: bool
) -> None:
    """Four updates at 12 s; the first ones close the only round."""
    cohort = 2 if schedule["name"] == "sync" else 4
    book = simulate(
        step_s=[1] * 4,
        schedule=schedule,
        selection={"name": "uniform", "cohort": cohort},
        rounds=1,
        shared=shared,
    )
    first = [book.row(i) for i in range(4)]
    assert [row["arrived"] for row in first] == [12.0] * 4
    assert list(book.outcomes().values())[:4] == outcomes
    assert len(book.aggregates) == 1
