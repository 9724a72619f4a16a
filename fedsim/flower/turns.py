"""Threads of a ServerApp in simulated time: one at a time, in a fixed order.

A thread runs until it waits: for replies, for simulated time to pass, or for another thread. Then the next one runs, in
the order in which they were started, and simulated time passes when all of them wait. So only the main thread, which
resumes the others while it waits itself, lets events happen, and the same run gives the same bits.

Flower's older server sends each message from a thread of a pool, for which :meth:`Turns.concurrent` stands in.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Protocol

from typing_extensions import override

from fedsim.errors import FedsimError, UserError
from fedsim.flower.clock import Done, NodeClock, RunEnded, SimulatedClock, Threads, never, thread_on
from fedsim.units import NEVER

_current = threading.local()
_SLEEP, _MONOTONIC_NS = time.sleep, time.monotonic_ns
_LOOK_S = 0.001
"""Seconds of the host between two looks of a ClientApp that waits."""


class _Thread:
    """A thread that runs only while :meth:`resume` waits for it.

    Attributes:
        thread: the thread.
        is_pooled: whether it sends one message for Flower's older server.
        done, until_ns: the condition and the time for which it waits.
        stopped: whether the run has ended.
        left: whether it takes no more turns, because it has ended or waits on the host.
        ended: whether its call has returned.
        error: fedsim's error that ended it.
    """

    def __init__(self, thread: threading.Thread, *, is_pooled: bool) -> None:
        self.thread, self.is_pooled = thread, is_pooled
        self.done: Done = lambda: True
        self.until_ns = NEVER
        self.stopped = self.left = self.ended = False
        self.error: FedsimError | None = None
        self._turn, self._back = threading.Lock(), threading.Lock()
        self._turn.acquire()
        self._back.acquire()

    def main(self, call: Callable[[], None]) -> None:
        """Make the call in the thread."""
        _current.thread = self
        self._turn.acquire()
        try:
            if not self.stopped:
                call()
        except RunEnded:
            pass
        except FedsimError as error:
            self.error = error
        finally:
            self.ended = True
            self.leave()

    def leave(self) -> None:
        """Called in the thread: take no more turns."""
        if not self.left:
            self.left = True
            self._back.release()

    def resume(self, *, stopped: bool = False) -> None:
        """Let the thread run until it waits again, or leaves."""
        self.stopped = stopped
        if self._turn.locked():  # It is not if Ctrl-C has interrupted an earlier turn.
            self._turn.release()
        self._back.acquire()

    def wait(self, done: Done, until_ns: int) -> None:
        """Called in the thread: wait for simulated time to pass."""
        self.done, self.until_ns = done, until_ns
        self._back.release()
        self._turn.acquire()
        if self.stopped:
            raise RunEnded


class TimePlane(Protocol):
    """What lets simulated time pass: the exchange, or a :class:`Node`."""

    @property
    def now_ns(self) -> int:
        """Simulated nanoseconds since the start."""

    def run_until(self, done: Done, until_ns: int) -> None:
        """Let simulated time pass until ``done`` holds or the time is up."""


class Turns(Threads):
    """Waits for simulated time on behalf of all threads of a ServerApp.

    Args:
        exchange: that whose time passes.
    """

    def __init__(self, exchange: TimePlane) -> None:
        self._exchange = exchange
        self._main = threading.get_ident()
        self._threads: list[_Thread] = []

    @property
    @override
    def now_ns(self) -> int:
        return self._exchange.now_ns

    @property
    @override
    def is_served(self) -> bool:
        return hasattr(_current, "thread")

    @property
    def is_pooled(self) -> bool:
        """Whether the calling thread is one of the pool of Flower's older server."""
        return self.is_served and bool(_current.thread.is_pooled)

    @property
    def is_foreign(self) -> bool:
        """Whether the calling thread is on host time."""
        return threading.get_ident() != self._main and not self.is_served

    @property
    @override
    def has_threads(self) -> bool:
        return bool(self._threads)

    @override
    def serves(self, thread: threading.Thread) -> bool:
        return any(each.thread is thread for each in self._threads)

    @override
    def serve(self, thread: threading.Thread, call: Callable[[], None]) -> None:
        self._serve(thread, call, is_pooled=False)

    def _serve(
        self, thread: threading.Thread, call: Callable[[], None], *, is_pooled: bool
    ) -> _Thread:
        served = _Thread(thread, is_pooled=is_pooled)
        self._threads.append(served)
        thread.run = functools.partial(served.main, call)  # type: ignore[method-assign]
        return served

    @override
    def leave(self) -> bool:
        thread: _Thread = _current.thread
        if thread.stopped:
            thread.leave()
        return thread.stopped

    def check_in(self) -> None:
        """Called in each thread before it sends messages or waits.

        Raises:
            RunEnded: the run has ended.
            UserError: the calling thread is on host time.
        """
        if self.is_served and _current.thread.stopped:
            raise RunEnded
        if self.is_foreign:
            raise UserError(
                "the grid was used from a thread of a library, which does not wait in simulated time",
                where=threading.current_thread().name,
                hint="start the threads of the ServerApp with threading.Thread, ThreadPoolExecutor or "
                "asyncio.to_thread, in the app's own code",
            )

    def wait(self, done: Done, until_ns: int = NEVER) -> None:
        """Let simulated time pass until ``done`` holds or the time is up.

        Raises:
            RunEnded: the run has ended.
            UserError: the calling thread is on host time.
        """
        self.check_in()
        if self.is_served:
            if not done():
                _current.thread.wait(done, until_ns)
            return

        try:
            while True:
                for thread in list(self._threads):
                    if self._is_ready(thread):
                        self._resume(thread)
                self._exchange.run_until(
                    lambda: done() or any(map(self._is_ready, self._threads)),
                    min([until_ns, *(each.until_ns for each in self._threads)]),
                )
                if done() or self.now_ns >= until_ns:
                    return
        except BaseException:
            # Otherwise a pool of the app, which is left now, would wait for its threads.
            self.stop()
            raise

    def _is_ready(self, thread: _Thread) -> bool:
        return thread.done() or self.now_ns >= thread.until_ns

    def _resume(self, thread: _Thread, *, stopped: bool = False) -> None:
        thread.resume(stopped=stopped)
        if thread.left:
            self._threads.remove(thread)
        if thread.ended:
            thread.thread.join()  # So that it is not alive for the others.
        if thread.error is not None and not stopped:
            raise thread.error

    def stop(self) -> None:
        """Unwind all threads, one after another."""
        while self._threads:
            self._resume(self._threads[0], stopped=True)

    def run_all(self, calls: Iterable[Callable[[], None]], limit: int | None) -> None:
        """Run calls in threads of a pool, at most ``limit`` at once, until all have returned.

        Raises:
            RunEnded: the run has ended.
        """
        rest = list(calls)[::-1]
        running: list[_Thread] = []
        while running or rest:
            while rest and (limit is None or len(running) < limit):
                thread = threading.Thread(daemon=True)
                running.append(self._serve(thread, rest.pop(), is_pooled=True))
                thread.start()
            self.wait(lambda: any(thread.left for thread in running))  # noqa: B023 - called before the loop goes on
            running = [thread for thread in running if not thread.left]

    def concurrent(self, clock: SimulatedClock, on_joined: Callable[[], None]) -> Any:
        """A stand-in for the module ``concurrent``, with ``futures.ThreadPoolExecutor`` and ``futures.wait``.

        ``on_joined`` is called when all threads of a pool have ended.
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
                    with thread_on(clock):
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


class Node:
    """Stands for the exchange while a ClientApp handles a message: only its sleeps and waits let time pass.

    Attributes:
        now_ns: simulated nanoseconds since it began.
    """

    now_ns = 0

    def run_until(self, done: Done, until_ns: int) -> None:
        """Wait on the host, where something else may end the wait, and count the time only if nothing does."""
        began_ns = _MONOTONIC_NS()
        while not done():
            if _MONOTONIC_NS() - began_ns >= until_ns - self.now_ns:
                self.now_ns = max(self.now_ns, until_ns)
                return
            _SLEEP(_LOOK_S)


@contextlib.contextmanager
def on_node() -> Iterator[Node]:
    """Run a ClientApp on the calling thread, on the clock of its node; at the end, its other threads are unwound."""
    node = Node()
    turns = Turns(node)

    def pass_ns(span_ns: int, done: Done) -> None:
        if done is never and not turns.has_threads:
            node.now_ns += span_ns
        else:
            turns.wait(done, node.now_ns + span_ns)

    clock = NodeClock(turns, pass_ns)
    try:
        with thread_on(clock):
            yield node
    finally:
        turns.stop()
        clock.is_over = True
