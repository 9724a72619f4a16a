"""A small, fixed choice of what ``make chaos`` does: kills, damaged files, two processes in one folder."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def chaos(module: str, *arguments: str) -> str:
    """What a module prints; in a process of its own, which forks: threads of torch would not survive that here."""
    result = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments, "--seed", "0"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_disturbed_runs_are_neither_wrong_nor_end_in_a_traceback() -> None:
    rows = [line for line in chaos("chaos", "--small").splitlines() if line.startswith("| ")]
    counts = {cells[1].strip(): cells[2:4] for cells in (row.split("|") for row in rows[1:])}
    assert sum(int(survived) + int(detected) for survived, detected in counts.values()) == 8
    assert {"kill", "kill twice", "two processes", "damage, interrupted run"} <= set(counts)


def test_a_command_that_writes_survives_every_injury() -> None:
    table = chaos("chaos_commands", "--trials", "1", "--only", "traces scale")
    assert table.splitlines()[-1] == f"| traces scale |{' 1 of 1 |' * 6}"
