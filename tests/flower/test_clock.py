"""Simulated time is seen by the ServerApp's thread alone, under every name."""

from __future__ import annotations

import datetime
import logging
import queue
import threading
import time
from datetime import datetime as imported_datetime
from time import monotonic as imported_monotonic
from time import sleep as imported_sleep

import pytest

from fedsim.flower.clock import EPOCH_S, SimulatedClock, thread_on

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
        with pytest.raises(queue.Empty):
            queue.Queue().get(timeout=0.01)
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
