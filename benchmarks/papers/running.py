"""Runs the sweeps."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.papers.results import CPU_TIMES, SCENARIOS, Results
from benchmarks.peers import adopt_orphans, await_orphans

SMALL = (
    "generalized_fedavg/methods_small",
    "fedsum/patterns_small",
    "fedlga/drawn_work_small",
    *(f"time/{world}_small" for world in ("speeds", "straggler", "tails", "changing")),
    "time/network_small",
    "time/links_small",
    "compression/links_small",
    "submodels/memory_small",
    "fedlga/tau_max_small",
    "fedlga/deadline_small",
    "partial_personalization/steps_small",
    "fedcompass/table1_small",
    "fedcompass/q_ratio_small",
    "fedcompass/lambda_small",
    "fedcompass/timing/lambda",
    "fedsum/convex_small",
    "fedsum/trace_small",
    "generalized_fedavg/window_small",
    "generalized_fedavg/trace_small",
    "partial_personalization/gamma_small",
    "partial_personalization/clients_small",
    "partial_personalization/everybody_small",
    "partial_personalization/image_trace_small",
)
"""The sweeps of ``make papers``, the most informative first."""
LONG = ("fedcompass/cnn_long", "fedlga/fashion_long", "fedcompass/table1_mnist")
"""The sweeps of ``make papers-long``."""


def run_sweeps(sweeps: Iterable[str], runs: Path, jobs: int) -> None:
    """Run the sweeps, seed by seed, so that every one has its first seed before any has its second."""
    adopt_orphans()
    planned = [Results(sweep, runs) for sweep in sweeps]
    for count in range(1, 1 + max(len(results.planned_seeds) for results in planned)):
        for results in planned:
            if count <= len(results.planned_seeds):
                _run_sweep(results, runs, jobs, results.planned_seeds[:count])


def _run_sweep(before: Results, runs: Path, jobs: int, seeds: list[int]) -> None:
    sweep = before.sweep
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    finished = len(Results(sweep, runs).runs)
    command = [sys.executable, "-m", "fedsim", "sweep", str(SCENARIOS / f"{sweep}.yaml")]
    subprocess.run(
        [*command, "-s", f"sweep.seeds={seeds}", "-o", str(runs / sweep), "-j", str(jobs)],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    # The process from which a sweep forks its workers outlives it.
    await_orphans()
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = sum(end[:2]) - sum(start[:2])
    _add_cpu_time(runs, sweep, spent, len(Results(sweep, runs).runs) - finished)


def _add_cpu_time(runs: Path, sweep: str, seconds: float, count: int) -> None:
    """Add the CPU time of ``count`` finished runs to the record."""
    if not count:
        return
    path = runs / CPU_TIMES
    record = json.loads(path.read_text()) if path.exists() else {}
    old = record.get(sweep, {"seconds": 0.0, "runs": 0})
    record[sweep] = {"seconds": old["seconds"] + seconds, "runs": old["runs"] + count}
    path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
