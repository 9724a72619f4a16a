"""Importing Pensieve's cooked traces: values, what is dropped and counted, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.traces.helpers import import_, rate_at, series_rows

US = 1_000_000


def test_pensieve_rates_end_at_their_times(tmp_path: Path) -> None:
    path = tmp_path / "walk"
    path.write_text("0.0\t9.0\n0.5\t1.5\n2.0\t0.25\n")
    bundle = import_("pensieve", path)
    assert series_rows(bundle, "walk", "down") == [(0, 500_000, 1.5e6), (500_000, 1_500_000, 2.5e5)]
    assert bundle.manifest.counts == {"first_rates": 1, "zero_length": 0}
    device = bundle.devices.to_pylist()[0]
    assert (device["device_id"], device["period_us"]) == ("walk", 2 * US)
    assert bundle.tables["network_assign"].to_pylist() == [
        {"device_id": "walk", "series_id": "walk", "offset_us": 0, "scale": 1.0}
    ]


def test_pensieve_repeated_times_and_a_late_start(tmp_path: Path) -> None:
    path = tmp_path / "walk.log"
    path.write_text("7 1\n8 2\n8 3\n\n10 4\n")
    bundle = import_("pensieve", path, direction="up", app_limited=True)
    assert series_rows(bundle, "walk", "up") == [(0, US, 2e6), (US, 2 * US, 4e6)]
    assert bundle.manifest.counts["zero_length"] == 1
    assert any("application" in caveat for caveat in bundle.manifest.caveats)


@pytest.mark.real_data
def test_real_pensieve(real_traces: Path) -> None:
    bundle = import_("pensieve", real_traces / "hsdpa_norway")
    files = [p for p in (real_traces / "hsdpa_norway").iterdir() if p.name.startswith("norway")]
    assert bundle.device_count == len(files) == 80
    generator = random.Random(4)
    for path in generator.sample(sorted(files), 8):
        raw = [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
        zero = raw[0][0]
        for _ in range(3):
            time_s = generator.uniform(0, raw[-1][0] - zero)
            # The rate of the interval that ends at the first later time.
            expected = next(rate for end, rate in raw[1:] if end - zero > time_s)
            rate_bps = rate_at(bundle, path.name, "down", int(time_s * 1e6))
            assert rate_bps == expected * 1e6


@pytest.mark.real_data
def test_real_puffer_archive(real_traces: Path) -> None:
    bundle = import_(
        "pensieve", real_traces / "puffer_broadband" / "puffer_300.zip", app_limited=True
    )
    assert bundle.device_count == 300
    assert bundle.manifest.counts["first_rates"] == 300
