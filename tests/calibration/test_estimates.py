"""Estimates of devices from a log."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fedsim.calibration import calibrate
from fedsim.traces.bundle import TraceBundle


def test_sizes_that_differ_show_the_latency(tmp_path: Path) -> None:
    """8 Mbit/s and 50 ms: 1 MB takes 1.05 s, 2 MB 2.05 s."""
    rows = []
    for number in range(20):
        size, start = 1_000_000 * (1 + number % 2), 10.0 * number
        downloaded = start + 0.05 + size / 1e6
        computed = downloaded + 2.0
        end = computed + 0.05 + size / 1e6
        rows.append(("phone", start, downloaded, computed, end, 4, size, size))
    columns = [
        "client",
        "start",
        "downloaded",
        "computed",
        "end",
        "steps",
        "bytes_down",
        "bytes_up",
    ]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "log.csv", index=False)
    estimates = calibrate(tmp_path / "log.csv", tmp_path / "bundle").estimates
    assert estimates.latency_s == pytest.approx([0.05])
    assert estimates.rates_bps.ravel() == pytest.approx([8e6, 8e6])
    assert estimates.step_s == pytest.approx([0.5])


def test_a_client_is_offline_from_a_drop_to_its_next_dispatch(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "client,start,end,ended,outcome\na,0,2,2,aggregated\na,3,,5,dropped\na,9,11,11,aggregated\nb,0,4,4,late\n"
    )
    estimates = calibrate(tmp_path / "log.csv", tmp_path / "bundle").estimates
    assert estimates.online == (("a", 0.0, 5.0), ("a", 9.0, 12.0), ("b", 0.0, 12.0))
    assert TraceBundle.read(tmp_path / "bundle").table("availability").num_rows == 3
