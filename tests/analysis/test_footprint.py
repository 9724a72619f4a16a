"""Emissions and cost of dispatches, by hand."""

from pathlib import Path

import pytest

import fedsim
from fedsim.analysis.footprint import footprint
from tests.composition.worlds import quadratic, timed

pytestmark = pytest.mark.usefixtures("without_reports")

MAPS = """Datetime (UTC),Zone Name,Zone Id,Carbon Intensity gCO2eq/kWh (direct),Carbon Intensity gCO2eq/kWh (LCA)
2024-01-01 00:00:00,France,FR,1,36
2024-01-01 00:00:20,France,FR,1,72
2024-01-01 00:00:40,France,FR,1,18
"""


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
    assert run.clients["gco2e"].tolist() == pytest.approx(expected, rel=1e-12)


def test_each_region_has_its_intensity(tmp_path: Path) -> None:
    """A client in a region of twice the intensity emits twice as much."""
    (tmp_path / "A.csv").write_text("time,intensity\n2024-01-01,100\n2024-01-02,100\n")
    (tmp_path / "B.csv").write_text("time,intensity\n2024-01-01,200\n2024-01-02,200\n")
    carbon = {"file": str(tmp_path / "{region}.csv"), "region": {"A": 1, "B": 2}}
    run = fedsim.run(timed(devices={"carbon": carbon}, stop={"rounds": 2}), tmp_path / "run")
    clients = run.clients
    assert sorted(clients["region"]) == ["A", "B", "B"]
    factor = clients["region"].map({"A": 100, "B": 200})
    assert clients["gco2e"].tolist() == pytest.approx(clients["energy_j"] * factor / 3.6e6)
    comparison = fedsim.compare(run)
    assert comparison.summary["gco2e"].tolist() == pytest.approx([clients["gco2e"].sum()])
    assert "emissions, g CO2e" in comparison.write(tmp_path / "out").read_text()


def test_curves_against_emissions(tmp_path: Path) -> None:
    """Clients 0 and 1 work for 2 and 4 s per round at 3.6 W: 21.6 J, of which 360 g per kWh make 2.16 mg."""
    (tmp_path / "grid.csv").write_text("time,intensity\n2024-01-01,360\n2024-01-02,360\n")
    scenario = quadratic([[0, 1]] * 3)
    scenario["devices"] |= {
        "carbon": {"file": str(tmp_path / "grid.csv")},
        "energy": {"download_w": 0, "compute_w": 3.6, "upload_w": 0},
    }
    run = fedsim.run(scenario, tmp_path / "run")
    curve = fedsim.compare(run).curves("loss", "gco2e")
    at_evaluations = curve[curve["mean"] != curve["mean"].shift()]
    assert at_evaluations["x"].tolist() == pytest.approx([0, 2.16e-3, 4.32e-3, 6.48e-3], abs=1e-12)
    assert at_evaluations["mean"].tolist() == pytest.approx(run.metrics["loss"].tolist())
