"""How the comparison with other simulators counts and compares."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import peers


def repeat(short_s: float, long_s: float, **report: object) -> peers.Repeat:
    work = {"parameters": 10, "accuracy": 0.5, "versions": {"a": "1"}} | report
    return {
        "short": {"cpu_s": short_s, "wall_s": 9.0, "steps": 100} | work,
        "long": {"cpu_s": long_s, "wall_s": 99.0, "steps": 1100} | work,
    }


def test_a_round_is_the_difference_of_two_runs_statistic_by_statistic() -> None:
    row = peers.summarize([repeat(2.0, 4.0), repeat(1.0, 5.0), repeat(3.0, 9.0)], 11, "cpu_s")
    assert row.round_s == pytest.approx(((4.0 - 1.0) / 10, (5.0 - 2.0) / 10))
    assert row.startup_s == pytest.approx((1.0 - 0.3, 2.0 - 0.3))
    assert row.run_s == (4.0, 5.0)
    assert (row.repeats, row.steps) == (3, 100.0)


def test_the_ratio_is_that_to_the_fastest_peer_and_references_are_no_peers() -> None:
    rows: dict[str, peers.Row | str] = {
        "fedsim": peers.summarize([repeat(1.0, 2.0)], 11, "cpu_s"),
        "bare_loop": peers.summarize([repeat(1.0, 2.5)], 11, "cpu_s"),
        "fedlab": peers.summarize([repeat(1.0, 4.0)], 11, "cpu_s"),
        "flgo": peers.summarize([repeat(1.0, 5.0)], 11, "cpu_s"),
        "flower": "pip: no",
    }
    assert "FedLab 3.00 x fedsim's round (lowest)" in peers.verdict(rows, "T")
    assert "all with the same steps" in peers.verdict(rows, "T")
    lines = peers.table(rows, "T", 11).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        *("| **fedsim**", "| bare loop", "| FedLab", "| FLGo", "| Flower on Ray")
    ]
    assert "| 300.0 / 300.0 | 3.00 / 3.00 | 0.7 / 0.7 | 4.0 / 4.0 |" in lines[4]
    assert "pip: no" in lines[-1]


def test_different_work_is_said() -> None:
    rows: dict[str, peers.Row | str] = {
        "fedsim": peers.summarize([repeat(1.0, 2.0)], 11, "cpu_s"),
        "fedlab": peers.summarize([repeat(1.0, 4.0, parameters=11)], 11, "cpu_s"),
    }
    assert "not the same work" in peers.verdict(rows, "T")


@pytest.mark.parametrize(("repeats", "wall_s"), [(5, 100.0), (4, 2.0)])
def test_a_table_of_few_or_disturbed_repeats_is_provisional(repeats: int, wall_s: float) -> None:
    def head(repeats: int, wall_s: float) -> str:
        one = repeat(1.0, 2.0)
        one["long"]["wall_s"] = wall_s
        return peers.page({("fedavg", "cnn"): {"fedsim": [one] * repeats}}, 1)

    assert head(repeats, wall_s).startswith("**Provisional**")
    assert head(5, 2.0).startswith("Processor seconds")


def test_the_documentation_has_the_markers_of_the_tables() -> None:
    text = peers.PAGE.read_text(encoding="utf-8")
    assert 0 < text.index(peers.BEGIN) < text.index(peers.END)


def test_time_of_descendants_that_outlive_their_parents_counts(tmp_path: Path) -> None:
    """A daemon of a peer works for a while after the process that started it has ended."""
    work = "import time\nwhile time.process_time() < 0.1: pass"
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {work!r}])"
    script = (
        "from benchmarks import peers; from pathlib import Path; import sys\n"
        "peers.adopt_orphans()\n"
        f"seconds, _ = peers.run_process([sys.executable, '-c', {start!r}], Path({str(tmp_path)!r}), 1)\n"
        "print(seconds['cpu_s'])"
    )
    command = [sys.executable, "-c", script]
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(output.stdout) >= 0.1
