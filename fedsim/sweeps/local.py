"""Tasks on this machine: one after another in this process, or on a pool of processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from ctypes import Array, c_bool, c_double
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait as wait_for_connections
from pathlib import Path
from typing import Any

from fedsim import stopping
from fedsim.sweeps.task import Performer, Result, Task

_NOT_STARTED = -1.0
_LOOK_S = 0.2
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of a process that uses one core; numerical libraries read it when they are loaded."""

# Otherwise pyarrow starts a thread when it is imported.
_NO_THREADS = {**ONE_THREAD, "JE_ARROW_MALLOC_CONF": "background_thread:false"}
# Loaded once by a process without threads, from which the processes of the pool are forked.
_PRELOADED = (
    "torch",
    "fedsim.catalog",
    "fedsim.composition.execution",
    "fedsim.learning.learner",
    "fedsim.analysis.report",
)
_CONTEXT: Any = multiprocessing.get_context(
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)


class Shares:
    """Progress of each task, from 0 to 1, in shared memory.

    There is no lock: each task writes its own number, and a killed process leaves nothing locked.
    """

    def __init__(self, count: int) -> None:
        self.values: Array[c_double] = _CONTEXT.RawArray(c_double, [_NOT_STARTED] * count)
        self.stop: c_bool = _CONTEXT.RawValue(c_bool, False)

    def started(self, task: Task) -> bool:
        """Whether a process has started the task."""
        return self.values[task.number] != _NOT_STARTED

    def forget(self, tasks: Sequence[Task]) -> None:
        """Mark tasks as not started."""
        for task in tasks:
            self.values[task.number] = _NOT_STARTED

    def in_progress(self) -> float:
        """Sum of the progress of all tasks that have been started."""
        return sum(max(0.0, float(value)) for value in self.values)


def prepare() -> None:
    """Start loading what the processes of a pool need, which takes a second or two."""
    if _CONTEXT.get_start_method() == "forkserver":
        _CONTEXT.set_forkserver_preload(list(_PRELOADED))
        # Processes inherit blocked signals: Ctrl-C, which a terminal sends to all of them, reaches only this one.
        # The tracker unblocks SIGINT when it starts, so it is started before.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            with _environment(_NO_THREADS):
                forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_here(
    tasks: Sequence[Task], shares: Shares, on_progress: Callable[[], None]
) -> Iterator[Result]:
    """Perform tasks one after another in this process, each with all cores; ``on_progress`` is called meanwhile."""
    performer = Performer(threads=None)
    for task in tasks:

        def report(share: float, number: int = task.number) -> None:
            shares.values[number] = share
            on_progress()

        report(0.0)
        yield performer.perform(task, report)


def run_on_pool(
    tasks: Sequence[Task], jobs: int, shares: Shares, folder: Path
) -> Iterator[Result | None]:
    """Perform tasks on a pool of processes, one thread each; yields None when time has passed without a result.

    Data sets and traces are loaded by one of the processes, and mapped into the memory of all from files in ``folder``.

    A process that dies (for lack of memory, say) ends the whole pool: the tasks that were in progress are then tried
    again one at a time, so that only the one that kills its process fails.
    """
    waiting = list(tasks)
    while waiting:
        pool = _Pool(min(jobs, len(waiting)), shares, folder)
        yield from pool.perform(waiting)
        if not pool.lost:
            return
        suspects = [task for task in pool.lost if shares.started(task)]
        waiting = [task for task in pool.lost if not shares.started(task)]
        if not suspects:
            raise RuntimeError("the processes of the pool ended before they started a run")
        if len(suspects) == 1:
            yield Result(
                suspects[0], "the process of this run was killed; there may be too little memory"
            )
        else:
            shares.forget(suspects)
            yield from run_on_pool(suspects, 1, shares, folder)


class _Pool:
    """One pool of processes, used until its tasks are done or a process dies; ``lost`` then holds the rest."""

    def __init__(self, jobs: int, shares: Shares, folder: Path) -> None:
        self.lost: list[Task] = []
        self._shares = shares
        prepare()
        self._executor = ProcessPoolExecutor(
            jobs,
            mp_context=_CONTEXT,
            initializer=_start,
            initargs=(shares.values, shares.stop, folder, {**os.environ, **_NO_THREADS}),
        )

    def perform(self, tasks: Sequence[Task]) -> Iterator[Result | None]:
        pending: dict[Future[Result | None], Task] = {}
        try:
            # Processes start as tasks are submitted, and load numpy before their initializer runs.
            with _environment(_NO_THREADS), _without_main():
                for task in tasks:
                    pending[self._executor.submit(_perform, task)] = task
            while pending:
                done, _ = wait(pending, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
                for future in done:
                    task = pending.pop(future)
                    try:
                        yield future.result()
                    except BrokenProcessPool:
                        self.lost.append(task)
                if not done:
                    yield None
        finally:
            # After an interrupt, runs in progress record that they were interrupted and end.
            self._shares.stop.value = bool(pending)
            self._executor.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hide the caller's script from the processes that start meanwhile, which would import and so execute it again."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before


# -- in the processes of the pool ----------------------------------------------------------------------------------


_process: tuple[Performer, Any, Any] | None = None
"""State of this process: its performer, the shares of all tasks, and whether to stop."""


def _start(shares: Any, stop: Any, folder: Path, environment: Mapping[str, str]) -> None:
    """Prepare this process for tasks: one thread, Ctrl-C ignored, and exit when its parent exits."""
    global _process
    # Forks inherit the environment from an earlier point in time.
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        # A killed parent cannot end its children, and a restarted sweep must not find them still running.
        wait_for_connections([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    _process = Performer(threads=1, folder=folder), shares, stop


def _perform(task: Task) -> Result | None:
    assert _process is not None
    performer, shares, stop = _process

    def report(share: float) -> None:
        shares[task.number] = share
        if stop.value:
            stopping.request(signal.SIGINT)

    try:
        report(0.0)
        return performer.perform(task, report)
    except KeyboardInterrupt:
        return None
