"""Tasks on this machine: one after another in this process, or on a pool of processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fedsim.processes import preloading, stopping
from fedsim.processes.launch import alone
from fedsim.sweeps.task import Performer, Result, Results, Task

_NOT_STARTED = -1.0
_LOOK_S = 0.2
_END_S = 5.0
"""Seconds that a process has to end at once, before it is killed."""
_SIGNALS = (signal.SIGINT, *stopping.SIGNALS)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of a process that uses one core; numerical libraries read it when they are loaded."""

# Otherwise pyarrow starts a thread when it is imported.
_NO_THREADS = {**ONE_THREAD, "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_CONTEXT: Any = multiprocessing.get_context(
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)


class Shares:
    """Progress of each task, from 0 to 1, in shared memory.

    There is no lock: each task writes its own number, and a killed process leaves nothing locked.
    """

    def __init__(self, count: int) -> None:
        self.values: Any = _CONTEXT.RawArray("d", [_NOT_STARTED] * count)
        self.stop: Any = _CONTEXT.RawValue("b", False)

    def started(self, task: Task) -> bool:
        """Whether a process has started the task."""
        return bool(self.values[task.number] != _NOT_STARTED)

    def forget(self, task: Task) -> None:
        """Mark a task as not started."""
        self.values[task.number] = _NOT_STARTED

    def in_progress(self) -> float:
        """Sum of the progress of all tasks that have been started."""
        return sum(max(0.0, float(value)) for value in self.values)


def prepare() -> None:
    """Start loading what the processes of a pool need, which takes a second or two.

    A process without threads loads it once, and those of the pool are forked from it. It ends soon after this one.
    """
    if _CONTEXT.get_start_method() == "forkserver":
        _CONTEXT.set_forkserver_preload([preloading.__name__])
        # Processes inherit blocked signals: those that a terminal or a scheduler sends to all reach only this one.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # The tracker unblocks some.
            with _environment({**_NO_THREADS, preloading.PARENT: str(os.getpid())}):
                forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_here(tasks: Sequence[Task], shares: Shares, on_progress: Callable[[], None]) -> Results:
    """Perform tasks one after another in this process, each with all cores; ``on_progress`` is called meanwhile."""
    performer = Performer(threads=None)
    for task in tasks:

        def report(share: float, number: int = task.number) -> None:
            shares.values[number] = share
            on_progress()

        report(0.0)
        yield performer.perform(task, report)


def run_on_pool(
    tasks: Sequence[Task], jobs: int, shares: Shares, folder: Path, period: stopping.Grace
) -> Results:
    """Perform tasks on a pool of processes, one thread each; yields None when time has passed without a result.

    Data sets and traces are loaded by one of the processes, and mapped into the memory of all from files in ``folder``.

    A task whose process dies (for lack of memory, say) while others are in progress is tried again alone, after all
    others.

    If the caller closes the iterator early, the runs in progress save their work and end; as soon as ``period`` is
    urgent, their processes end at once.
    """
    pool = _Pool(min(jobs, len(tasks)), shares, folder, period)
    yield from pool.perform(tasks)
    for task in pool.lost:
        shares.forget(task)
        yield from _Pool(1, shares, folder, period).perform([task])


class _Pool:
    """Processes that perform tasks; ``lost`` then holds those whose process died while others were in progress.

    Each process has its own pipes: one that ends at any moment leaves nothing locked, and nothing half read, for the
    others. There are no threads and no exceptions from signals, so that closing the pool cannot be interrupted.
    """

    def __init__(self, jobs: int, shares: Shares, folder: Path, period: stopping.Grace) -> None:
        self.lost: list[Task] = []
        self._jobs, self._shares, self._folder, self._period = jobs, shares, folder, period
        self._workers: list[_Worker] = []
        prepare()

    def perform(self, tasks: Sequence[Task]) -> Iterator[Result | None]:
        waiting = deque(tasks)
        try:
            while waiting or self._busy():
                if self._period.requested is None:
                    self._hand_out(waiting)
                ready = self._ready()
                for worker in ready:
                    task = worker.task
                    try:
                        yield worker.receive()
                    except EOFError:
                        self._workers.remove(worker)
                        worker.end()
                        if task is not None:
                            yield self._died(task)
                if not ready:
                    yield None
        finally:
            self._close()

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.task is not None]

    def _hand_out(self, waiting: deque[Task]) -> None:
        """Give each process without a task one that waits; processes are started as they are needed."""
        while waiting:
            idle = next((worker for worker in self._workers if worker.task is None), None)
            if idle is None:
                if len(self._workers) == self._jobs:
                    return
                idle = _Worker(self._shares, self._folder)
                self._workers.append(idle)
            idle.give(waiting.popleft())

    def _ready(self) -> list[_Worker]:
        """The processes that have finished their task or have ended; waits a moment for the first."""
        ready = wait(
            [
                *(worker.connection for worker in self._busy()),
                *(worker.process.sentinel for worker in self._workers),
            ],
            _LOOK_S,
        )
        return [
            worker
            for worker in self._workers
            if worker.connection in ready or worker.process.sentinel in ready
        ]

    def _died(self, task: Task) -> Result | None:
        """The result of a task whose process has died; None if it is tried again."""
        if self._busy():
            self.lost.append(task)
            return None
        if not self._shares.started(task):
            raise RuntimeError("the processes of the pool ended before they started a run")
        return Result(task, "the process of this run was killed; there may be too little memory")

    def _close(self) -> None:
        """End the processes; runs in progress record that they were interrupted."""
        self._shares.stop.value = bool(self._busy())
        for worker in self._workers:
            worker.give(None)
        ended_at = None
        while self._workers:
            if self._period.urgent and ended_at is None:
                ended_at = time.monotonic()
                for worker in self._workers:
                    worker.end()
            if ended_at is not None and time.monotonic() - ended_at > _END_S:
                for worker in self._workers:
                    worker.process.kill()
            for worker in self._ready():
                # A process waits until its last result is read.
                with contextlib.suppress(EOFError):
                    worker.receive()
                if not worker.process.is_alive():
                    self._workers.remove(worker)


class _Worker:
    """A process of the pool, as its parent sees it.

    Attributes:
        process: the process.
        connection: sends tasks, and receives their results.
        task: the task in progress, if any.
    """

    def __init__(self, shares: Shares, folder: Path) -> None:
        self.connection, tasks = _CONTEXT.Pipe()
        ending, self._ending = _CONTEXT.Pipe(duplex=False)
        self.task: Task | None = None
        # Each run of a sweep has one process, however the sweep was started.
        environment = {**alone(os.environ), **_NO_THREADS}
        self.process = _CONTEXT.Process(
            target=_work,
            args=(tasks, ending, shares.values, shares.stop, folder, environment),
        )
        # The process loads numpy before it sets its environment.
        with _environment(_NO_THREADS), _without_main():
            self.process.start()
        tasks.close()
        ending.close()

    def give(self, task: Task | None) -> None:
        """Send the process its next task; None if there is none."""
        self.task = task or self.task
        with contextlib.suppress(OSError):  # The process has died, which its sentinel shows.
            self.connection.send(task)

    def receive(self) -> Result | None:
        """The result of the task, or None if it was interrupted.

        Raises:
            EOFError: the process ended without one.
        """
        self.task = None
        try:
            # A process that has ended may have left a result, or the beginning of one.
            if not self.connection.poll():
                raise EOFError
            result: Result | None = self.connection.recv()
        except OSError as error:
            raise EOFError from error
        return result

    def end(self) -> None:
        """Let the process end at once, whatever it is doing."""
        self._ending.close()


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


def _work(
    tasks: Connection,
    ending: Connection,
    shares: Any,
    stop: Any,
    folder: Path,
    environment: Mapping[str, str],
) -> None:
    """Perform the tasks that arrive, with one thread, until there are no more.

    The parent alone handles signals, also those that a terminal or a scheduler sends to all processes of a group.
    """
    # Forks inherit the environment from an earlier point in time.
    os.environ.clear()
    os.environ.update(environment)
    for number in _SIGNALS:
        signal.signal(number, _pass)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        # A killed parent cannot end its children, and a restarted sweep must not find them still running.
        wait([parent.sentinel, ending])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    performer = Performer(threads=1, folder=folder)
    while (task := tasks.recv()) is not None:
        tasks.send(_perform(performer, task, shares, stop))


def _perform(performer: Performer, task: Task, shares: Any, stop: Any) -> Result | None:
    def report(share: float) -> None:
        shares[task.number] = share
        if stop.value:
            stopping.request(signal.SIGINT)

    try:
        report(0.0)
        return performer.perform(task, report)
    except KeyboardInterrupt:
        return None


def _pass(number: int, frame: types.FrameType | None) -> None:
    """Ignore a signal; unlike with ``SIG_IGN``, programs that this process starts do not ignore it."""
