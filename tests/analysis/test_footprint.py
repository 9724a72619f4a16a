"""Emissions and cost of dispatches, against sums in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fedsim
from fedsim.analysis.footprint import Intensity, footprint
from fedsim.errors import UserError
from tests.composition.worlds import timed

pytestmark = pytest.mark.usefixtures("without_reports")

MAPS = """Datetime (UTC),Zone Name,Zone Id,Carbon Intensity gCO2eq/kWh (direct),Carbon Intensity gCO2eq/kWh (LCA)
2024-01-01 00:00:00,France,FR,1,36
2024-01-01 00:00:20,France,FR,1,72
2024-01-01 00:00:40,France,FR,1,18
"""
BRITISH = """from,to,forecast,actual,index
2024-01-01T00:00Z,2024-01-01T00:30Z,190,180,high
2024-01-01T00:30Z,2024-01-01T01:00Z,90,100,moderate
"""


def test_integrals_are_exact() -> None:
    """Random spans over several periods of a week, as sums of fractions."""
    rng = np.random.default_rng(1)
    hours = 168
    begins, values = 3600.0 * np.arange(hours), rng.uniform(20, 600, hours)
    series = Intensity(begins, values, 3600.0 * hours)
    from_s = rng.uniform(0, 3e6, 40)
    to_s = from_s + np.concatenate([rng.uniform(0, 30, 20), rng.uniform(0, 2e6, 20)])
    for begin, end, result in zip(from_s, to_s, series.integral(from_s, to_s), strict=True):
        exact, at = Fraction(0), Fraction(begin)
        while at < Fraction(end):
            until = min(Fraction(3600) * (at // 3600 + 1), Fraction(end))
            exact += (until - at) * Fraction(values[int(at // 3600) % hours])
            at = until
        assert abs(Fraction(float(result)) - exact) <= Fraction(1, 10**12) * exact


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "intensity.csv"
    path.write_text(BRITISH)
    series = Intensity.read(path)
    assert series.integral(np.array([0.0]), np.array([7200.0])).tolist() == [1800 * 560]
    path.write_text(MAPS)
    assert Intensity.read(path, "FR").integral(np.array([10.0]), np.array([70.0])).tolist() == [
        10 * 36 + 20 * 72 + 20 * 18 + 10 * 36
    ]
    with pytest.raises(UserError, match="no rows of region 'DE'"):
        Intensity.read(path, "DE")
    path.write_text(MAPS + MAPS.split("\n", 1)[1].replace("FR", "DE"))
    with pytest.raises(UserError, match="do not ascend"):
        Intensity.read(path)


def test_a_run_by_hand(tmp_path: Path) -> None:
    """Dispatches of 13.1 s, 23.1 s and 43.1 s, of which download and upload take 1.05 and 2.05 s."""
    (tmp_path / "intensity.csv").write_text(MAPS)
    carbon = {"file": str(tmp_path / "intensity.csv")}
    devices = {
        "carbon": carbon,
        "cost": {"per_byte": 1e-6, "per_device_hour": 36},
        "energy": {"download_w": 1, "compute_w": 2, "upload_w": 3},
    }
    run = fedsim.run(timed(devices=devices, stop={"rounds": 1}), tmp_path / "run")
    table = footprint(run)
    assert table is not None
    table = table.sort_values("client_id")
    expected, cost = [], []
    for step in (1, 2, 4):
        spans = [(0, 1.05, 1), (1.05, 1.05 + 10 * step, 2), (1.05 + 10 * step, 3.1 + 10 * step, 3)]
        grams = 0.0
        for begin, end, watts in spans:
            for first, value in ((0, 36), (20, 72), (40, 18)):
                grams += watts * value * max(0.0, min(end, first + 20) - max(begin, first)) / 3.6e6
        expected.append(grams)
        cost.append(2 + (3.1 + 10 * step) / 100)
    assert table["gco2e"].tolist() == pytest.approx(expected, rel=1e-12)
    assert table["cost"].tolist() == pytest.approx(cost)
    assert run.info["gco2e"] == pytest.approx(sum(expected))
    assert run.info["cost"] == pytest.approx(sum(cost))
