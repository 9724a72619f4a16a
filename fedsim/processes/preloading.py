"""Imports what the processes of a sweep need, in the fork server: the process from which they are forked.

A fork server notices the end of its parent only after its imports, which take seconds. Invariant: during the imports it
ends soon after its parent, and afterward this module leaves no thread, timer or signal handler in it.
"""

from __future__ import annotations

import importlib
import os
import signal
import types

PARENT = "FEDSIM_FORK_SERVER_OF"
"""Environment variable with the number of the fork server's parent; without it, importing this module does nothing."""
MODULES = (
    "torch",
    "fedsim.parts.catalog",
    "fedsim.composition.run",
    "fedsim.learning.learner",
    "fedsim.analysis.report",
)
_LOOK_S = 0.05


def _preload(parent: int) -> None:
    def look(number: int, frame: types.FrameType | None) -> None:
        if os.getppid() != parent:
            os._exit(0)

    former = signal.signal(signal.SIGALRM, look)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
    try:
        for name in MODULES:
            importlib.import_module(name)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


if PARENT in os.environ:
    _preload(int(os.environ.pop(PARENT)))
