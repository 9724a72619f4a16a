"""Simulated time for the ServerApp.

While :meth:`SimulatedClock.installed` lasts, ``time.time``, ``monotonic``, ``perf_counter`` (and their ``_ns`` forms),
``time.sleep``, ``timeit.default_timer`` and ``datetime.now`` use simulated time, in the threads that
:func:`thread_on` names and for code outside the standard library. All other threads and the standard library
itself (locks, queues, logging) keep the time of the host.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, ModuleType
from typing import Any

from fedsim.units import NS_PER_S

EPOCH_S = 1_767_225_600
"""Value of ``time.time()`` at the start of every run: 1 January 2026, 0:00 UTC."""
_EPOCH_NS = {"time": EPOCH_S * NS_PER_S, "monotonic": 0, "perf_counter": 0}
_HOST = {name: getattr(time, name) for name in ("sleep", "time", "monotonic", "perf_counter")}
_HOST |= {f"{name}_ns": getattr(time, f"{name}_ns") for name in _EPOCH_NS}
_HOST_DATETIME = datetime.datetime
_KEPT = frozenset(sys.stdlib_module_names) | {"fedsim", "simpy", "ray"}
"""Packages that keep the host's time."""
_PATCHED = ("time", "timeit", "datetime", "__main__")
"""Modules of the standard library whose own names are replaced, for code that calls them as ``time.time()``."""
_PATIENCE, _TICK_NS = 100_000, 10_000_000
"""Readings at one instant after which each further one advances time by a tick: the app is polling, not sleeping."""
_current = threading.local()


def _clock(*, reads: bool = True) -> SimulatedClock | None:
    """The clock of the calling thread and module; None for the host's.

    Args:
        reads: whether the module reads the time now.
    """
    clock: SimulatedClock | None = getattr(_current, "clock", None)
    if clock is None:
        return None
    module = sys._getframe(2).f_globals.get("__name__", "")
    package = module.partition(".")[0]
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
        clock = _clock()
        if clock is None:
            return host()
        now_ns = start_ns + clock.now_ns()
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
    clock.sleep_ns(round(seconds * NS_PER_S))


class _Kind(type):
    """The type of a class that stands in for ``datetime``: the same instances and subclasses."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _HOST_DATETIME)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _HOST_DATETIME)


class _Datetime(_HOST_DATETIME, metaclass=_Kind):
    """``datetime``, whose current time may be the simulated one; its instances are plain ``datetime`` objects."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _HOST_DATETIME.__new__(_HOST_DATETIME if cls is _Datetime else cls, *args, **kwargs)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        clock = _clock()
        if clock is None:
            return _HOST_DATETIME.now(tz)
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
_STAND_INS |= {_HOST["sleep"]: _sleep, _HOST_DATETIME: _Datetime}


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

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the functions of ``time`` and ``datetime``, wherever imported, by ones that know this clock.

        Names imported during this time keep these functions, which afterward read the host's time.
        """
        replaced: list[tuple[ModuleType, str, Any]] = []
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
            for module, key, value in replaced:
                setattr(module, key, value)


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
