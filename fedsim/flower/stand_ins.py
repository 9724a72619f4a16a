"""Functions and classes that read the time or wait, as an app in simulated time sees them.

While :func:`installed` lasts, the clocks of ``time``, ``datetime.now`` and ``date.today``, ``time.sleep``, and waits
(conditions, events, queues, futures, ``select``, ``asyncio``) use simulated time, in the threads that
:func:`~fedsim.flower.clock.thread_on` names and for code outside the standard library. Threads that the app starts,
itself or as a pool, are among them. All other threads and the rest of the standard library, such as logging, keep the
time of the host. Waits for other processes pass there, too.
"""

from __future__ import annotations

import contextlib
import datetime
import inspect
import queue
import sched
import select
import selectors
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

import pandas as pd

from fedsim.flower.clock import EPOCH_NS, RunEnded, SimulatedClock, clock_here, thread_on
from fedsim.units import NEVER, NS_PER_S

_HOST_TIME = time.time
_HOST_DATETIME = datetime.datetime
_HOST_DATE = datetime.date
_HOST_WAIT = threading.Condition.wait
_HOST_START, _HOST_JOIN = threading.Thread.start, threading.Thread.join
_HOST_LOCK, _HOST_RLOCK = threading.Lock, threading.RLock
_HOST_SELECT = select.select
_HOST_SCHEDULER = sched.scheduler.__init__
_KEPT = frozenset(sys.stdlib_module_names) | {"fedsim", "simpy", "ray"}
"""Packages that keep the host's time."""
_WAITING = frozenset({"threading", "queue", "concurrent", "asyncio", "sched"})
"""Packages of the standard library that read the time to wait for those who call them."""
_NOT_APPS = frozenset({"fedsim", "simpy", "ray", "flwr", "grpc", "torch"})
"""Packages whose own waits are real."""
_STARTERS = ("concurrent.futures.thread", "asyncio")
"""Modules of the standard library that start threads for the code of those who call them."""
_LIBRARIES = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
"""Folders of libraries, whose threads keep the host's time."""
_PATCHED = (
    *("time", "timeit", "datetime", "select", "queue", "sched", "threading"),
    "__main__",
)
"""Modules of the standard library whose own names are replaced, for code that calls them as ``time.time()``."""
_helpers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Threads of libraries in the ServerApp, which keep the host's time."""


def _apps_frame(frame: FrameType | None) -> FrameType | None:
    """The first frame outside the standard library if it is the app's own code; None otherwise."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if package not in sys.stdlib_module_names or module == "__main__":
            return None if package in _NOT_APPS else frame
        frame = frame.f_back
    return None


def _own_frame(frame: FrameType | None) -> FrameType | None:
    """As :func:`_apps_frame`, but None for code of the app's libraries."""
    frame = _apps_frame(frame)
    return None if frame and frame.f_code.co_filename.startswith(_LIBRARIES) else frame


def _clock(*, reads: bool = True, depth: int = 2) -> SimulatedClock | None:
    """The clock of the calling thread and module; None for the host's.

    Args:
        reads: whether the module reads the time now.
        depth: how many calls ago the module called.
    """
    clock = clock_here()
    if clock is None:
        return None
    caller = sys._getframe(depth)
    module = caller.f_globals.get("__name__", "")
    package = module.partition(".")[0]
    if package in _WAITING:
        # What a thread or a pool of the app calls is the app's, also time.sleep itself.
        is_apps = _apps_frame(caller) or (not reads and clock.is_served)
        return clock.of_waits if is_apps else None
    if package in _KEPT and module != "__main__":
        return None
    # Flower itself reads the time only to stamp messages.
    if reads and package != "flwr":
        clock.note_reading()
    return clock


def _simulated(host: Callable[..., Any], on_clock: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for ``host`` that calls ``on_clock`` with the clock and the arguments if the caller has a clock."""
    reads = host is not time.sleep

    def call(*args: Any) -> Any:
        clock = _clock(reads=reads)
        return host(*args) if clock is None else on_clock(clock, *args)

    call.__name__ = host.__name__
    return call


def _sleep(clock: SimulatedClock, seconds: float) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    clock.pass_ns(round(seconds * NS_PER_S))


def _gettime_ns(clock: SimulatedClock, identifier: int) -> int:
    if identifier in (time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID):
        return _GETTIME_NS(identifier)
    return clock.reading_ns("time" if identifier == time.CLOCK_REALTIME else "monotonic")


def _at_present(host: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ``time`` whose last argument, if it is left out, is the present."""
    if host is time.strftime:
        return lambda clock, form, moment=None: host(form, moment or _LOCALTIME(clock.unix_s()))
    return lambda clock, moment=None: host(clock.unix_s() if moment is None else moment)


_LOCALTIME, _GETTIME_NS = time.localtime, time.clock_gettime_ns


def _make_scheduler(
    self: sched.scheduler,
    timefunc: Callable[[], float] = time.monotonic,
    delayfunc: Callable[[float], object] = time.sleep,
) -> None:
    """``sched.scheduler``, whose defaults are those at the call: its own are functions of the host."""
    functions = (_STAND_INS.get(function, function) for function in (timefunc, delayfunc))
    _HOST_SCHEDULER(self, *functions)


def _waits_on(timeout: float | None) -> SimulatedClock | None:
    """The clock on which the caller of a function of the standard library waits; None if it waits on the host's."""
    clock = clock_here()
    if clock is None or (timeout is not None and timeout <= 0):
        return None
    frame = sys._getframe(2)
    is_apps = _apps_frame(frame) is not None
    if is_apps and not _own_frame(frame) and _has_helpers():
        return None
    if clock.is_served:
        return None if not is_apps and clock.leave() else clock
    # Without a timeout, only another thread on the clock can end the wait.
    return clock if is_apps and (timeout is not None or clock.threads) else None


def _has_helpers() -> bool:
    """Whether threads of libraries are at work, which take the host's time."""
    return any(thread.is_alive() for thread in _helpers)


def _busy(clock: SimulatedClock) -> bool:
    """Whether only threads at work on the host's time can end a wait."""
    return not clock.threads and _has_helpers()


def _wait(self: threading.Condition, timeout: float | None = None) -> bool:
    """``Condition.wait``, by which events, queues and futures wait."""
    clock = _waits_on(timeout)
    if clock is None:
        return _HOST_WAIT(self, timeout)
    if _busy(clock) and _HOST_WAIT(self, timeout):
        return True
    # As in the standard library: a lock that notify() releases.
    waiter, waiters = threading.Lock(), self._waiters  # type: ignore[attr-defined]
    waiter.acquire()
    waiters.append(waiter)
    saved = self._release_save()  # type: ignore[attr-defined]
    try:
        clock.wait_for(lambda: not waiter.locked(), timeout)
    except RunEnded:
        if _apps_frame(sys._getframe(1)):
            raise
        # An idle thread of a pool goes on waiting, on the host.
    finally:
        self._acquire_restore(saved)  # type: ignore[attr-defined]
        if waiter.locked():
            waiters.remove(waiter)
    return not waiter.locked()


def _select(readable: Any, writable: Any, other: Any, timeout: float | None = None, /) -> Any:
    """``select.select``."""
    clock = _waits_on(timeout)
    if clock is None:
        return _HOST_SELECT(readable, writable, other, timeout)
    clock.wait_for(lambda: any(_HOST_SELECT(readable, writable, other, 0)), timeout)
    return _HOST_SELECT(readable, writable, other, 0)


def _selecting(host: Callable[..., Any]) -> Callable[..., Any]:
    """The method ``select`` of a selector, by which the event loops of ``asyncio`` wait."""

    def selected(self: selectors.BaseSelector, timeout: float | None = None) -> Any:
        package = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        clock = None if package in _FOR_PROCESSES else _waits_on(timeout)
        if clock is None:
            return host(self, timeout)
        ready = host(self, timeout if _busy(clock) else 0)
        if not ready:
            clock.wait_for(lambda: bool(host(self, 0)), timeout)
            ready = host(self, 0)
        return ready

    return selected


def _start(self: threading.Thread) -> None:
    """``Thread.start``: threads of the app take turns, and those of its libraries are noted."""
    clock = clock_here()
    starter = sys._getframe(1)
    if clock is not None and _apps_frame(starter):
        own, module = _own_frame(starter), starter.f_globals.get("__name__", "")
        if own is not None and (own is starter or module.startswith(_STARTERS)):
            clock.serve(self, self.run)
        else:
            _helpers.add(self)
    with thread_on(None):
        _HOST_START(self)


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    """``Thread.join``."""
    clock = clock_here()
    if clock is None or not any(each.thread is self for each in clock.threads):
        _HOST_JOIN(self, timeout)
    else:
        clock.wait_for(lambda: not self.is_alive(), timeout)


class _Lock:
    """A lock of the app: while a thread waits for it, the others take their turns.

    Args:
        host: the lock that it stands for, if a module of the app made one before.
    """

    def __init__(self, host: Any = None) -> None:
        self._lock = host or _HOST_LOCK()
        self.locked, self.release = self._lock.locked, self._lock.release

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As of ``threading.Lock``."""
        clock = clock_here()
        if not blocking or clock is None or (timeout <= 0 and not clock.threads):
            return self._lock.acquire(blocking, timeout)
        if _busy(clock) and self._lock.acquire(True, timeout):
            return True
        until_ns = NEVER if timeout < 0 else clock.now_ns + round(timeout * NS_PER_S)
        while not self._lock.acquire(False):
            if clock.now_ns >= until_ns:
                return False
            clock.pass_ns(until_ns - clock.now_ns, lambda: not self.locked())
        return True

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


def _make_lock() -> Any:
    """``threading.Lock``."""
    return _Lock() if _own_frame(sys._getframe(1)) else _HOST_LOCK()


def _make_rlock() -> Any:
    """``threading.RLock``."""
    if not _own_frame(sys._getframe(1)):
        return _HOST_RLOCK()
    lock = threading._PyRLock()  # type: ignore[attr-defined]
    lock._block = _Lock()
    return lock


def _unix_s() -> float:
    """Seconds since 1970, for the caller of the calling function."""
    clock = _clock(depth=3)
    return _HOST_TIME() if clock is None else clock.unix_s()


class _Kind(type):
    """The type of a class that stands in for another, ``host``: the same instances and subclasses."""

    host: type

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return (cls.host if "host" in vars(cls) else super().__call__)(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.host)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.host)


class _Date(_HOST_DATE, metaclass=_Kind):
    """``date``, whose present day may be the simulated one; its instances are plain ``date`` objects."""

    host = _HOST_DATE

    @classmethod
    def today(cls) -> Any:
        return _HOST_DATE.fromtimestamp(_unix_s())


class _Datetime(_HOST_DATETIME, metaclass=_Kind):
    """``datetime``, whose current time may be the simulated one; its instances are plain ``datetime`` objects."""

    host = _HOST_DATETIME

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _HOST_DATETIME.fromtimestamp(_unix_s(), tz)

    @classmethod
    def today(cls) -> Any:
        return _HOST_DATETIME.fromtimestamp(_unix_s())

    @classmethod
    def utcnow(cls) -> Any:
        return _HOST_DATETIME.fromtimestamp(_unix_s(), datetime.UTC).replace(tzinfo=None)


def _timestamp_now(cls: type[pd.Timestamp], tz: Any = None) -> pd.Timestamp:
    return cls.fromtimestamp(_unix_s(), tz)


_ON_CLOCK: tuple[tuple[Any, Callable[..., Any]], ...] = (
    (time.sleep, _sleep),
    *(
        (getattr(time, f"{kind}_ns"), lambda clock, kind=kind: clock.reading_ns(kind))
        for kind in EPOCH_NS
    ),
    *(
        (getattr(time, kind), lambda clock, kind=kind: clock.reading_ns(kind) / NS_PER_S)
        for kind in EPOCH_NS
    ),
    (time.clock_gettime, lambda clock, which: _gettime_ns(clock, which) / NS_PER_S),
    (time.clock_gettime_ns, _gettime_ns),
    *((one, _at_present(one)) for one in (time.localtime, time.gmtime, time.ctime, time.strftime)),
)
_STAND_INS: dict[Any, Any] = {host: _simulated(host, on_clock) for host, on_clock in _ON_CLOCK}
_STAND_INS |= {_HOST_DATETIME: _Datetime, _HOST_DATE: _Date}
_STAND_INS |= {_HOST_LOCK: _make_lock, _HOST_RLOCK: _make_rlock}
# Idle threads of a pool wait for work in such a queue, and only the one in Python waits by a condition.
_STAND_INS |= {select.select: _select, queue.SimpleQueue: queue._PySimpleQueue}  # type: ignore[attr-defined]
_FOR_PROCESSES = frozenset({"subprocess", "multiprocessing", "socketserver"})
"""Packages whose selectors wait for other processes."""
_METHODS: tuple[tuple[type, str, Any], ...] = (
    (threading.Condition, "wait", _wait),
    (sched.scheduler, "__init__", _make_scheduler),
    (threading.Thread, "start", _start),
    (threading.Thread, "join", _join),
    *(
        (kind, "select", _selecting(kind.select))
        for kind in (selectors.DefaultSelector, selectors.PollSelector, selectors.SelectSelector)
    ),
    *((pd.Timestamp, name, classmethod(_timestamp_now)) for name in ("now", "today")),
)


_IDS = frozenset(map(id, _STAND_INS))
_KINDS = (BuiltinFunctionType, FunctionType, type)
_LOCK = type(_HOST_LOCK())


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Replace the functions that read the time or wait, wherever imported, by ones that know the clocks of threads.

    Names imported during this time keep these functions, which afterward read the host's time.
    """
    replaced: list[tuple[Any, str, Any]] = []
    for owner, method, stand_in in _METHODS:
        replaced.append((owner, method, inspect.getattr_static(owner, method)))
        setattr(owner, method, stand_in)
    for name, module in list(sys.modules.items()):
        keeps = name.partition(".")[0] in _KEPT and name not in _PATCHED
        if keeps or not isinstance(module, ModuleType):
            continue
        own = not str(getattr(module, "__file__", "")).startswith(_LIBRARIES)
        for key, value in list(vars(module).items()):
            # Compared by identity, because == may do anything for unknown objects.
            if type(value) in _KINDS and id(value) in _IDS:
                replaced.append((module, key, value))
                setattr(module, key, _STAND_INS[value])
            elif type(value) is _LOCK and own and name not in _PATCHED[:-1]:
                replaced.append((module, key, value))
                setattr(module, key, _Lock(value))
    try:
        yield
    finally:
        for holder, key, value in replaced:
            setattr(holder, key, value)
