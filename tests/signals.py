"""Signals in processes that tests start."""

import signal

from fedsim.processes.stopping import SIGNALS


def default_signals() -> None:
    """Handle signals as a process does by default.

    A shell's background jobs ignore SIGINT, ``nohup`` ignores SIGHUP, and what they start would, too.
    """
    for number in (signal.SIGINT, *SIGNALS):
        signal.signal(number, signal.SIG_DFL)
