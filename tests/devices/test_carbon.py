"""Carbon intensity: exact integrals, files, and regions."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from fedsim import bundled
from fedsim.devices.carbon import Grid, Intensity, regions
from fedsim.errors import UserError
from fedsim.scenario.model import Carbon

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
    with pytest.raises(UserError, match="rows of region 'DE'"):
        Intensity.read(path, "DE")
    path.write_text(MAPS + MAPS.split("\n", 1)[1].replace("FR", "DE"))
    with pytest.raises(UserError, match="do not ascend"):
        Intensity.read(path)


# As the page of the service, and as its operator's archive, write them.
@pytest.mark.parametrize(
    "header",
    [
        "Datetime (UTC),Actual Carbon Intensity (gCO2/kWh),Forecast Carbon Intensity (gCO2/kWh),Index",
        "DATETIME,CARBON_INTENSITY,GAS_perc,index",
    ],
)
def test_other_files_of_great_britain(tmp_path: Path, header: str) -> None:
    path = tmp_path / "intensity.csv"
    path.write_text(f"{header}\n2024-01-01T00:00Z,180,9,high\n2024-01-01T00:30Z,100,9,low\n")
    assert Intensity.read(path).integral(np.array([0.0]), np.array([3600.0])) == [1800 * 280]


def test_the_cleanest_instant_of_a_span() -> None:
    rng = np.random.default_rng(0)
    begins, values = np.arange(5) * 10.0, np.array([3.0, 1.0, 4.0, 1.0, 5.0])
    series = Intensity(begins, values, 50.0)
    for from_s, span_s in rng.integers(0, 130, (60, 2)).tolist():
        instants = [from_s, *(t for t in range(0, 300, 10) if from_s < t <= from_s + span_s)]
        best = min(instants, key=lambda t: (values[t // 10 % 5], t))
        assert series.cleanest_s(from_s, from_s + span_s) == best


def test_clients_are_divided_among_regions(tmp_path: Path) -> None:
    shares = Carbon(file=tmp_path / "a.csv", region={"FR": 3, "DE": 1})
    names = regions(shares, 8, 1, None)
    assert sorted(names or ()) == ["DE"] * 2 + ["FR"] * 6
    assert names != regions(shares, 8, 2, None)
    by_group = Carbon(file=tmp_path / "a.csv", region="by_group")
    assert regions(by_group, 2, 1, ["DE", "FR"]) == ["DE", "FR"]
    with pytest.raises(UserError, match="no group"):
        regions(by_group, 2, 1, ["DE", None])


def test_regions_have_zones_of_one_file_or_files_of_their_own(tmp_path: Path) -> None:
    one = Carbon(file=bundled.resolved("builtin:carbon_week.csv"), region="GB")
    [series] = Grid.read(one, None, 3).regions
    week = series.integral(np.array([0.0]), np.array([7 * 86400.0])) / (7 * 86400)
    assert week == pytest.approx([213], rel=0.01)
    (tmp_path / "DE.csv").write_text(BRITISH)
    (tmp_path / "FR.csv").write_text(BRITISH.replace("180", "30"))
    grid = Grid.read(Carbon(file=tmp_path / "{region}.csv"), ["FR", "DE", "FR"], 3)
    assert grid.of_client.tolist() == [1, 0, 1]
    spans = np.array([0.0]), np.array([1.0])
    assert [each.integral(*spans).tolist() for each in grid.regions] == [[180], [30]]
