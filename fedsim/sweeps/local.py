"""Tasks on this machine: one after another in this process, or on a pool of processes."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any, TypeAlias

from fedsim.errors import UserError
from fedsim.processes import preloading, stopping
from fedsim.processes.launch import alone
from fedsim.sweeps.task import Performer, Result, Results, Task

_NOT_STARTED = -1.0
_LOOK_S = 0.2
_END_S = 5.0
"""Seconds that a process has to end at once, before it is killed."""
_GO_ON, _SAVE, _END = range(3)
"""What the processes of a pool are to do: go on, save the runs in progress and end, or end at once."""
_MOST_DEATHS = 10
"""Of idle processes, after which no more are started."""
_ALONE = "use one process: -j 1 (in Python: jobs=1)"
_KILLED = "the process of this run was killed; there may be too little memory"
_SIGNALS = (signal.SIGINT, *stopping.SIGNALS)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of a process that uses one core; numerical libraries read it when they are loaded."""

# Otherwise pyarrow starts a thread when it is imported.
_NO_THREADS = {**ONE_THREAD, "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_CONTEXT: Any = multiprocessing.get_context(
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)
_Future: TypeAlias = "Future[Result | None]"


class Shares:
    """Progress of each task, from 0 to 1, in shared memory.

    There is no lock: each task writes its own number, and a killed process leaves nothing locked.
    """

    def __init__(self, count: int) -> None:
        self.values: Any = _CONTEXT.RawArray("d", [_NOT_STARTED] * count)
        self.stop: Any = _CONTEXT.RawValue("b", _GO_ON)

    def started(self, task: Task) -> bool:
        """Whether a process has started the task."""
        return bool(self.values[task.number] != _NOT_STARTED)

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
        except (EOFError, ConnectionError):
            raise _ended() from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended() -> UserError:
    message = f"the processes of the pool, {sys.executable}, ended before they started a run"
    return UserError(message, hint=_ALONE)


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

    A task whose process dies (for lack of memory, say) while others are in progress is continued alone, after all
    others.

    If the caller closes the iterator early, the runs in progress save their work and end; as soon as ``period`` is
    urgent, their processes end at once.
    """
    prepare()
    lost = yield from _perform(tasks, jobs, shares, folder, period)
    for task in lost:
        shares.values[task.number] = _NOT_STARTED
        yield from _perform([task], 1, shares, folder, period)


def _perform(
    tasks: Sequence[Task], jobs: int, shares: Shares, folder: Path, period: stopping.Grace
) -> Generator[Result | None, None, list[Task]]:
    """Perform tasks; returns those whose process died while others were in progress.

    There is an executor for each process, because an executor ends all of its processes when one of them dies.
    """
    waiting, lost, pools = deque(tasks), list[Task](), list[ProcessPoolExecutor]()
    idle, running = list[ProcessPoolExecutor](), dict[_Future, tuple[Task, ProcessPoolExecutor]]()
    died = 0
    # Each run of a sweep has one process, however the sweep was started.
    environment = {**alone(os.environ), **_NO_THREADS}
    given = (shares.values, shares.stop, folder, environment)
    try:
        while waiting or running:
            while waiting and len(running) < jobs and period.requested is None:
                try:
                    if not idle:
                        idle.append(ProcessPoolExecutor(1, _CONTEXT, _begin, given))
                        pools.append(idle[-1])
                    pool = idle.pop()
                    # The process, which starts now, loads numpy before it sets its environment.
                    with _environment(_NO_THREADS), _without_main():
                        future = pool.submit(_work, waiting[0])
                except (BrokenProcessPool, EOFError, ConnectionError):
                    # It, or the process that forks it, died while it was idle.
                    if (died := died + 1) > _MOST_DEATHS:
                        raise _ended() from None
                    continue
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    # Of its locks: no file of the sweep is written here.
                    message = "there is no room in /dev/shm, the shared memory of processes"
                    raise UserError(message, hint=f"free or enlarge it, or {_ALONE}") from error
                running[future] = waiting.popleft(), pool
            done = wait(running, _LOOK_S, FIRST_COMPLETED).done
            if len(_heard(running)) < len(running):
                raise RuntimeError("can't start new thread")
            if any(isinstance(future.exception(), BrokenProcessPool) for future in done):
                # What ends one process, such as a limit of their memory, may end others at the same time.
                done |= wait(running, _LOOK_S).done
            were_others = len(running) > 1
            for future in done:
                task, pool = running.pop(future)
                if not isinstance(future.exception(), BrokenProcessPool):
                    idle.append(pool)
                    yield future.result()
                elif were_others:
                    lost.append(task)
                elif shares.started(task):
                    yield Result(task, _KILLED)
                else:
                    raise _ended()
            if not done:
                yield None
    finally:
        # Runs in progress record that they were interrupted.
        shares.stop.value = _SAVE if running else _GO_ON
        ended_at = None
        while wait(_heard(running), _LOOK_S).not_done:
            if period.urgent and ended_at is None:
                shares.stop.value, ended_at = _END, time.monotonic()
            elif ended_at is not None and time.monotonic() - ended_at > _END_S:
                # Code that never returns to Python, such as a regular expression, lets no other thread end the process.
                for process in _processes(pools):
                    process.kill()
        started = _processes(pools)
        for pool in pools:
            with contextlib.suppress(RuntimeError):  # Its thread could not be started.
                pool.shutdown()
        for process in started:
            process.kill()  # That of a pool whose thread is dead waits for work.
    return lost


def _processes(pools: Sequence[ProcessPoolExecutor]) -> list[Any]:
    """The processes of pools that have not been shut down."""
    return [process for pool in pools for process in dict(vars(pool)["_processes"]).values()]


def _heard(running: Mapping[_Future, tuple[Task, ProcessPoolExecutor]]) -> list[_Future]:
    """The futures that are done or may still be: the own thread of a pool dies if it cannot start another one."""
    return [
        future
        for future, (_, pool) in running.items()
        if vars(pool)["_executor_manager_thread"].is_alive() or future.done()
    ]


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
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


_performer: Performer
_values: Any
_requested: Any


def _begin(values: Any, requested: Any, folder: Path, environment: Mapping[str, str]) -> None:
    """Prepare a process for tasks, each with one thread.

    The parent alone handles signals, also those that a terminal or a scheduler sends to all processes of a group.
    """
    global _performer, _values, _requested
    _values, _requested = values, requested
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
        while requested.value != _END and not connection.wait([parent.sentinel], _LOOK_S):
            pass
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    _performer = Performer(threads=1, folder=folder)


def _work(task: Task) -> Result | None:
    def report(share: float) -> None:
        _values[task.number] = share
        if _requested.value:
            stopping.request(signal.SIGINT)

    try:
        report(0.0)
        return _performer.perform(task, report)
    except KeyboardInterrupt:
        return None
    except SystemExit:
        os._exit(1)  # Code of the user ends the process of its run, not the sweep.


def _pass(number: int, frame: types.FrameType | None) -> None:
    """Ignore a signal; unlike with ``SIG_IGN``, programs that this process starts do not ignore it."""
