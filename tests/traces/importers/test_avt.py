"""Importing AVT: values, what is dropped and counted, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.traces.helpers import import_, intervals, online, write

US = 1_000_000


def polled(path: Path, every_s: float, jitter_s: float) -> Path:
    generator = np.random.default_rng(3)
    lines = []
    for node in range(40):
        now = 0.0
        times = []
        for _ in range(10):
            for _ in range(2):
                now += every_s * generator.integers(1, 6) + generator.uniform(-jitter_s, jitter_s)
                times.append(str(round(now)))
        lines.append(f"n{node}\t10\t {' '.join(times)}")
    return write(path, *lines)


def test_the_window_is_an_option_not_the_last_stop_of_a_node(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avt", "x\t1\t 5 10", "y\t1\t 0 40")
    guessed = import_("avt", path)
    ends = [row["window_end_us"] for row in guessed.devices.to_pylist()]
    assert ends == [40 * US, 40 * US]
    assert any("no window was given" in caveat for caveat in guessed.manifest.caveats)
    with_window = import_("avt", path, window="60s")
    assert [row["window_end_us"] for row in with_window.devices.to_pylist()] == [60 * US, 60 * US]
    assert with_window.manifest.caveats == []
    assert online(with_window, 45 * US) == set()
    assert online(guessed, 45 * US) == {"x", "y"}
    cut = import_("avt", path, window=30)
    assert intervals(cut)["y"] == [(0, 30 * US)]
    assert cut.manifest.counts["cut_at_window"] == 1
    short = import_("avt", path, window=4)
    assert short.manifest.caveats == ["1 interval outside the window, 4 s from time 0, dropped"]
    rows = cut.tables["availability"].to_pylist()
    assert [row["censored"] for row in rows] == [0, 3]


def test_disorder_is_mended_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avt", "x\t4\t 20 30 5 10 25 40 50 50", "# a remark", "", "y 1 7 3")
    bundle = import_("avt", path, window=60)
    assert intervals(bundle) == {"x": [(5 * US, 10 * US), (20 * US, 40 * US)], "y": []}
    counts = bundle.manifest.counts
    assert (counts["out_of_order"], counts["overlapping"]) == (1, 1)
    assert (counts["zero_length"], counts["reversed"]) == (1, 1)


def test_polling_is_noticed(tmp_path: Path) -> None:
    bundle = import_("avt", polled(tmp_path / "p.avt", 1837, 30))
    assert bundle.manifest.counts["polling_interval_s"] == pytest.approx(1837, abs=60)
    assert any("polled" in caveat for caveat in bundle.manifest.caveats)
    free = import_("avt", polled(tmp_path / "f.avt", 1837, 1500))
    assert "polling_interval_s" not in free.manifest.counts
