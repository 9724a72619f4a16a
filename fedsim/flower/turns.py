"""Threads of a ServerApp in simulated time: one at a time, in a fixed order.

Flower's older server sends each message from a thread of a pool and waits for all of them. :class:`Turns` stands in for
the pool: a thread runs until it waits for simulated time to pass, then the next one; time passes when all of them wait.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from fedsim.flower.clock import SimulatedClock, thread_on
from fedsim.flower.exchange import Exchange, RunEnded
from fedsim.units import NEVER

Done = Callable[[], bool]
_current = threading.local()


class _Thread:
    """One call in a thread that runs only while :meth:`resume` waits for it."""

    def __init__(self, call: Callable[[], None], clock: SimulatedClock) -> None:
        self.done: Done = lambda: True
        self.until_ns = NEVER
        self.ended = False
        self._stopped = False
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, args=(call, clock), daemon=True)
        self._thread.start()

    def _main(self, call: Callable[[], None], clock: SimulatedClock) -> None:
        _current.thread = self
        self._turn.acquire()
        with thread_on(clock):
            call()
        self.ended = True
        self._back.release()

    def resume(self, *, stopped: bool = False) -> None:
        """Let the thread run until it waits again, or ends."""
        self._stopped = stopped
        self._turn.release()
        self._back.acquire()

    def wait(self, done: Done, until_ns: int) -> None:
        """Called in the thread: wait for simulated time to pass."""
        self.done, self.until_ns = done, until_ns
        self._back.release()
        self._turn.acquire()
        if self._stopped:
            raise RunEnded


class Turns:
    """Waits for simulated time on behalf of all threads of a ServerApp.

    Args:
        exchange: the exchange whose time passes.
        clock: the clock of the threads.
    """

    def __init__(self, exchange: Exchange, clock: SimulatedClock) -> None:
        self._exchange = exchange
        self.clock = clock
        self._main = threading.get_ident()

    @property
    def is_pooled(self) -> bool:
        """Whether the calling thread is one of a pool."""
        return hasattr(_current, "thread")

    @property
    def is_foreign(self) -> bool:
        """Whether the calling thread is on host time."""
        return threading.get_ident() != self._main and not self.is_pooled

    def wait(self, done: Done, until_ns: int = NEVER) -> None:
        """Let simulated time pass until ``done`` holds or the time is up.

        Raises:
            RunEnded: the run has ended.
        """
        thread: _Thread | None = getattr(_current, "thread", None)
        if thread is None:
            self._exchange.run_until(done, until_ns)
        elif not done():
            thread.wait(done, until_ns)

    def run_all(self, calls: Iterable[Callable[[], None]], limit: int | None) -> None:
        """Run calls in threads, at most ``limit`` at once, until all have returned.

        Raises:
            RunEnded: the run has ended.
        """
        waiting: list[_Thread] = []
        rest = list(calls)[::-1]

        def ready(thread: _Thread) -> bool:
            return thread.done() or self._exchange.now_ns >= thread.until_ns

        def any_ready() -> bool:
            return any(map(ready, waiting))

        try:
            while waiting or rest:
                while rest and (limit is None or len(waiting) < limit):
                    waiting.append(_Thread(rest.pop(), self.clock))
                for thread in [thread for thread in waiting if ready(thread)]:
                    thread.resume()
                waiting = [thread for thread in waiting if not thread.ended]
                if waiting and not any_ready():
                    self.wait(any_ready, min(thread.until_ns for thread in waiting))
        except RunEnded:
            for thread in waiting:
                thread.resume(stopped=True)
            raise

    def concurrent(self, on_joined: Callable[[], None]) -> Any:
        """A stand-in for the module ``concurrent``, with ``futures.ThreadPoolExecutor`` and ``futures.wait``.

        Args:
            on_joined: called when all threads of a pool have ended.
        """
        turns = self
        submitted: dict[Future[Any], tuple[Callable[[], Any], int | None]] = {}

        class Executor(contextlib.nullcontext[Any]):
            def __init__(self, max_workers: int | None = None) -> None:
                super().__init__(self)
                self._limit = max_workers

            def submit(self, function: Any, *args: Any) -> Future[Any]:
                future: Future[Any] = Future()
                submitted[future] = functools.partial(function, *args), self._limit
                return future

        def wait(fs: Iterable[Future[Any]], timeout: object = None) -> tuple[list[Any], set[Any]]:
            """Run the submitted calls; the finished futures are in the order in which they finished."""
            waited, finished = set(fs), []
            ordered = [future for future in submitted if future in waited]
            limit = submitted[ordered[0]][1] if ordered else None

            def call(future: Future[Any]) -> None:
                try:
                    future.set_result(submitted.pop(future)[0]())
                except RunEnded:
                    return
                except Exception as error:
                    future.set_exception(error)
                finished.append(future)

            turns.run_all([functools.partial(call, future) for future in ordered], limit)
            on_joined()
            return finished, set()

        futures = SimpleNamespace(ThreadPoolExecutor=Executor, wait=wait, Future=Future)
        return SimpleNamespace(futures=futures)
