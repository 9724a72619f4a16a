"""Simulated time is seen by the ServerApp's thread alone, under every name."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import queue
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as futures_wait
from datetime import datetime as imported_datetime
from time import monotonic as imported_monotonic
from time import sleep as imported_sleep

import pytest

from fedsim.errors import UserError
from fedsim.flower.clock import EPOCH_S, SimulatedClock, on_node, thread_on

S = 1_000_000_000


class Time:
    def __init__(self) -> None:
        self.now_ns = 0

    def clock(self) -> SimulatedClock:
        return SimulatedClock(lambda: self.now_ns, self.sleep)

    def sleep(self, duration_ns: int) -> None:
        self.now_ns += duration_ns


def test_every_name_means_simulated_time() -> None:
    clock = Time().clock()
    with clock.installed(), thread_on(clock):
        time.sleep(2)
        imported_sleep(3.5)
        assert time.time() == EPOCH_S + 5.5
        assert time.time_ns() == EPOCH_S * S + 5 * S + S // 2
        assert time.monotonic() == imported_monotonic() == time.perf_counter() == 5.5
        assert time.monotonic_ns() == time.perf_counter_ns() == 5 * S + S // 2
        now = datetime.datetime.now(datetime.UTC)
        assert now == imported_datetime.fromtimestamp(EPOCH_S + 5.5, datetime.UTC)
        assert imported_datetime.now(datetime.UTC) == now
        assert imported_datetime.utcnow() == now.replace(tzinfo=None)
        with pytest.raises(ValueError, match="non-negative"):
            time.sleep(-1)


def test_instances_and_subclasses_of_datetime_are_what_they_were() -> None:
    plain = datetime.datetime(2020, 1, 2)
    clock = Time().clock()
    with clock.installed(), thread_on(clock):
        made = datetime.datetime(2020, 1, 2)
        assert made == plain
        assert type(made) is type(plain)
        assert isinstance(plain, datetime.datetime)
        assert isinstance(datetime.datetime.now(), datetime.date)

        class Own(datetime.datetime):
            pass

        assert type(Own(2020, 1, 2)) is Own
        assert isinstance(Own(2020, 1, 2), datetime.datetime)


def test_other_threads_and_the_standard_library_keep_the_time_of_the_host() -> None:
    real = time.time()
    clock, seen = Time().clock(), []
    with clock.installed(), thread_on(clock):
        thread = threading.Thread(target=lambda: seen.append(time.time()))
        thread.start()
        thread.join(timeout=30)
        assert seen[0] == pytest.approx(real, abs=60)
        assert logging.LogRecord("", 0, "", 0, "", (), None).created == pytest.approx(real, abs=60)
        with thread_on(None):
            assert time.time() == pytest.approx(real, abs=60)
        assert time.time() == EPOCH_S
    assert time.time() == pytest.approx(real, abs=60)


def test_names_imported_meanwhile_return_to_the_host() -> None:
    clock = Time().clock()
    with clock.installed(), thread_on(clock):
        from time import time as kept
    assert kept is not time.time
    assert kept() == pytest.approx(time.time(), abs=60)
    assert imported_sleep.__module__ == "time"
    assert imported_datetime is datetime.datetime


async def _asleep() -> None:
    await asyncio.sleep(2)


async def _impatient() -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 2)


def _wait_for_condition() -> None:
    condition = threading.Condition()
    with condition:
        assert not condition.wait_for(lambda: False, timeout=2)


def _wait_for_item() -> None:
    with pytest.raises(queue.Empty):
        queue.Queue[int]().get(timeout=2)


def _wait_for_future() -> None:
    with pytest.raises(TimeoutError):
        Future[int]().result(timeout=2)
    assert not futures_wait([Future[int]()], timeout=0.0).done


WAITS: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(2),
    "event": lambda: threading.Event().wait(2),
    "condition": _wait_for_condition,
    "queue": _wait_for_item,
    "future": _wait_for_future,
    "select": lambda: select.select([], [], [], 2),
    "asyncio": lambda: asyncio.run(_asleep()),
    "asyncio.wait_for": lambda: asyncio.run(_impatient()),
}


@pytest.mark.parametrize("way", WAITS)
def test_six_waits_of_two_seconds_take_twelve(way: str) -> None:
    clock, began = Time().clock(), time.monotonic()
    with clock.installed(), thread_on(clock):
        for _ in range(6):
            WAITS[way]()
        assert time.time() - EPOCH_S == pytest.approx(12, abs=1e-3)
        assert clock.now_ns() == pytest.approx(12 * S, abs=S // 1000)
    assert time.monotonic() - began < 5


def test_a_wait_that_ends_early_takes_no_time() -> None:
    clock = Time().clock()
    with clock.installed(), thread_on(clock):
        event, items = threading.Event(), queue.Queue[int]()
        event.set()
        items.put(1)
        assert event.wait(5)
        assert items.get(timeout=5) == 1
        # A thread that computes takes the host's time, and ends the wait.
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(sum, [1, 2]).result(timeout=60) == 3
        assert clock.now_ns() == 0


def test_what_cannot_wait_in_simulated_time_is_an_error_that_names_the_line() -> None:
    clock = Time().clock()
    with clock.installed(), thread_on(clock):
        with pytest.raises(UserError, match=r"threading\.Timer does not wait") as caught:
            threading.Timer(2, print).start()
        assert str(caught.value.where).startswith(f"{__file__}:")
        with ThreadPoolExecutor(1) as pool, pytest.raises(UserError, match="thread of the"):
            pool.submit(lambda: time.sleep(2)).result()


def test_every_clock_is_simulated() -> None:
    clock = Time().clock()
    with clock.installed(), thread_on(clock):
        time.sleep(86_400)
        assert datetime.date.today() == datetime.date(2026, 1, 2)
        assert time.gmtime()[:5] == (2026, 1, 2, 0, 0)
        assert time.gmtime(0)[:3] == (1970, 1, 1)
        assert time.localtime()[:1] == (2026,)
        assert "2026" in time.ctime()
        assert time.strftime("%Y") == "2026"
        assert time.strftime("%Y", time.gmtime(0)) == "1970"
        assert time.clock_gettime(time.CLOCK_REALTIME) == EPOCH_S + 86_400
        assert isinstance(datetime.date(2020, 1, 1), datetime.date)
        assert type(datetime.date(2020, 1, 1)) is type(datetime.datetime(2020, 1, 1).date())


def test_sleeps_of_a_node_are_noted_and_do_not_pass_on_the_host() -> None:
    clock = Time().clock()
    with clock.installed(), thread_on(clock), thread_on(None), on_node() as node:
        began = time.monotonic()
        time.sleep(30)
        imported_sleep(0.5)
        assert node.slept_ns == 30 * S + S // 2
        assert 30.5 <= time.monotonic() - began < 35
        assert clock.now_ns() == 0


def test_waits_of_libraries_are_real() -> None:
    """A library in the ServerApp's thread, such as a loader of data, sees its timeout pass on the host."""
    library: dict[str, object] = {"__name__": "torch.utils.data", "queue": queue}
    exec("def get():\n    return queue.Queue().get(timeout=0.05)", library)
    clock = Time().clock()
    with clock.installed(), thread_on(clock):
        with pytest.raises(queue.Empty):
            library["get"]()  # type: ignore[operator]
        assert clock.now_ns() == 0
