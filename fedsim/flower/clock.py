"""Simulated time for the ServerApp, and for the sleeps of ClientApps.

While :meth:`SimulatedClock.installed` lasts, the clocks of ``time``, ``datetime.now`` and ``date.today``,
``time.sleep``, and waits with a timeout (locks, events, queues, futures, ``select``, ``asyncio``) use simulated time,
in the threads that :func:`thread_on` names and for code outside the standard library. All other threads and the rest
of the standard library, such as logging, keep the time of the host.

A ClientApp reads the host's clock, as a program that measures itself expects, but sleeps in its node's simulated time:
see :func:`on_node`.
"""

from __future__ import annotations

import contextlib
import datetime
import select
import selectors
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FrameType, ModuleType
from typing import Any

from fedsim.errors import UserError
from fedsim.units import NS_PER_S

EPOCH_S = 1_767_225_600
"""Value of ``time.time()`` at the start of every run: 1 January 2026, 0:00 UTC."""
_EPOCH_NS = {"time": EPOCH_S * NS_PER_S, "monotonic": 0, "perf_counter": 0}
_HOST = {name: getattr(time, name) for name in ("sleep", "time", "monotonic", "perf_counter")}
_HOST |= {f"{name}_ns": getattr(time, f"{name}_ns") for name in _EPOCH_NS}
_HOST_DATETIME = datetime.datetime
_HOST_DATE = datetime.date
_HOST_WAIT, _HOST_START = threading.Condition.wait, threading.Thread.start
_HOST_SELECT, _HOST_POLL = select.select, selectors.DefaultSelector.select
_KEPT = frozenset(sys.stdlib_module_names) | {"fedsim", "simpy", "ray"}
"""Packages that keep the host's time."""
_WAITING = frozenset({"threading", "queue", "concurrent", "asyncio"})
"""Packages of the standard library that read the time to wait for those who call them."""
_NOT_APPS = frozenset({"fedsim", "simpy", "ray", "flwr", "grpc", "torch"})
"""Packages whose own waits are real."""
_PATCHED = ("time", "timeit", "datetime", "select", "queue", "threading", "__main__")
"""Modules of the standard library whose own names are replaced, for code that calls them as ``time.time()``."""
_PATIENCE, _TICK_NS = 100_000, 10_000_000
"""Readings at one instant after which each further one advances time by a tick: the app is polling, not sleeping."""
_current = threading.local()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Threads that the ServerApp has started, which keep the host's time."""


class Node:
    """The time that a ClientApp has slept while it handles a message.

    Attributes:
        slept_ns: simulated nanoseconds.
    """

    slept_ns = 0


def _apps_frame(frame: FrameType | None) -> FrameType | None:
    """The first frame outside the standard library if it is the app's own code; None otherwise."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if package not in sys.stdlib_module_names or module == "__main__":
            return None if package in _NOT_APPS else frame
        frame = frame.f_back
    return None


def _not_simulated(what: str, frame: FrameType) -> UserError:
    return UserError(
        f"{what} does not wait in simulated time",
        where=f"{frame.f_code.co_filename}:{frame.f_lineno}",
        hint="wait in the ServerApp's own thread, with time.sleep or with a timeout",
    )


def _node() -> Node | None:
    """The node whose ClientApp the calling thread runs, if the calling module is the app's."""
    node: Node | None = getattr(_current, "node", None)
    package = sys._getframe(2).f_globals.get("__name__", "").partition(".")[0]
    return None if package in _KEPT and package != "__main__" else node


def _clock(*, reads: bool = True) -> SimulatedClock | None:
    """The clock of the calling thread and module; None for the host's.

    Args:
        reads: whether the module reads the time now.
    """
    clock: SimulatedClock | None = getattr(_current, "clock", None)
    if clock is None:
        return None
    caller = sys._getframe(2)
    module = caller.f_globals.get("__name__", "")
    package = module.partition(".")[0]
    if package in _WAITING:
        return clock if _apps_frame(caller) else None
    if package in _KEPT and module != "__main__":
        return None
    # Flower itself reads the time only to stamp messages.
    if reads and package != "flwr":
        clock.note_reading()
    return clock


def _reading(name: str) -> Callable[[], float]:
    host: Callable[[], float] = _HOST[name]
    start_ns = _EPOCH_NS[name.removesuffix("_ns")]
    whole = name.endswith("_ns")

    def read() -> float:
        clock, node = _clock(), _node()
        if clock is None:
            slept_ns = node.slept_ns if node else 0
            return host() + (slept_ns if whole else slept_ns / NS_PER_S)
        now_ns = start_ns + clock.now_ns()
        return now_ns if whole else now_ns / NS_PER_S

    read.__name__ = name
    return read


def _sleep(seconds: float) -> None:
    clock, node = _clock(reads=False), _node()
    if clock is None and node is None:
        frame = _apps_frame(sys._getframe(1))
        if frame is not None and threading.current_thread() in _threads:
            raise _not_simulated("a thread of the ServerApp that sleeps", frame)
        _HOST["sleep"](seconds)
        return
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    duration_ns = round(seconds * NS_PER_S)
    if clock is not None:
        clock.sleep_ns(duration_ns)
    elif node is not None:
        node.slept_ns += duration_ns


def _pass_ns(timeout: float | None) -> Callable[[], None] | None:
    """Lets simulated time pass for a wait of the app's; None if the wait is real."""
    clock: SimulatedClock | None = getattr(_current, "clock", None)
    if clock is None or timeout is None or timeout <= 0 or not _apps_frame(sys._getframe(2)):
        return None
    return lambda: clock.sleep_ns(round(timeout * NS_PER_S))


def _busy() -> bool:
    """Whether threads of the app are at work, which take the host's time and may end a wait."""
    return any(thread.is_alive() for thread in _threads)


def _wait(self: threading.Condition, timeout: float | None = None) -> bool:
    """``Condition.wait``, by which events, queues and futures wait."""
    pass_time = _pass_ns(timeout)
    if pass_time is None or _busy():
        notified = _HOST_WAIT(self, timeout)
        if notified or pass_time is None:
            return notified
    saved = self._release_save()  # type: ignore[attr-defined]
    try:
        pass_time()
    finally:
        self._acquire_restore(saved)  # type: ignore[attr-defined]
    return False


def _select(readable: Any, writable: Any, other: Any, timeout: float | None = None, /) -> Any:
    """``select.select``."""
    pass_time = _pass_ns(timeout)
    if pass_time is None:
        return _HOST_SELECT(readable, writable, other, timeout)
    ready = _HOST_SELECT(readable, writable, other, 0)
    if not any(ready):
        pass_time()
        ready = _HOST_SELECT(readable, writable, other, 0)
    return ready


def _poll(self: selectors.DefaultSelector, timeout: float | None = None) -> Any:
    """``DefaultSelector.select``, by which the event loops of ``asyncio`` wait."""
    module = sys._getframe(1).f_globals.get("__name__", "")
    pass_time = _pass_ns(timeout) if module.startswith("asyncio.") else None
    if pass_time is None:
        return _HOST_POLL(self, timeout)
    ready = _HOST_POLL(self, timeout if _busy() else 0)
    if not ready:
        pass_time()
        ready = _HOST_POLL(self, 0)
    return ready


def _start(self: threading.Thread) -> None:
    """``Thread.start``, which notes threads of the app."""
    frame = _apps_frame(sys._getframe(1))
    if getattr(_current, "clock", None) is not None and frame is not None:
        if isinstance(self, threading.Timer):
            raise _not_simulated("threading.Timer", frame)
        _threads.add(self)
    _HOST_START(self)


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


def _clock_gettime(identifier: int) -> float:
    clock = _clock()
    if clock is None:
        return float(_CLOCK_GETTIME(identifier))
    start_s = EPOCH_S if identifier == time.CLOCK_REALTIME else 0
    return start_s + clock.now_ns() / NS_PER_S


_LOCALTIME, _CLOCK_GETTIME = time.localtime, time.clock_gettime


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
        clock, node = _clock(), _node()
        if clock is None:
            slept_s = node.slept_ns / NS_PER_S if node else 0
            return _HOST_DATETIME.now(tz) + datetime.timedelta(seconds=slept_s)
        return _HOST_DATETIME.fromtimestamp(clock.unix_s(), tz)

    @classmethod
    def today(cls) -> Any:
        clock = _clock()
        return _HOST_DATETIME.fromtimestamp(clock.unix_s()) if clock else _HOST_DATETIME.today()

    @classmethod
    def utcnow(cls) -> Any:
        clock = _clock()
        moment = clock.unix_s() if clock else _HOST["time"]()
        return _HOST_DATETIME.fromtimestamp(moment, datetime.UTC).replace(tzinfo=None)


_STAND_INS: dict[Any, Any] = {_HOST[name]: _reading(name) for name in _HOST if name != "sleep"}
_STAND_INS |= {_HOST["sleep"]: _sleep, _HOST_DATETIME: _Datetime, _HOST_DATE: _Date}
_STAND_INS |= {getattr(time, name): _of_moment(name) for name in ("localtime", "gmtime", "ctime")}
_STAND_INS |= {time.strftime: _of_moment("strftime"), time.clock_gettime: _clock_gettime}
_STAND_INS |= {select.select: _select}
_METHODS: tuple[tuple[type, str, Any], ...] = (
    (threading.Condition, "wait", _wait),
    (threading.Thread, "start", _start),
    (selectors.DefaultSelector, "select", _poll),
)


class SimulatedClock:
    """The clock of one run.

    Args:
        now_ns: returns simulated nanoseconds since the start.
        sleep_ns: lets simulated time pass.
    """

    def __init__(self, now_ns: Callable[[], int], sleep_ns: Callable[[int], None]) -> None:
        self.now_ns = now_ns
        self.sleep_ns = sleep_ns
        self._read_at_ns = -1
        self._readings = 0

    def note_reading(self) -> None:
        """Note that the app reads the time; if it only does that many times in a row, time advances."""
        if not self.was_read():
            self._readings = 0
        self._readings += 1
        if self._readings > _PATIENCE:
            self.sleep_ns(_TICK_NS)
        self._read_at_ns = self.now_ns()

    def was_read(self) -> bool:
        """Whether the app has read the time at the current instant."""
        return self._read_at_ns == self.now_ns()

    def unix_s(self) -> float:
        """Simulated seconds since 1970."""
        return EPOCH_S + self.now_ns() / NS_PER_S

    @staticmethod
    @contextlib.contextmanager
    def installed() -> Iterator[None]:
        """Replace the functions that read the time or wait, wherever imported, by ones that know the clocks of threads.

        Names imported during this time keep these functions, which afterward read the host's time.
        """
        replaced: list[tuple[Any, str, Any]] = []
        for owner, method, stand_in in _METHODS:
            replaced.append((owner, method, getattr(owner, method)))
            setattr(owner, method, stand_in)
        for name, module in list(sys.modules.items()):
            keeps = name.partition(".")[0] in _KEPT and name not in _PATCHED
            if keeps or not isinstance(module, ModuleType):
                continue
            for key, value in list(vars(module).items()):
                # Compared by identity, because == may do anything for unknown objects.
                if type(value) in (BuiltinFunctionType, type) and id(value) in _IDS:
                    replaced.append((module, key, value))
                    setattr(module, key, _STAND_INS[value])
        try:
            yield
        finally:
            for holder, key, value in replaced:
                setattr(holder, key, value)


_IDS = frozenset(map(id, _STAND_INS))


@contextlib.contextmanager
def thread_on(clock: SimulatedClock | None) -> Iterator[None]:
    """Run the calling thread on a clock; None is the host's, for work that is not the ServerApp's."""
    before = getattr(_current, "clock", None)
    _current.clock = clock
    try:
        yield
    finally:
        _current.clock = before


@contextlib.contextmanager
def on_node() -> Iterator[Node]:
    """Run a ClientApp on the calling thread: the time that it sleeps is noted, and does not pass on the host."""
    before = getattr(_current, "node", None)
    _current.node = node = Node()
    try:
        yield node
    finally:
        _current.node = before
