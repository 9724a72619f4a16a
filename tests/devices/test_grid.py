"""The grid at the clients' places: exact integrals, gaps, regions, and the emissions and cost of dispatches."""

import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedsim
from fedsim import bundled
from fedsim.devices.grid import Grid, Series, regions
from fedsim.errors import UserError
from fedsim.scenario.model import Carbon, Prices
from tests.composition.worlds import timed
from tests.traces.helpers import import_

BRITISH = """from,to,forecast,actual,index
2024-01-01T00:00Z,2024-01-01T00:30Z,190,180,high
2024-01-01T00:30Z,2024-01-01T01:00Z,90,100,moderate
"""


def test_integrals_are_exact() -> None:
    """Random spans over several periods of a week, as sums of fractions."""
    rng = np.random.default_rng(1)
    hours = 168
    begins, values = 3600.0 * np.arange(hours), rng.uniform(20, 600, hours)
    series = Series(np.append(begins, 3600.0 * hours), values)
    from_s = rng.uniform(0, 3e6, 40)
    to_s = from_s + np.concatenate([rng.uniform(0, 30, 20), rng.uniform(0, 2e6, 20)])
    for begin, end, result in zip(from_s, to_s, series.integral(from_s, to_s), strict=True):
        exact, at = Fraction(0), Fraction(begin)
        while at < Fraction(end):
            until = min(Fraction(3600) * (at // 3600 + 1), Fraction(end))
            exact += (until - at) * Fraction(values[int(at // 3600) % hours])
            at = until
        assert abs(Fraction(float(result)) - exact) <= Fraction(1, 10**12) * exact


def test_the_cleanest_instant_of_a_span() -> None:
    rng = np.random.default_rng(0)
    begins, values = np.arange(5) * 10.0, np.array([3.0, 1.0, 4.0, 1.0, 5.0])
    series = Series(np.append(begins, 50.0), values)
    for from_s, span_s in rng.integers(0, 130, (60, 2)).tolist():
        instants = [from_s, *(t for t in range(0, 300, 10) if from_s < t <= from_s + span_s)]
        best = min(instants, key=lambda t: (values[t // 10 % 5], t))
        assert series.cleanest_s(from_s, from_s + span_s) == best
    short = Series(np.array([0.0, 1e-6, 2e-6]), np.array([2.0, 1.0]))
    assert short.cleanest_s(0.0, 1e9) == 1e-6


def test_means() -> None:
    """Of an empty span, the value at its instant, also in a later repetition."""
    series = Series(np.array([0.0, 10.0, 20.0]), np.array([1.0, 3.0]))
    from_s, to_s = np.array([5.0, 0.0, 10.0, 39.0, 40.0]), np.array([15.0, 20.0, 10.0, 39.0, 40.0])
    assert series.means(from_s, to_s).tolist() == [2, 2, 3, 3, 1]


def test_unknown_values_are_those_before_them(tmp_path: Path) -> None:
    """The series keeps its length: hours 0, 2 and 5 of six are unknown."""
    cells = ["", "20", "", "40", "50", ""]
    rows = "".join(f"2024-01-01T0{hour}:00,{cell}\n" for hour, cell in enumerate(cells))
    (tmp_path / "a.csv").write_text(f"time,intensity g/kWh\n{rows}")
    [series] = Grid.read(Carbon(file=tmp_path / "a.csv"), 1, 0).regions
    begins = 3600.0 * np.arange(12)
    expected = [20, 20, 20, 40, 50, 50] * 2
    assert series.means(begins, begins + 3600).tolist() == expected


def test_against_pandas(tmp_path: Path) -> None:
    """A random series with gaps, per second, filled forward and then backward and repeated."""
    rng = np.random.default_rng(3)
    values = pd.Series(rng.uniform(0, 900, 40))
    values[rng.random(40) < 0.4] = np.nan
    times = pd.date_range("2024-01-01", periods=40, freq="10s")
    frame = pd.DataFrame({"time": times, "intensity kg/MWh": values})
    frame.to_csv(tmp_path / "a.csv", index=False)
    seconds = pd.concat([values.ffill().bfill().repeat(10)] * 5, ignore_index=True)
    [series] = Grid.read(Carbon(file=tmp_path / "a.csv"), 1, 0).regions
    from_s = rng.integers(0, 1000, 50)
    to_s = from_s + rng.integers(1, 1000, 50)
    expected = [seconds[begin:end].mean() for begin, end in zip(from_s, to_s, strict=True)]
    means = series.means(from_s.astype(float), to_s.astype(float))
    assert means == pytest.approx(expected, rel=1e-12)


def test_clients_are_divided_among_regions(tmp_path: Path) -> None:
    shares = Carbon(file=tmp_path / "a.csv", region={"FR": 3, "DE": 1})
    names = regions(shares, 8, 1, [])
    assert sorted(names or ()) == ["DE"] * 2 + ["FR"] * 6
    assert names != regions(shares, 8, 2, [])
    by_group = Prices(file=tmp_path / "a.csv", region="by_group")
    assert regions(by_group, 2, 1, ["DE", "FR"]) == ["DE", "FR"]
    with pytest.raises(UserError, match="no group") as caught:
        regions(by_group, 2, 1, ["DE", None])
    assert caught.value.where == "devices.cost.energy.region"


def test_regions_have_zones_of_one_file_or_files_of_their_own(tmp_path: Path) -> None:
    one = Carbon(file=bundled.resolved("builtin:carbon_week.csv"), region="GB")
    [series] = Grid.read(one, 3, 0).regions
    week = series.integral(np.array([0.0]), np.array([7 * 86400.0])) / (7 * 86400)
    assert week == pytest.approx([213], rel=0.01)
    (tmp_path / "DE.csv").write_text(BRITISH)
    (tmp_path / "FR.csv").write_text(BRITISH.replace("180", "30"))
    files = Carbon(file=tmp_path / "{region}.csv", region="by_group")
    grid = Grid.read(files, 3, 0, ["FR", "DE", "FR"])
    assert grid.of_client.tolist() == [1, 0, 1]
    spans = np.array([0.0]), np.array([1.0])
    assert [each.integral(*spans).tolist() for each in grid.regions] == [[180], [30]]
    assert files.files == [tmp_path / "DE.csv", tmp_path / "FR.csv"]


def test_what_is_refused(tmp_path: Path) -> None:
    week = bundled.resolved("builtin:carbon_week.csv")
    prices = "time,price {}/MWh\n2024-01-01,20\n2024-01-02,30\n"
    (tmp_path / "GB.csv").write_text(prices.format("GBP"))
    (tmp_path / "DE.csv").write_text(prices.format("EUR"))
    carbon = "time,carbon intensity gCO2eq/kWh\n2024-01-01,1e200\n2024-01-02,1\n"
    (tmp_path / "high.csv").write_text(carbon)
    os.mkfifo(tmp_path / "pipe.csv")
    german = (
        "Datetime (UTC),Zone id,carbon intensity gCO2eq/kWh\n2024-01-01,DE,9\n2024-01-02,DE,9\n"
    )
    (tmp_path / "FR.csv").write_text(german)
    by_group = Prices(file=tmp_path / "{region}.csv", region="by_group")
    for given, message in (
        (Carbon(file=week), "several regions"),
        (Carbon(file=week, region="XX"), "no row whose 'Zone id' is 'XX'"),
        (Carbon(file=tmp_path / "GB.csv"), "no carbon intensity"),
        (Carbon(file=tmp_path / "high.csv"), "high.csv: has the value 1e[+]200 g/kWh"),
        (Carbon(file=tmp_path / "gone.csv"), "gone.csv: no such file"),
        (Carbon(file=tmp_path / "{region}.csv", region="pipe"), "pipe.csv: is not a regular file"),
        (
            Carbon(file=tmp_path / "{region}.csv", region="FR"),
            "FR.csv: has no row .* is 'FR'\n  its regions are DE",
        ),
        (by_group, "prices in EUR/kWh and GBP/kWh"),
    ):
        with pytest.raises(UserError, match=message):
            Grid.read(given, 2, 0, ["DE", "GB"])


def test_a_bundle_is_read_as_its_file(tmp_path: Path) -> None:
    (tmp_path / "DE.csv").write_text(
        "time,intensity g/kWh\n2024-01-01,20\n2024-01-02,\n2024-01-03,5\n"
    )
    import_("grid", tmp_path / "DE.csv").write(tmp_path / "bundle")
    span = np.array([0.0]), np.array([5 * 86400.0])
    file, bundle = (
        Grid.read(Carbon(file=tmp_path / name, region=region), 1, 0)
        .regions[0]
        .means(*span)
        .tolist()
        for name, region in (("DE.csv", None), ("bundle", "DE"))
    )
    assert file == bundle == [17]


MAPS = """Datetime (UTC),Zone Name,Zone Id,Carbon Intensity gCO2eq/kWh (direct),Carbon Intensity gCO2eq/kWh (LCA)
2024-01-01 00:00:00,France,FR,1,36
2024-01-01 00:00:20,France,FR,1,72
2024-01-01 00:00:40,France,FR,1,18
"""


@pytest.mark.usefixtures("with_reports")
def test_a_run_by_hand(tmp_path: Path) -> None:
    """Dispatches of 13.1 s, 23.1 s and 43.1 s, of which download and upload take 1.05 and 2.05 s.

    Prices per kWh are a thousandth of the intensities. The files are gone before the run is read.
    """
    carbon, prices = tmp_path / "intensity.csv", tmp_path / "prices.csv"
    carbon.write_text(MAPS)
    prices.write_text(
        "time,price EUR/MWh\n"
        + "".join(
            f"2024-01-01 00:00:{second:02},{value}\n"
            for second, value in ((0, 36), (20, 72), (40, 18))
        )
    )
    devices = {
        "carbon": {"file": str(carbon)},
        "cost": {"per_byte": 1e-6, "per_device_hour": 36, "energy": {"file": str(prices)}},
        "energy": {"download_w": 1, "compute_w": 2, "upload_w": 3},
    }
    run = fedsim.run(timed(devices=devices, stop={"rounds": 1}), tmp_path / "run")
    carbon.unlink()
    prices.unlink()
    assert {str(carbon), str(prices)} <= set(run.info["data_files"])
    table = fedsim.load(tmp_path / "run").dispatches.sort_values("client_id")
    expected, cost = [], []
    for step in (1, 2, 4):
        spans = [(0, 1.05, 1), (1.05, 1.05 + 10 * step, 2), (1.05 + 10 * step, 3.1 + 10 * step, 3)]
        grams = 0.0
        for begin, end, watts in spans:
            for first, value in ((0, 36), (20, 72), (40, 18)):
                grams += watts * value * max(0.0, min(end, first + 20) - max(begin, first)) / 3.6e6
        expected.append(grams)
        cost.append(2 + (3.1 + 10 * step) / 100 + grams / 1000)
    assert table["gco2e"].tolist() == pytest.approx(expected, rel=1e-12)
    assert table["cost"].tolist() == pytest.approx(cost, rel=1e-12)
    assert run.info["gco2e"] == pytest.approx(sum(expected))
    assert run.info["cost"] == pytest.approx(sum(cost))
    assert run.clients["gco2e"].tolist() == pytest.approx(expected, rel=1e-12)
    assert run.report().exists()


def test_each_region_has_its_intensity(tmp_path: Path) -> None:
    """A client in a region of twice the intensity emits twice as much."""
    (tmp_path / "A.csv").write_text("time,intensity g/kWh\n2024-01-01,100\n2024-01-02,100\n")
    (tmp_path / "B.csv").write_text("time,intensity g/kWh\n2024-01-01,200\n2024-01-02,200\n")
    carbon = {"file": str(tmp_path / "{region}.csv"), "region": {"A": 1, "B": 2}}
    run = fedsim.run(timed(devices={"carbon": carbon}, stop={"rounds": 2}), tmp_path / "run")
    clients = run.clients
    assert {Path(path).name for path in run.info["data_files"]} == {"A.csv", "B.csv"}
    assert sorted(clients["region"]) == ["A", "B", "B"]
    factor = clients["region"].map({"A": 100, "B": 200})
    assert clients["gco2e"].tolist() == pytest.approx(clients["energy_j"] * factor / 3.6e6)
    comparison = fedsim.compare(run)
    assert comparison.summary["gco2e"].tolist() == pytest.approx([clients["gco2e"].sum()])
    assert "emissions, g CO2e" in comparison.write(tmp_path / "out").read_text()
