"""Stops a process that receives Ctrl-C, or SIGTERM or SIGHUP from a scheduler or a closed terminal.

By default the signal immediately raises :class:`Stopped`, as Ctrl-C raises ``KeyboardInterrupt``. Work that can reach a
safe point runs inside :func:`grace`: the signal is then noted, and the work ends at its next safe point. A later
signal, or the end of the grace period, raises immediately. Signals that arrive together count as one.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

GRACE_S = 20.0
"""Seconds that work has to reach a safe point; Slurm and Kubernetes kill after 30."""
TOGETHER_S = 0.5
"""Signals within this time of the first count as one: ``timeout`` sends its signal to a process and to its group."""
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(KeyboardInterrupt):
    """The process received a signal to end."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


class Grace:
    """Whether a signal has come while work was under way.

    Args:
        raises: whether a later signal, or the end of the period, raises :class:`Stopped` immediately; otherwise it is
            only noted.

    Attributes:
        requested: the first signal; None until one has come.
        urgent: whether a later signal has been noted, or the period has ended.
    """

    def __init__(self, *, raises: bool = True) -> None:
        self.requested: int | None = None
        self.urgent = False
        self._raises = raises
        self._timer: threading.Timer | None = None

    def note(self, number: int) -> None:
        """Note a signal; the first is raised again at the end of the period.

        Raises:
            Stopped: it is not the first.
        """
        if self.requested is not None:
            if self._raises:
                raise Stopped(number)
            self.urgent = True
            return
        self.requested = number
        if number == signal.SIGINT:
            os.write(2, _HINT)  # Not by print, whose buffer the signal may have interrupted.
        self._timer = threading.Timer(GRACE_S, signal.raise_signal, [number])
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """End the period; no signal is raised again."""
        if self._timer is not None:
            self._timer.cancel()

    def stop_if_requested(self) -> None:
        """End the work, which has reached a safe point.

        Raises:
            Stopped: a signal has come.
        """
        if self.requested is not None:
            raise Stopped(self.requested)


_HINT = b"\nstopping as soon as the work is saved; Ctrl-C again stops at once\n"
_grace: Grace | None = None
_first_s = -math.inf
"""When the first of the latest signals that arrived together came."""


def install() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP raise :class:`Stopped` in this process; for the main thread of a command.

    A signal that is ignored on purpose (``nohup`` ignores SIGHUP) stays ignored, and a program's own handler is kept.
    """
    global _first_s
    _first_s = -math.inf
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, *SIGNALS):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, _on_signal)


@contextlib.contextmanager
def grace(period: Grace) -> Iterator[None]:
    """Note the signals of :func:`install` and Ctrl-C in ``period`` instead of raising immediately.

    A program's own handler for Ctrl-C is kept.
    """
    global _grace
    outer, _grace = _grace, period
    in_main = threading.current_thread() is threading.main_thread()
    takes_ctrl_c = in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if takes_ctrl_c:
        signal.signal(signal.SIGINT, _on_signal)
    try:
        yield
    finally:
        if takes_ctrl_c:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        period.close()
        _grace = outer


def request(number: int) -> None:
    """Stop the work as a signal to this process would.

    Raises:
        Stopped: immediately, outside :func:`grace`.
    """
    if _grace is None:
        raise Stopped(number)
    _grace.requested = number


def _on_signal(number: int, _: FrameType | None) -> None:
    global _first_s
    now = time.monotonic()
    if now - _first_s < TOGETHER_S:
        return
    _first_s = now
    if _grace is None:
        raise Stopped(number)
    _grace.note(number)
