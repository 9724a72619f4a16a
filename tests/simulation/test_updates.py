"""Which updates have arrived, and the columns of ended dispatches: what integers and Python's division give."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.devices.battery import Power
from fedsim.runs.schema import DISPATCHES
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import Plan
from fedsim.simulation.updates import Ended, dispatch_columns
from fedsim.units import NEVER
from fedsim.vocabulary.outcomes import CAUSE_LABELS, Ending, Outcome
from tests.simulation.harness import simulate

POWER = Power(watts=np.array([[0.7, 2.5, 1.1], [0.0, 1.3, 0.9]]), of_client=np.array([0, 1, 1]))
INSTANT = st.integers(min_value=0, max_value=3_000_000_000_000_000_000)


@st.composite
def endings(draw: st.DrawFn) -> Ended:
    dispatch = Dispatch(
        draw(st.integers(0, 10**9)), 9, 3, 4, 5, 6, draw(INSTANT), draw(st.integers(0, 2))
    )
    dispatch.staleness = draw(st.integers(0, 99))
    marks = [draw(st.one_of(st.just(-1), INSTANT)) for _ in range(2)]
    end_ns = draw(st.one_of(st.just(NEVER), INSTANT))
    sizes = [draw(st.floats(0, 1e12)) for _ in range(2)]
    work_ns = [draw(INSTANT) for _ in range(3)]
    plan = Plan(end_ns, draw(st.sampled_from(Ending)), *marks, 2, *sizes, *work_ns)
    outcome = draw(st.sampled_from(Outcome))
    if plan.ending in (Ending.ARRIVED, Ending.STOPPED):
        outcome = draw(st.sampled_from([one for one in Outcome if one is not Outcome.DROPPED]))
    return Ended(dispatch, plan, outcome, draw(st.integers(-1, 9)), 7, draw(INSTANT))


def by_hand(ended: Ended) -> tuple[Any, ...]:
    dispatch, plan = ended.dispatch, ended.plan
    seconds = [ns / 10**9 if ns >= 0 else math.nan for ns in (plan.downloaded_ns, plan.computed_ns)]
    return (
        dispatch.dispatch_id,
        dispatch.client_id,
        dispatch.version,
        dispatch.round,
        dispatch.dispatched_ns / 10**9,
        *seconds,
        plan.end_ns / 10**9 if plan.ending is Ending.ARRIVED else math.nan,
        dispatch.steps,
        plan.steps_done,
        ended.outcome,
        dispatch.staleness if plan.ending is Ending.ARRIVED else -1,
        ended.version,
        round(plan.bytes_down),
        round(plan.bytes_up),
        POWER.joules(dispatch.client_id, plan[7:]),
        dispatch.sequence,
        ended.group,
        min(plan.end_ns, ended.now_ns) / 10**9,
        *(ns / 10**9 for ns in (plan.download_ns, plan.compute_ns, plan.upload_ns)),
        _cause(ended),
    )


def _cause(ended: Ended) -> int:
    if ended.outcome is not Outcome.DROPPED:
        return -1
    return CAUSE_LABELS.index(ended.plan.ending.label)


@settings(max_examples=20)
@given(st.lists(endings(), min_size=1, max_size=5))
def test_columns_are_the_values_of_each_dispatch(ended: list[Ended]) -> None:
    columns = dispatch_columns(POWER, ended)
    assert columns.keys() == set(DISPATCHES.schema.names)
    for index, one in enumerate(ended):
        row = tuple(columns[name][index].item() for name in DISPATCHES.schema.names)
        assert repr(row) == repr(tuple(map(_plain, by_hand(one))))


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Outcome) else value


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
