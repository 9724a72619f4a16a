"""A run on a cluster that is preempted: it is queued again, resumed from its folder, and has the same results.

    python -m benchmarks.preemption

The cluster is submitit's executor of local processes. Its job gets the signal that Slurm sends before a preemption or
the end of the time limit; then submitit stores what :meth:`fedsim.sweeps.cluster.Work.checkpoint` returns, and starts
the job again.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import submitit

from fedsim.analysis.run import load_run
from fedsim.scenario.loading import load_scenario
from fedsim.scenario.overrides import Override
from fedsim.sweeps.cluster import Work
from fedsim.sweeps.task import Task

_AFTER_S = 4.0
"""Seconds of a run before it is preempted."""
_SAME = ("dispatches", "aggregations", "metrics", "clients")


def main() -> None:
    loaded = load_scenario(Path("quickstart"))
    loaded = loaded.changed([Override("stop", {"simulated_time": "5d"}, "benchmark")])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = {}
        for run in ("preempted", "undisturbed"):
            executor = submitit.AutoExecutor(folder=folder / f"{run}-logs", cluster="local")
            executor.update_parameters(timeout_min=30)
            task = Task(0, folder / run, loaded.source)
            jobs[run] = executor.submit(Work(), task)
            while not (folder / run / "dispatches.arrows").exists():
                time.sleep(0.1)
            if run == "preempted":
                time.sleep(_AFTER_S)
                # The job is a child of submitit's controller.
                controller = jobs[run]._process.pid
                children = Path(f"/proc/{controller}/task/{controller}/children").read_text()
                os.kill(int(children.split()[0]), signal.SIGUSR2)
            error = jobs[run].result().error
            assert error is None, error
        log = jobs["preempted"].stdout() or ""
        runs = [load_run(folder / run) for run in jobs]
        queued = "once" if log.count("Requeued job") == 1 else "not once"
        print(f"queued again: {queued}; resumed: {runs[0].info.get('resumed', 0)} times")
        for table in _SAME:
            same = getattr(runs[0], table).equals(getattr(runs[1], table))
            print(f"{table}: {'the same' if same else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
