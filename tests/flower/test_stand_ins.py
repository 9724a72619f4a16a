"""Simulated time is seen by the ServerApp's thread alone, under every name."""

import asyncio
import contextlib
import datetime
import logging
import multiprocessing
import queue
import sched
import select
import selectors
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as futures_wait
from datetime import datetime as imported_datetime
from time import monotonic as imported_monotonic
from time import sleep as imported_sleep
from typing import Any

import pandas as pd
import pytest

from fedsim.flower import clock as clocks
from fedsim.flower.clock import EPOCH_S, SimulatedClock, on_node, thread_on
from fedsim.flower.stand_ins import installed

S = 1_000_000_000


class Time:
    """An exchange in which nothing happens."""

    now_ns = 0

    def run_until(self, done: Callable[[], bool], until_ns: int) -> None:
        if not done():
            assert until_ns < 10**6 * S, "nothing will end this wait"
            self.now_ns = max(self.now_ns, until_ns)


@contextlib.contextmanager
def simulated() -> Iterator[SimulatedClock]:
    """This thread is on a simulated clock that starts at 0."""
    plane = Time()
    clock = SimulatedClock(plane, lambda span_ns, done: clock.wait(done, plane.now_ns + span_ns))
    with installed(), thread_on(clock):
        yield clock


def test_every_name_means_simulated_time() -> None:
    with simulated():
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
    with simulated():
        made = datetime.datetime(2020, 1, 2)
        assert made == plain
        assert type(made) is type(plain)
        assert isinstance(plain, datetime.datetime)
        assert isinstance(datetime.datetime.now(), datetime.date)

        class Own(datetime.datetime):
            pass

        assert type(Own(2020, 1, 2)) is Own
        assert isinstance(Own(2020, 1, 2), datetime.datetime)


def test_the_standard_library_keeps_the_time_of_the_host() -> None:
    real = time.time()
    with simulated():
        assert logging.LogRecord("", 0, "", 0, "", (), None).created == pytest.approx(real, abs=60)
        with thread_on(None):
            assert time.time() == pytest.approx(real, abs=60)
        assert time.time() == EPOCH_S
        from time import time as kept
    for read in (time.time, kept):
        assert read() == pytest.approx(real, abs=60)
    assert kept is not time.time
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


def _taken() -> threading.Lock:
    lock = threading.Lock()
    assert lock.acquire(timeout=2)
    return lock


def _schedule(scheduler: sched.scheduler) -> None:
    scheduler.enter(2, 0, lambda: None)
    scheduler.run()


def _wait_for_timer() -> None:
    timer = threading.Timer(2, lambda: None)
    timer.start()
    timer.join()


def _sleep_in_pool() -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(time.sleep, (2, 1)))


TAKEN = _taken()
WAITS: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(2),
    "event": lambda: threading.Event().wait(2),
    "condition": _wait_for_condition,
    "queue": _wait_for_item,
    "future": _wait_for_future,
    "lock": lambda: _taken().acquire(timeout=2),
    "lock of the module": lambda: TAKEN.acquire(timeout=2),
    "select": lambda: select.select([], [], [], 2),
    "selector": lambda: selectors.DefaultSelector().select(2),
    "poll selector": lambda: selectors.PollSelector().select(2),
    "asyncio": lambda: asyncio.run(_asleep()),
    "asyncio.wait_for": lambda: asyncio.run(_impatient()),
    "timer": _wait_for_timer,
    "pool": _sleep_in_pool,
    "sched": lambda: _schedule(sched.scheduler()),
    "sched by time": lambda: _schedule(sched.scheduler(time.time, time.sleep)),
}


@pytest.mark.parametrize("way", WAITS)
def test_six_waits_of_two_seconds_take_twelve(way: str) -> None:
    began = time.monotonic()
    with simulated() as clock:
        for _ in range(6):
            WAITS[way]()
        assert time.time() - EPOCH_S == pytest.approx(12, abs=1e-3)
        assert clock.now_ns == pytest.approx(12 * S, abs=S // 1000)
    assert time.monotonic() - began < 5


def test_waits_that_end_early_and_other_processes_take_no_time() -> None:
    with simulated() as clock:
        event, items = threading.Event(), queue.Queue[int]()
        event.set()
        items.put(1)
        assert event.wait(5)
        assert items.get(timeout=5) == 1
        # A thread that computes takes the host's time, and ends the wait.
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(sum, [1, 2]).result(timeout=60) == 3
        run = subprocess.run(["echo", "1"], timeout=60, capture_output=True)
        assert run.stdout == b"1\n"
        shared = multiprocessing.Queue()
        shared.put(1)
        assert shared.get(timeout=60) == 1
        assert clock.now_ns == 0


def _sleep_itself(note: Callable[[str], None]) -> None:
    """``time.sleep`` as what a thread, a pool and a coroutine call."""
    thread = threading.Thread(target=time.sleep, args=(2,))
    thread.start()
    thread.join()
    note("a")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(time.sleep, 1).result()
        note("b")
    asyncio.run(asyncio.wait_for(asyncio.to_thread(time.sleep, 2), 60))
    note("c")


def _pass_items(note: Callable[[str], None]) -> None:
    """A thread makes an item every 2 s, and another one consumes them."""
    items = queue.Queue[str]()

    def make() -> None:
        for item in "abc":
            imported_sleep(2)
            items.put(item)

    def consume() -> None:
        for _ in "abc":
            note(items.get())

    threads = [threading.Thread(target=target) for target in (consume, make)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _take_turns(note: Callable[[str], None]) -> None:
    """A timer, a barrier, and a thread that the main one does not wait for long enough."""
    barrier = threading.Barrier(2)
    threading.Timer(2, lambda: (barrier.wait(), note("a"))).start()
    barrier.wait()
    thread = threading.Thread(target=lambda: (time.sleep(3), note("c")))
    thread.start()
    thread.join(1)
    note("b")
    assert thread.is_alive()
    thread.join()
    assert not thread.is_alive()


def _contend(note: Callable[[str], None]) -> None:
    """Two threads that sleep while they hold a lock, and a third one that gives up."""
    lock, patient = threading.RLock(), threading.Lock()

    def sleep(name: str) -> None:
        with patient, lock, lock:
            time.sleep(2)
            note(name)

    def give_up() -> None:
        assert not patient.acquire(timeout=3)
        note("b")

    with ThreadPoolExecutor() as pool:
        pool.submit(sleep, "a")
        pool.submit(sleep, "c")
        assert pool.submit(give_up).exception() is None


def _gather(note: Callable[[str], None]) -> None:
    """Blocking calls of a coroutine."""

    def block(name: str, seconds: float) -> None:
        time.sleep(seconds)
        note(name)

    async def main() -> None:
        blocking = (asyncio.to_thread(block, name, s) for name, s in (("b", 3), ("a", 2)))
        await asyncio.gather(*blocking, asyncio.sleep(1))
        await asyncio.sleep(2)
        note("c")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("way", "times"),
    [
        (_sleep_itself, {"a": 2, "b": 3, "c": 5}),
        (_pass_items, {"a": 2, "b": 4, "c": 6}),
        (_take_turns, {"a": 2, "b": 3, "c": 5}),
        (_contend, {"a": 2, "b": 3, "c": 4}),
        (_gather, {"a": 2, "b": 3, "c": 5}),
    ],
)
def test_threads_of_the_app_take_turns(
    way: Callable[[Callable[[str], None]], None], times: dict[str, int]
) -> None:
    began = time.monotonic()
    seen: dict[str, float] = {}
    with simulated():
        way(lambda name: seen.update({name: time.monotonic()}))
    assert {name: pytest.approx(at, abs=1e-3) for name, at in seen.items()} == times
    assert list(seen) == sorted(times)
    assert time.monotonic() - began < 5


def test_threads_of_libraries_keep_the_time_of_the_host() -> None:
    real, seen = time.time(), []
    path = f"{sysconfig.get_path('purelib')}/library.py"
    library: dict[str, Any] = {"__name__": "library"}
    code = "def run(thread, event):\n    thread.start()\n    return event.wait(60)"
    exec(compile(code, path, "exec"), library)

    def work(event: threading.Event) -> None:
        time.sleep(0.1)
        seen.append(time.time())
        event.set()

    def call() -> None:
        event = threading.Event()
        assert library["run"](threading.Thread(target=work, args=(event,)), event)

    with simulated() as clock:
        call()
        with ThreadPoolExecutor() as pool:
            assert [one.result() for one in [pool.submit(call) for _ in range(2)]] == [None, None]
        assert clock.now_ns == 0
    assert seen == [pytest.approx(real, abs=60)] * 3


def test_every_clock_is_simulated() -> None:
    with simulated():
        time.sleep(86_400)
        assert datetime.date.today() == datetime.date(2026, 1, 2)
        assert time.gmtime()[:5] == (2026, 1, 2, 0, 0)
        assert pd.Timestamp.now("UTC") == pd.Timestamp("2026-01-02", tz="UTC")
        assert time.gmtime(0)[:3] == (1970, 1, 1)
        assert time.localtime()[:1] == (2026,)
        assert "2026" in time.ctime()
        assert time.strftime("%Y") == "2026"
        assert time.strftime("%Y", time.gmtime(0)) == "1970"
        assert time.clock_gettime(time.CLOCK_REALTIME) == EPOCH_S + 86_400
        assert time.clock_gettime_ns(time.CLOCK_MONOTONIC) == 86_400 * S
        assert time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) < 80_000
        assert isinstance(datetime.date(2020, 1, 1), datetime.date)
        assert type(datetime.date(2020, 1, 1)) is type(datetime.datetime(2020, 1, 1).date())


def test_sleeps_of_a_node_do_not_pass_on_the_host() -> None:
    with simulated() as clock, on_node() as node:
        began, began_at = time.monotonic(), datetime.datetime.now()
        time.sleep(30)
        imported_sleep(0.5)
        assert node.now_ns == 30 * S + S // 2
        assert 30.5 <= time.monotonic() - began < 35
        assert 30.5 <= (datetime.datetime.now() - began_at).total_seconds() < 35
        with thread_on(clock):
            assert clock.now_ns == 0


@pytest.mark.parametrize("way", WAITS)
def test_waits_of_a_node_take_the_time_that_they_are_given(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    host_ns = clocks._MONOTONIC_NS
    monkeypatch.setattr(clocks, "_MONOTONIC_NS", lambda: 50 * host_ns())
    with simulated() as clock, on_node() as node:
        WAITS[way]()
        assert node.now_ns == 2 * S
        assert clock.now_ns == 0


def test_waits_of_a_node_that_the_host_ends_take_no_time() -> None:
    """A pool of an earlier message works on the host."""
    with simulated(), on_node():
        pool = ThreadPoolExecutor(1)
        pool.submit(time.sleep, 1).result()
    with simulated(), on_node() as node:
        assert pool.submit(lambda: time.sleep(0.1) or 1).result(timeout=60) == 1
        assert node.now_ns == 0
        pool.shutdown()


def test_waits_of_libraries_are_real() -> None:
    """A library in the ServerApp's thread, such as a loader of data, sees its timeout pass on the host."""
    library: dict[str, object] = {"__name__": "torch.utils.data", "queue": queue}
    exec("def get():\n    return queue.Queue().get(timeout=0.05)", library)
    with simulated() as clock:
        with pytest.raises(queue.Empty):
            library["get"]()  # type: ignore[operator]
        assert clock.now_ns == 0
