"""Columns of ended dispatches: the values that integers and Python's division give."""

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.devices.battery import Power
from fedsim.runs.schema import DISPATCHES
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import Plan
from fedsim.simulation.rows import dispatch_columns
from fedsim.simulation.updates import Ended
from fedsim.units import NEVER
from fedsim.vocabulary.outcomes import CAUSE_LABELS, Ending, Outcome

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
