"""A sweep of 30 short runs on N processes: its wall time compared with the sum of its runs' times divided by N.

    python -m benchmarks.sweep [--jobs 2] [--runs 30] [--rounds 48]

The runs are those of the quickstart scenario, shortened so that each takes about two seconds in a process that has
loaded everything. Their times are those between the ends of the same runs on one process, one after another; a
first run loads everything and does not count. The limit is 1.15 x sum / N for the whole command, including its
start.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.15
ROOT = Path(__file__).resolve().parents[1]


def sweep(folder: Path, jobs: int, runs: int, rounds: int) -> tuple[float, list[float]]:
    """Seconds of a sweep from its command to its end, and the clock at the end of each run, ascending."""
    values = [
        f"sweep={{seeds: {list(range(runs))}}}",
        f"stop={{rounds: {rounds}}}",
        "training.threads=1",
    ]
    command = [sys.executable, "-m", "fedsim", "sweep", str(ROOT / "scenarios/quickstart.yaml")]
    for value in values:
        command += ["--set", value]
    start = time.perf_counter()
    subprocess.run(
        [*command, "-j", str(jobs), "-o", str(folder)],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    whole = time.perf_counter() - start
    return whole, sorted(path.stat().st_mtime for path in folder.glob("*/report.html"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=48)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _, ends = sweep(Path(folder) / "one", 1, options.runs + 1, options.rounds)
        whole, _ = sweep(Path(folder) / "pool", options.jobs, options.runs, options.rounds)
    total = ends[-1] - ends[0]
    ratio = whole * options.jobs / total
    print(f"{options.runs} runs of {total / options.runs:.2f} s, {options.jobs} processes")
    print(f"{whole:.1f} s, {ratio:.2f} x sum / {options.jobs} (limit {LIMIT})")


if __name__ == "__main__":
    main()
