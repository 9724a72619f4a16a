"""Runs in other processes, some of which are killed while they write."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import fedsim
from fedsim.composition import run as execution
from fedsim.runs.writer import RunWriter
from fedsim.sweeps import local


def run_killed(scenario: Path, folder: Path, evaluations: int) -> None:
    """Run a scenario in another process, which is killed when it has written a number of evaluations."""
    process = started(_run, scenario, folder, evaluations)
    process.join()
    assert process.exitcode == -signal.SIGKILL


def started(function: Callable[..., None], *arguments: Any, **options: Any) -> BaseProcess:
    """Call a function in a process forked from a server that has loaded fedsim: loading takes longer than a run."""
    local.prepare()
    context = multiprocessing.get_context("forkserver")
    target = partial(function, **options)
    process = context.Process(target=_call, args=(dict(os.environ), target, *arguments))
    process.start()
    return process


def _call(environment: dict[str, str], function: Callable[..., None], *arguments: Any) -> None:
    # The server has the environment of the test that started it, which may refuse users' code.
    os.environ.clear()
    os.environ.update(environment)
    # The server blocks signals that a terminal sends to all.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    function(*arguments)


def _run(scenario: Path, folder: Path, evaluations: int) -> None:
    append, left = RunWriter.append_metrics, evaluations

    def append_or_die(self: RunWriter, *values: Any) -> None:
        nonlocal left
        append(self, *values)
        left -= 1
        if left == 0:
            self.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    RunWriter.append_metrics = append_or_die  # type: ignore[method-assign]
    execution.CHECKPOINT_INTERVAL_S = 0.0
    fedsim.run(scenario, folder)
