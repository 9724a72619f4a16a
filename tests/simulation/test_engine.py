"""The order of events, and how a run ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.simulation.engine import (
    EVALUATION_ORDER,
    FLOW_ORDER,
    LEAVING_ORDER,
    SETTLING_ORDER,
    Engine,
)
from fedsim.units import NEVER


def test_events_of_one_instant_come_in_their_order() -> None:
    engine, log = Engine(), []
    orders = {
        "settling": SETTLING_ORDER,
        "evaluation": EVALUATION_ORDER,
        "timer": None,
        "leaving": LEAVING_ORDER,
        "dispatch 7": 7,
        "dispatch 2": 2,
        "flow": FLOW_ORDER,
        "second timer": None,
    }
    for name, order in orders.items():
        engine.call_at(10, lambda name=name: log.append(name), order)  # type: ignore[misc]
    engine.run(None)
    assert log == [
        *("flow", "dispatch 2", "dispatch 7", "leaving"),
        *("timer", "second timer", "evaluation", "settling"),
    ]


@given(times=st.lists(st.integers(0, 5), max_size=12))
def test_timers_come_by_time_and_then_in_order_of_setting(times: list[int]) -> None:
    engine, log = Engine(), []
    for index, time_ns in enumerate(times):
        engine.call_at(time_ns, lambda item=(time_ns, index): log.append(item))  # type: ignore[misc]
    engine.run(None)
    assert log == sorted((time_ns, index) for index, time_ns in enumerate(times))


def test_a_call_set_at_its_own_instant_still_comes() -> None:
    engine, log = Engine(), []

    def first() -> None:
        log.append(engine.now_ns)
        engine.call_at(3, lambda: log.append(engine.now_ns))

    engine.call_at(3, first)
    engine.run(None)
    assert log == [3, 3]


def test_a_cancelled_call_does_nothing() -> None:
    engine, log = Engine(), []
    engine.call_at(1, lambda: log.append("kept"))
    engine.call_at(1, lambda: log.append("cancelled")).cancel()
    engine.run(None)
    assert log == ["kept"]


def test_a_call_before_now_is_refused() -> None:
    engine = Engine()
    engine.call_at(5, lambda: None)
    engine.run(None)
    with pytest.raises(ValueError, match="4 ns would lie before now, 5 ns"):
        engine.call_at(4, lambda: None)


def test_everything_at_the_end_of_the_time_still_happens() -> None:
    engine, log = Engine(), []
    for time_ns in (9, 10, 11):
        engine.call_at(time_ns, lambda t=time_ns: log.append(t), EVALUATION_ORDER)  # type: ignore[misc]
    engine.run(10)
    assert log == [9, 10]
    assert engine.now_ns == 10


def test_the_clock_reaches_the_end_of_the_time_without_events() -> None:
    engine = Engine()
    engine.run(10)
    assert engine.now_ns == 10
    assert engine.idle


def test_a_stop_leaves_what_would_come_at_the_same_instant() -> None:
    engine, log = Engine(), []
    engine.call_at(4, engine.stop)
    engine.call_at(4, lambda: log.append("after"))
    engine.run(10)
    assert (log, engine.now_ns, engine.idle) == ([], 4, False)


def test_the_clock_ends_before_never() -> None:
    engine, log = Engine(), []
    for time_ns in (NEVER - 1, NEVER):
        engine.call_at(time_ns, lambda t=time_ns: log.append(t))  # type: ignore[misc]
    engine.run(None)
    assert (log, engine.now_ns) == ([NEVER - 1], NEVER - 1)
