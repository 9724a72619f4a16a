"""Simulated time for the threads of an app: one at a time, in a fixed order.

A thread runs until it waits: for replies, for simulated time to pass, or for another thread. Then the next one runs, in
the order in which they were started, and simulated time passes when all of them wait. So only the main thread, which
resumes the others while it waits itself, lets events happen, and the same run gives the same bits.

A ClientApp is on the clock of its node: it reads the host's clock, as a program that measures itself expects, but
sleeps and waits in its node's simulated time.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Protocol

from fedsim.errors import FedsimError, UserError
from fedsim.units import NEVER, NS_PER_S

EPOCH_S = 1_767_225_600
"""Value of ``time.time()`` at the start of every run: 1 January 2026, 0:00 UTC."""
EPOCH_NS = {"time": EPOCH_S * NS_PER_S, "monotonic": 0, "perf_counter": 0}
"""What the clocks of ``time`` show at the start."""
_HOST_NS = {kind: getattr(time, f"{kind}_ns") for kind in EPOCH_NS}
_SLEEP, _MONOTONIC_NS = time.sleep, time.monotonic_ns
_EXACT_NS = NS_PER_S >> 9
"""2**-9 s: a double holds the sum of a multiple of it and a usual duration exactly."""
_LOOK_S = 0.001
"""Seconds of the host between two looks of a ClientApp that waits."""
_PATIENCE, _TICK_NS = 100_000, 10_000_000
"""Readings at one instant after which each further one advances time by a tick: the app is polling, not sleeping."""
_current = threading.local()
Done = Callable[[], bool]


def never() -> bool:
    """The condition of a sleep."""
    return False


class RunEnded(BaseException):
    """A limit of ``stop`` has been reached; unwinds the ServerApp, which must not catch it."""


class TimePlane(Protocol):
    """What lets simulated time pass: the exchange, or a :class:`Node`."""

    @property
    def now_ns(self) -> int:
        """Simulated nanoseconds since the start."""

    def run_until(self, done: Done, until_ns: int) -> None:
        """Let simulated time pass until ``done`` holds or the time is up."""


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

    def main(self, clock: SimulatedClock, call: Callable[[], None]) -> None:
        """Make the call in the thread."""
        _current.thread = self
        self._turn.acquire()
        try:
            if not self.stopped:
                with thread_on(clock):
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


class SimulatedClock:
    """The clock of a ServerApp, or of a ClientApp while it handles a message, and the turns of their threads.

    Args:
        plane: lets time pass.
        pass_ns: lets simulated time pass for the calling thread, for so many nanoseconds or until a condition holds.
        start_ns: what the clocks of ``time`` show at the start; None for what those of the host show.

    Attributes:
        threads: threads that take turns with the main one, and have not ended.
        is_over: whether its threads that are left wait on the host.
        of_waits: the clock that the standard library reads to wait.
    """

    is_over = False

    def __init__(
        self,
        plane: TimePlane,
        pass_ns: Callable[[int, Done], None],
        start_ns: Mapping[str, int] | None = EPOCH_NS,
    ) -> None:
        self._plane = plane
        self._pass_ns = pass_ns
        self._start_ns = start_ns
        self._main = threading.get_ident()
        self.threads: list[_Thread] = []
        self._read_at_ns = -1
        self._readings = 0
        self.of_waits = self
        if start_ns is None:
            # For the standard library no time passes on the host, so that its waits are exact.
            self.of_waits = copy.copy(self)
            self.of_waits._start_ns = {
                kind: read_ns() // _EXACT_NS * _EXACT_NS for kind, read_ns in _HOST_NS.items()
            }

    # -- the time -----------------------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Simulated nanoseconds since the start."""
        return self._plane.now_ns

    def reading_ns(self, kind: str) -> int:
        """What a clock of ``time`` shows: ``time``, ``monotonic`` or ``perf_counter``."""
        began_ns: int = _HOST_NS[kind]() if self._start_ns is None else self._start_ns[kind]
        return began_ns + self.now_ns

    def unix_s(self) -> float:
        """Simulated seconds since 1970."""
        return self.reading_ns("time") / NS_PER_S

    def note_reading(self) -> None:
        """Note that the app reads the time; if it only does that many times in a row, time advances."""
        if self._start_ns is None:
            return  # The host's time passes by itself.
        if not self.was_read():
            self._readings = 0
        self._readings += 1
        if self._readings > _PATIENCE:
            self.pass_ns(_TICK_NS)
        self._read_at_ns = self.now_ns

    def was_read(self) -> bool:
        """Whether the app has read the time at the current instant."""
        return self._read_at_ns == self.now_ns

    def pass_ns(self, duration_ns: int, done: Done = never) -> None:
        """Let simulated time pass for the calling thread."""
        self._pass_ns(duration_ns, done)

    def wait_for(self, done: Done, timeout: float | None) -> None:
        """Let simulated time pass until a condition holds or the timeout has passed."""
        self.pass_ns(NEVER if timeout is None else round(timeout * NS_PER_S), done)

    # -- the threads --------------------------------------------------------------------------------------------------

    @property
    def is_served(self) -> bool:
        """Whether the calling thread takes turns with the main one."""
        return hasattr(_current, "thread")

    @property
    def is_pooled(self) -> bool:
        """Whether the calling thread is one of the pool of Flower's older server."""
        return self.is_served and bool(_current.thread.is_pooled)

    @property
    def is_foreign(self) -> bool:
        """Whether the calling thread is on host time."""
        return threading.get_ident() != self._main and not self.is_served

    def serve(
        self, thread: threading.Thread, call: Callable[[], None], *, is_pooled: bool = False
    ) -> None:
        """Let a thread that has not started take turns; it makes the call."""
        served = _Thread(thread, is_pooled=is_pooled)
        self.threads.append(served)
        thread.run = functools.partial(served.main, self, call)  # type: ignore[method-assign]

    def leave(self) -> bool:
        """Let the calling thread, which takes turns, wait on the host if the run has ended; whether it does."""
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
        """Let simulated time pass until ``done`` holds or the time is up; raises as :meth:`check_in`."""
        self.check_in()
        if self.is_served:
            if not done():
                _current.thread.wait(done, until_ns)
            return
        try:
            while True:
                for thread in list(self.threads):
                    if self._is_ready(thread):
                        self._resume(thread)
                self._plane.run_until(
                    lambda: done() or any(map(self._is_ready, self.threads)),
                    min([until_ns, *(each.until_ns for each in self.threads)]),
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
            self.threads.remove(thread)
        if thread.ended:
            thread.thread.join()  # So that it is not alive for the others.
        if thread.error is not None and not stopped:
            raise thread.error

    def stop(self) -> None:
        """Unwind all threads, one after another."""
        while self.threads:
            self._resume(self.threads[0], stopped=True)

    def concurrent(self, on_joined: Callable[[], None]) -> Any:
        """The module ``concurrent`` for Flower's older server, which sends each message from a thread of a pool.

        ``on_joined`` is called when all threads of a pool have ended.
        """
        clock, finished = self, list[Future[Any]]()

        class Executor(contextlib.nullcontext[Any]):
            def __init__(self, max_workers: int | None = None) -> None:
                super().__init__(self)

            def submit(self, function: Any, *args: Any) -> Future[Any]:
                future: Future[Any] = Future()

                def call() -> None:
                    try:
                        future.set_result(function(*args))
                    except Exception as error:
                        future.set_exception(error)
                    finished.append(future)

                thread = threading.Thread(daemon=True)
                clock.serve(thread, call, is_pooled=True)
                thread.start()
                return future

        def wait(fs: Iterable[Future[Any]], timeout: object = None) -> tuple[list[Any], set[Any]]:
            """Run the submitted calls; the finished futures are in the order in which they finished."""
            clock.wait(lambda: all(future.done() for future in fs))
            on_joined()
            ordered, finished[:] = finished[:], []
            return ordered, set()

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

    def pass_ns(span_ns: int, done: Done) -> None:
        if done is never and not clock.threads:
            node.now_ns += span_ns
        else:
            clock.wait(done, node.now_ns + span_ns)

    clock = SimulatedClock(node, pass_ns, start_ns=None)
    try:
        with thread_on(clock):
            yield node
    finally:
        clock.stop()
        clock.is_over = True


@contextlib.contextmanager
def thread_on(clock: SimulatedClock | None) -> Iterator[None]:
    """Run the calling thread on a clock; None is the host's, for work that is not the ServerApp's."""
    before = getattr(_current, "clock", None)
    _current.clock = clock
    try:
        yield
    finally:
        _current.clock = before


def clock_here() -> SimulatedClock | None:
    """The clock of the calling thread; None for the host's, as for a thread that has outlived its message."""
    clock: SimulatedClock | None = getattr(_current, "clock", None)
    return None if clock is None or clock.is_over else clock
