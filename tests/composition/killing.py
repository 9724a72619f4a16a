"""A run in a process that is killed while it writes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import fedsim
from fedsim.composition import execution
from fedsim.runs.writer import RunWriter
from fedsim.sweeps import local


def run_killed(scenario: Path, folder: Path, evaluations: int) -> None:
    """Run a scenario in another process, which is killed when it has written a number of evaluations.

    The process is forked from a server that has loaded fedsim, because loading it takes longer than the run.
    """
    local.prepare()
    context = multiprocessing.get_context("forkserver")
    arguments = (scenario, folder, evaluations, dict(os.environ))
    process = context.Process(target=_run, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def _run(scenario: Path, folder: Path, evaluations: int, environment: dict[str, str]) -> None:
    # The server has the environment of the test that started it, which may refuse users' code.
    os.environ.clear()
    os.environ.update(environment)
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
