"""A small, fixed choice of what ``benchmarks/chaos.py`` does: kills, damaged files, two processes in one folder."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_disturbed_runs_are_neither_wrong_nor_end_in_a_traceback() -> None:
    """In a process of its own, which forks: threads of torch would not survive that here."""
    command = [sys.executable, "-m", "benchmarks.chaos", "--small", "--seed", "0"]
    result = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line for line in result.stdout.splitlines() if line.startswith("| ")]
    counts = {cells[1].strip(): cells[2:4] for cells in (row.split("|") for row in rows[1:])}
    assert sum(int(survived) + int(detected) for survived, detected in counts.values()) == 8
    assert {"kill", "kill twice", "two processes", "damage, interrupted run"} <= set(counts)
