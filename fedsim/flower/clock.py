"""Simulated time for the ServerApp, and for the sleeps of ClientApps.

While :meth:`SimulatedClock.installed` lasts, the clocks of ``time``, ``datetime.now`` and ``date.today``,
``time.sleep``, and waits (conditions, events, queues, futures, ``select``, ``asyncio``) use simulated time, in the
threads that :func:`thread_on` names and for code outside the standard library. Threads that the app starts, itself or
as a pool, are among them: they take turns (:mod:`fedsim.flower.turns`). All other threads and the rest of the standard
library, such as logging, keep the time of the host. Waits for other processes pass there, too: an app that waits out
their timeout is ended, with its line.

A ClientApp is on a :class:`NodeClock`: it reads the host's clock, as a program that measures itself expects, but sleeps
and waits in its node's simulated time.
"""

from __future__ import annotations

import contextlib
import datetime
import inspect
import math
import multiprocessing.connection
import multiprocessing.process
import multiprocessing.queues
import multiprocessing.synchronize
import queue
import sched
import select
import selectors
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any, Protocol

import pandas as pd
from typing_extensions import override

from fedsim.errors import UserError
from fedsim.units import NEVER, NS_PER_S

EPOCH_S = 1_767_225_600
"""Value of ``time.time()`` at the start of every run: 1 January 2026, 0:00 UTC."""
_EPOCH_NS = {"time": EPOCH_S * NS_PER_S, "monotonic": 0, "perf_counter": 0}
_HOST = {name: getattr(time, name) for name in ("sleep", "time", "monotonic", "perf_counter")}
_HOST |= {f"{name}_ns": getattr(time, f"{name}_ns") for name in _EPOCH_NS}
_EXACT_NS = NS_PER_S >> 9
"""2**-9 s: a double holds the sum of a multiple of it and a usual duration exactly."""
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
    "time",
    "timeit",
    "datetime",
    "select",
    "signal",
    "queue",
    "sched",
    "threading",
    "__main__",
)
"""Modules of the standard library whose own names are replaced, for code that calls them as ``time.time()``."""
_PATIENCE, _TICK_NS = 100_000, 10_000_000
"""Readings at one instant after which each further one advances time by a tick: the app is polling, not sleeping."""
_current = threading.local()
_helpers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Threads of libraries in the ServerApp, which keep the host's time."""
Done = Callable[[], bool]


def never() -> bool:
    """The condition of a sleep."""
    return False


class RunEnded(BaseException):
    """A limit of ``stop`` has been reached; unwinds the ServerApp, which must not catch it."""


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


def _clock_here() -> SimulatedClock | None:
    """The clock of the calling thread; None for the host's, as for a thread that has outlived its message."""
    clock: SimulatedClock | None = getattr(_current, "clock", None)
    return None if clock is None or clock.is_over else clock


def _clock(*, reads: bool = True) -> SimulatedClock | None:
    """The clock of the calling thread and module; None for the host's.

    Args:
        reads: whether the module reads the time now.
    """
    clock = _clock_here()
    if clock is None:
        return None
    caller = sys._getframe(2)
    module = caller.f_globals.get("__name__", "")
    package = module.partition(".")[0]
    if package in _WAITING:
        # What a thread or a pool of the app calls is the app's, also time.sleep itself.
        is_apps = _apps_frame(caller) or (not reads and clock.threads.is_served)
        return clock.of_waits if is_apps else None
    if package in _KEPT and module != "__main__":
        return None
    # Flower itself reads the time only to stamp messages.
    if reads and package != "flwr":
        clock.note_reading()
    return clock


def _reading(name: str) -> Callable[[], float]:
    host: Callable[[], float] = _HOST[name]
    kind = name.removesuffix("_ns")
    whole = name.endswith("_ns")

    def read() -> float:
        clock = _clock()
        if clock is None:
            return host()
        now_ns = clock.reading_ns(kind)
        return now_ns if whole else now_ns / NS_PER_S

    read.__name__ = name
    return read


def _sleep(seconds: float) -> None:
    clock = _clock(reads=False)
    if clock is None:
        _HOST["sleep"](seconds)
        return
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    clock.pass_ns(round(seconds * NS_PER_S))


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
    clock = _clock_here()
    if clock is None or (timeout is not None and timeout <= 0):
        return None
    frame = sys._getframe(2)
    is_apps = _apps_frame(frame) is not None
    if is_apps and not _own_frame(frame) and _has_helpers():
        return None
    if clock.threads.is_served:
        return None if not is_apps and clock.threads.leave() else clock
    # Without a timeout, only another thread on the clock can end the wait.
    return clock if is_apps and (timeout is not None or clock.threads.has_threads) else None


def _has_helpers() -> bool:
    """Whether threads of libraries are at work, which take the host's time."""
    return any(thread.is_alive() for thread in _helpers)


def _busy(clock: SimulatedClock) -> bool:
    """Whether only threads at work on the host's time can end a wait."""
    return not clock.threads.has_threads and _has_helpers()


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
        clock.wait(lambda: not waiter.locked(), timeout)
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
    clock.wait(lambda: any(_HOST_SELECT(readable, writable, other, 0)), timeout)
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
            clock.wait(lambda: bool(host(self, 0)), timeout)
            ready = host(self, 0)
        return ready

    return selected


def _timeout_of(host: Callable[..., Any], *args: Any, **kwargs: Any) -> float | None:
    """The timeout of a call: that of the socket, or the argument."""
    if isinstance(args[0], socket.socket):
        return args[0].gettimeout()
    timeout: float | None = inspect.signature(host).bind(*args, **kwargs).arguments.get("timeout")
    return timeout


def _on_host(owner: Any, name: str) -> Callable[..., Any]:
    """A function or method that waits on the host: an app that waits out the timeout is ended, with its line.

    An app that calls a function of a module, whose timeout is not known, is ended at once.
    """
    host, module = getattr(owner, name), getattr(owner, "__module__", owner.__name__)
    is_method = isinstance(owner, type)

    def call(*args: Any, **kwargs: Any) -> Any:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") == module:
            frame = frame.f_back
        if _clock_here() is None or frame is None or _own_frame(frame) is not frame:
            return host(*args, **kwargs)
        timeout = _timeout_of(host, *args, **kwargs) if is_method else None
        began_s = _HOST["monotonic"]()
        try:
            return host(*args, **kwargs) if is_method else None
        finally:
            waited_s = _HOST["monotonic"]() - began_s
            if not is_method or 0 < (timeout or math.inf) * 0.99 <= waited_s:
                raise UserError(
                    f"{owner.__name__}.{name} waits on the host, where no simulated time passes",
                    where=f"{frame.f_code.co_filename}:{frame.f_lineno}",
                    hint="wait with time.sleep, or with a timeout of threading, queue, select.select or asyncio",
                )

    return call


def _start(self: threading.Thread) -> None:
    """``Thread.start``: threads of the app take turns, and those of its libraries are noted."""
    clock = _clock_here()
    starter = sys._getframe(1)
    if clock is not None and _apps_frame(starter):
        own, module = _own_frame(starter), starter.f_globals.get("__name__", "")
        if own is not None and (own is starter or module.startswith(_STARTERS)):
            clock.threads.serve(self, _on(clock, self.run))
        else:
            _helpers.add(self)
    with thread_on(None):
        _HOST_START(self)


def _on(clock: SimulatedClock, call: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        with thread_on(clock):
            call()

    return run


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    """``Thread.join``."""
    clock = _clock_here()
    if clock is None or not clock.threads.serves(self):
        _HOST_JOIN(self, timeout)
    else:
        clock.wait(lambda: not self.is_alive(), timeout)


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
        clock = _clock_here()
        if not blocking or clock is None or (timeout <= 0 and not clock.threads.has_threads):
            return self._lock.acquire(blocking, timeout)
        if _busy(clock) and self._lock.acquire(True, timeout):
            return True
        until_ns = NEVER if timeout < 0 else clock.now_ns() + round(timeout * NS_PER_S)
        while not self._lock.acquire(False):
            if clock.now_ns() >= until_ns:
                return False
            clock.pass_ns(until_ns - clock.now_ns(), lambda: not self.locked())
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


def _of_moment(name: str) -> Callable[..., Any]:
    """A function of ``time`` whose last argument, if it is left out, is the present."""
    host: Callable[..., Any] = getattr(time, name)
    given = 1 if name == "strftime" else 0

    def read(*args: Any) -> Any:
        clock = _clock()
        if clock is None or (len(args) > given and args[given] is not None):
            return host(*args)
        moment = clock.unix_s()
        if name == "strftime":
            return host(args[0], _LOCALTIME(moment))
        return host(moment)

    read.__name__ = name
    return read


def _gettime(name: str) -> Callable[[int], float]:
    """``clock_gettime`` or ``clock_gettime_ns``."""
    host: Callable[[int], float] = getattr(time, name)

    def read(identifier: int) -> float:
        clock = _clock()
        if clock is None or identifier in _OF_CPU:
            return host(identifier)
        kind = "time" if identifier == time.CLOCK_REALTIME else "monotonic"
        now_ns = clock.reading_ns(kind)
        return now_ns if name.endswith("_ns") else now_ns / NS_PER_S

    read.__name__ = name
    return read


_OF_CPU = (time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID)
_LOCALTIME = time.localtime


class _Kind(type):
    """The type of a class that stands in for another, ``host``: the same instances and subclasses."""

    host: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.host)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.host)


class _Date(_HOST_DATE, metaclass=_Kind):
    """``date``, whose present day may be the simulated one; its instances are plain ``date`` objects."""

    host = _HOST_DATE

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _HOST_DATE.__new__(_HOST_DATE if cls is _Date else cls, *args, **kwargs)

    @classmethod
    def today(cls) -> Any:
        clock = _clock()
        return _HOST_DATE.fromtimestamp(clock.unix_s()) if clock else _HOST_DATE.today()


class _Datetime(_HOST_DATETIME, metaclass=_Kind):
    """``datetime``, whose current time may be the simulated one; its instances are plain ``datetime`` objects."""

    host = _HOST_DATETIME

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _HOST_DATETIME.__new__(_HOST_DATETIME if cls is _Datetime else cls, *args, **kwargs)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        clock = _clock()
        return _HOST_DATETIME.fromtimestamp(clock.unix_s(), tz) if clock else _HOST_DATETIME.now(tz)

    @classmethod
    def today(cls) -> Any:
        clock = _clock()
        return _HOST_DATETIME.fromtimestamp(clock.unix_s()) if clock else _HOST_DATETIME.today()

    @classmethod
    def utcnow(cls) -> Any:
        clock = _clock()
        moment = clock.unix_s() if clock else _HOST["time"]()
        return _HOST_DATETIME.fromtimestamp(moment, datetime.UTC).replace(tzinfo=None)


def _timestamp_now(cls: type[pd.Timestamp], tz: Any = None) -> pd.Timestamp:
    clock = _clock()
    return cls.fromtimestamp(clock.unix_s() if clock else _HOST["time"](), tz)


_STAND_INS: dict[Any, Any] = {_HOST[name]: _reading(name) for name in _HOST if name != "sleep"}
_STAND_INS |= {_HOST["sleep"]: _sleep, _HOST_DATETIME: _Datetime, _HOST_DATE: _Date}
_STAND_INS |= {getattr(time, name): _of_moment(name) for name in ("localtime", "gmtime", "ctime")}
_STAND_INS |= {time.strftime: _of_moment("strftime"), time.clock_gettime: _gettime("clock_gettime")}
_STAND_INS |= {time.clock_gettime_ns: _gettime("clock_gettime_ns")}
_STAND_INS |= {_HOST_LOCK: _make_lock, _HOST_RLOCK: _make_rlock}
# Idle threads of a pool wait for work in such a queue, and only the one in Python waits by a condition.
_STAND_INS |= {select.select: _select, queue.SimpleQueue: queue._PySimpleQueue}  # type: ignore[attr-defined]
_STAND_INS |= {select.poll: _on_host(select, "poll"), select.epoll: _on_host(select, "epoll")}
_STAND_INS |= {signal.sigtimedwait: _on_host(signal, "sigtimedwait")}
_FOR_PROCESSES = frozenset({"subprocess", "multiprocessing", "socketserver"})
"""Packages whose selectors wait for other processes."""
_ON_HOST: tuple[tuple[type, str], ...] = (
    (subprocess.Popen, "wait communicate"),
    (multiprocessing.queues.Queue, "get"),
    (multiprocessing.connection.Connection, "poll"),
    (multiprocessing.process.BaseProcess, "join"),
    (multiprocessing.synchronize.Event, "wait"),
    (multiprocessing.synchronize.Condition, "wait"),
    (socket.socket, "accept connect recv recv_into recvfrom"),
)
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
    *((owner, name, _on_host(owner, name)) for owner, names in _ON_HOST for name in names.split()),
)


class Threads(Protocol):
    """The threads on a clock; see :class:`fedsim.flower.turns.Turns`."""

    @property
    def now_ns(self) -> int:
        """Simulated nanoseconds since the start."""

    @property
    def is_served(self) -> bool:
        """Whether the calling thread takes turns with the main one."""

    @property
    def has_threads(self) -> bool:
        """Whether any thread takes turns with the main one."""

    def serves(self, thread: threading.Thread) -> bool:
        """Whether a thread takes turns and has not ended."""

    def serve(self, thread: threading.Thread, call: Callable[[], None]) -> None:
        """Let a thread that has not started take turns; it makes the call."""

    def leave(self) -> bool:
        """Let the calling thread, which takes turns, wait on the host if the run has ended; whether it does."""


class SimulatedClock:
    """The clock of one run.

    Args:
        threads: the threads on this clock.
        pass_ns: lets simulated time pass for the calling thread, for so many nanoseconds or until a condition holds.
        start_ns: what the clocks of ``time`` show at the start.

    Attributes:
        is_over: whether its threads that are left wait on the host.
        of_waits: the clock that the standard library reads to wait.
    """

    is_over = False

    def __init__(
        self,
        threads: Threads,
        pass_ns: Callable[[int, Done], None],
        start_ns: Mapping[str, int] = _EPOCH_NS,
    ) -> None:
        self.threads = threads
        self._pass_ns = pass_ns
        self._start_ns = start_ns
        self.of_waits = self
        self._read_at_ns = -1
        self._readings = 0

    def now_ns(self) -> int:
        """Simulated nanoseconds since the start."""
        return self.threads.now_ns

    def reading_ns(self, kind: str) -> int:
        """What a clock of ``time`` shows: ``time``, ``monotonic`` or ``perf_counter``."""
        return self._start_ns[kind] + self.now_ns()

    def pass_ns(self, duration_ns: int, done: Done = never) -> None:
        """Let simulated time pass for the calling thread."""
        self._pass_ns(duration_ns, done)

    def wait(self, done: Done, timeout: float | None) -> None:
        """Let simulated time pass until a condition holds or the timeout has passed."""
        self.pass_ns(NEVER if timeout is None else round(timeout * NS_PER_S), done)

    def note_reading(self) -> None:
        """Note that the app reads the time; if it only does that many times in a row, time advances."""
        if not self.was_read():
            self._readings = 0
        self._readings += 1
        if self._readings > _PATIENCE:
            self.pass_ns(_TICK_NS)
        self._read_at_ns = self.now_ns()

    def was_read(self) -> bool:
        """Whether the app has read the time at the current instant."""
        return self._read_at_ns == self.now_ns()

    def unix_s(self) -> float:
        """Simulated seconds since 1970."""
        return self.reading_ns("time") / NS_PER_S

    @staticmethod
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


class NodeClock(SimulatedClock):
    """The clock of a ClientApp while it handles a message: that of the host, plus the simulated time that has passed.

    For the standard library, which only waits, no time passes on the host, so that waits are exact.
    """

    def __init__(self, threads: Threads, pass_ns: Callable[[int, Done], None]) -> None:
        super().__init__(threads, pass_ns)
        start_ns = {kind: _HOST[f"{kind}_ns"]() // _EXACT_NS * _EXACT_NS for kind in _EPOCH_NS}
        self.of_waits = SimulatedClock(threads, pass_ns, start_ns)

    @override
    def reading_ns(self, kind: str) -> int:
        host_ns: int = _HOST[f"{kind}_ns"]()
        return host_ns + self.now_ns()

    @override
    def note_reading(self) -> None:
        """Nothing: the host's time passes by itself."""


_IDS = frozenset(map(id, _STAND_INS))
_KINDS = (BuiltinFunctionType, FunctionType, type)
_LOCK = type(_HOST_LOCK())


@contextlib.contextmanager
def thread_on(clock: SimulatedClock | None) -> Iterator[None]:
    """Run the calling thread on a clock; None is the host's, for work that is not the ServerApp's."""
    before = getattr(_current, "clock", None)
    _current.clock = clock
    try:
        yield
    finally:
        _current.clock = before
