"""Importing carbon intensity and prices: values by hand, units, gaps, times, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fedsim.cli import cli
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.importers import recognize
from tests.traces.helpers import import_, put

HOUR = 3_600_000_000
BRITISH = """from,to,forecast,actual,index
2024-01-01T00:00Z,2024-01-01T00:30Z,190,180,high
2024-01-01T00:30Z,2024-01-01T01:00Z,90,100,moderate
"""
MAPS = (
    "Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),"
    "Carbon intensity gCO₂eq/kWh (Life cycle)\n"
)


def series(header: str, *cells: str, start: str = "2024-01-01") -> str:
    """A file with one row per hour."""
    times = pd.date_range(start, periods=len(cells), freq="h").strftime("%Y-%m-%d %H:%M:%S")
    return f"datetime,{header}\n" + "".join(
        f"{time},{cell}\n" for time, cell in zip(times, cells, strict=True)
    )


def rows(bundle: TraceBundle) -> list[tuple[Any, ...]]:
    table = bundle.tables["grid"].to_pandas()
    table["value"] = table["value"].astype(object).where(table["value"].notna(), None)
    return list(table.itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("header", "options", "unit", "value"),
    [
        # 453.59237 g per pound, exactly (the international pound of 1959).
        ("carbon_intensity_lbs_per_MWh", {}, "g/kWh", 453.59237e-3),
        ("Carbon intensity (kgCO2/kWh)", {}, "g/kWh", 1e3),
        ("Carbon Intensity gCO2eq/kWh (LCA)", {}, "g/kWh", 1),
        ("CI [tCO2e per MWh]", {}, "g/kWh", 1e3),
        ("intensity kg/MWh", {}, "g/kWh", 1),
        ("CARBON_INTENSITY", {}, "g/kWh", 1),
        ("MOER", {"column": "MOER", "unit": "lb/MWh"}, "g/kWh", 453.59237e-3),
        ("intensity", {"unit": "g/kWh"}, "g/kWh", 1),
        ("Price (EUR/MWhe)", {}, "EUR/kWh", 1e-3),
        ("Day-ahead price [£/MWh]", {}, "GBP/kWh", 1e-3),
        ("price_usd_per_kwh", {}, "USD/kWh", 1),
        ("price", {"unit": "EUR/MWh"}, "EUR/kWh", 1e-3),
    ],
)
def test_units(
    tmp_path: Path, header: str, options: dict[str, str], unit: str, value: float
) -> None:
    path = put(tmp_path / "X.csv", series(header, "1000", "500"))
    expected = [("X", unit, 0, HOUR, 1000 * value), ("X", unit, HOUR, HOUR, 500 * value)]
    assert rows(import_("grid", path, **options)) == [
        (*row[:4], pytest.approx(row[4], rel=1e-15)) for row in expected
    ]


def test_gaps_keep_their_place(tmp_path: Path) -> None:
    """Unknown at the beginning, in the middle and at the end; the row of 04:00 is missing; the newest row is first."""
    header, *lines = series("intensity g/kWh", "", "-", "3", "4", "5", "6", "7", "").splitlines()
    del lines[4]
    bundle = import_("grid", put(tmp_path / "X.csv", "\n".join([header, *lines[::-1]])))
    assert [(row[2] // HOUR, row[3] // HOUR, row[4]) for row in rows(bundle)] == [
        *((0, 1, None), (1, 1, None), (2, 1, 3.0), (3, 2, 4.0)),
        *((5, 1, 6.0), (6, 1, 7.0), (7, 1, None)),
    ]
    assert bundle.manifest.counts == {"unknown_values": 3, "missing_intervals": 1}
    assert bundle.manifest.epoch == "2024-01-01T00:00:00+00:00"
    assert bundle.devices.column("window_end_us").to_pylist() == [8 * HOUR]


def test_regions_share_the_times_of_the_file(tmp_path: Path) -> None:
    """NA is Namibia; its first hour is missing, as the last of FR is."""
    lines = [
        *(f"2024-01-01 0{hour}:00:00,France,France,FR,1,{10 + hour}\n" for hour in range(3)),
        *(f"2024-01-01 0{hour}:00:00,Namibia,Namibia,NA,1,{20 + hour}\n" for hour in range(1, 4)),
    ]
    path = put(tmp_path / "zones.csv", MAPS + "".join(lines))
    whole = import_("grid", path)
    values = {"FR": [10.0, 11.0, 12.0, None], "NA": [None, 21.0, 22.0, 23.0]}
    assert [(row[0], row[4]) for row in rows(whole)] == [
        (region, value) for region, listed in values.items() for value in listed
    ]
    assert whole.devices.column("group").to_pylist() == ["FR", "NA"]
    # Any column of regions names them.
    assert [row[4] for row in rows(import_("grid", path, regions=["Namibia"]))] == values["NA"]
    assert recognize([path]) == ["grid"]


def test_intensity_and_prices_of_one_file(tmp_path: Path) -> None:
    text = "time,price EUR/MWh,intensity g/kWh\n2024-01-01,-20,1\n2024-01-02,30,2\n"
    bundle = import_("grid", put(tmp_path / "DE.csv", text))
    assert [(row[1], row[4]) for row in rows(bundle)] == [
        *(("g/kWh", 1.0), ("g/kWh", 2.0)),
        *(("EUR/kWh", pytest.approx(-0.02)), ("EUR/kWh", pytest.approx(0.03))),
    ]


def test_against_pandas(tmp_path: Path) -> None:
    """A random series with gaps and missing rows; offsets change where clocks are set back."""
    rng = np.random.default_rng(5)
    times = pd.date_range("2024-10-26", periods=72, freq="30min", tz="Europe/Paris")
    kept = np.sort(rng.permutation(72)[:60])
    values = pd.Series(rng.uniform(10, 900, 72), index=times).iloc[kept]
    values[rng.random(60) < 0.3] = np.nan
    path = tmp_path / "FR.csv"
    stamps = [time.isoformat() for time in values.index]
    frame = pd.DataFrame({"datetime": stamps, "intensity kg/MWh": values.to_numpy()})
    frame.to_csv(path, index=False, na_rep="-")
    table = import_("grid", path).tables["grid"].to_pandas()
    begin = (values.index.tz_convert("UTC") - values.index[0]) // pd.Timedelta("1us")
    assert table["start_us"].tolist() == begin.tolist()
    assert table["value"].to_numpy() == pytest.approx(values.to_numpy(), nan_ok=True)
    assert table["dur_us"].iloc[-1] == HOUR // 2


HOURLY = series("intensity g/kWh", "1", "2", "3")


@pytest.mark.parametrize(
    ("text", "options", "place", "message"),
    [
        (HOURLY.replace(",3", ",inf"), {}, ":4", "intensity g/kWh is 'inf'"),
        (HOURLY.replace(",3", ",x"), {}, ":4", "intensity g/kWh is 'x'"),
        (HOURLY.replace(",3", ",-3"), {}, ":4", "intensity g/kWh is '-3'"),
        (HOURLY.replace("2024-01-01 01", "unknown"), {}, ":3", "datetime is 'unknown"),
        (
            HOURLY.replace("2024-01-01 01", "01/02/2024 01"),
            {},
            ":3",
            "not an instant that can be read",
        ),
        (HOURLY.replace("01:00:00", "01:00:00Z"), {}, ":3", "having an offset"),
        (HOURLY.replace("01:00:00", "00:00:00"), {}, ":3", "as in an earlier row"),
        (HOURLY.replace("1\n", "\n").replace("2\n", "\n"), {}, "", "in 1 of 3 intervals"),
        (HOURLY.replace(" g/kWh", ""), {}, "", "does not give the unit of 'intensity'"),
        (HOURLY.replace(" g/kWh", " g/mWh"), {}, "", "does not give the unit of 'intensity"),
        *(
            (HOURLY.replace(" g/kWh", f" {unit}"), {}, "", "does not give the unit of 'intensity")
            for unit in ("µg/kWh", "10g/kWh", "ton/MWh", "GBp/kWh")
        ),
        (HOURLY, {"unit": "stones/kWh"}, "", "unit 'stones/kWh'"),
        (HOURLY, {"column": "other"}, "", "no column 'other'"),
        (HOURLY.replace("intensity g/kWh", "load"), {}, "", "no column of carbon intensity"),
        (HOURLY.replace("datetime", "hour"), {}, "", "no column of times"),
        (HOURLY, {"regions": ["FR"]}, "", "no column of regions"),
        (MAPS.replace("Zone name", "zone id") + "2024-01-01,F,F,FR,1,1\n", {}, "", "read as one"),
        (
            MAPS + "2024-01-01,F,F,FR,1,1\n2024-01-02,F,F,FR,1,1\n",
            {"regions": ["DE"]},
            "",
            "no row whose 'Zone id' is 'DE'",
        ),
        (MAPS + "2024-01-01,F,F,FR,1,1\n", {}, "", "fewer than two intervals"),
        (MAPS + "2024-01-01,F,F,FR,1,1\n2024-01-02,F,F,null,1,1\n", {}, ":3", "Zone id is 'null'"),
        (
            series("intensity g/kWh", "1", "2").replace("2024-01-01 01", "9999-01-01 01"),
            {},
            "",
            "covers .* more than 142 years",
        ),
        (HOURLY.replace("01 02", "02 02"), {}, "", "in 3 of 27 intervals of the region"),
        (
            "time,forecast intensity g/kWh,intensity kg/kWh\n2024-01-01,1,2\n2024-01-02,1,2\n",
            {},
            "",
            "several columns of carbon intensity",
        ),
    ],
)
def test_what_is_refused(
    tmp_path: Path, text: str, options: dict[str, Any], place: str, message: str
) -> None:
    path = put(tmp_path / "X.csv", text)
    with pytest.raises(UserError, match=message) as caught:
        import_("grid", path, **options)
    assert caught.value.where == f"{path}{place}"


def test_files_of_a_bundle_begin_together(tmp_path: Path) -> None:
    put(tmp_path / "FR.csv", HOURLY)
    put(tmp_path / "DE.csv", series("intensity lb/MWh", "1", "2"))
    assert [row[:2] for row in rows(import_("grid", tmp_path))][::2] == [
        *(("DE", "g/kWh"), ("FR", "g/kWh"), ("FR", "g/kWh"))
    ]
    put(tmp_path / "DE.csv", series("intensity lb/MWh", "1", "2", start="2024-01-02"))
    with pytest.raises(UserError, match="begins at"):
        import_("grid", tmp_path)


def test_commands(tmp_path: Path) -> None:
    """The file of the service of Great Britain, which gives no unit, is recognized."""
    path, bundle = put(tmp_path / "gb.csv", BRITISH), str(tmp_path / "gb")
    for words in (["import", str(path), "-o", bundle], ["validate", bundle], ["inspect", bundle]):
        result = CliRunner().invoke(cli, ["traces", *words])
        assert result.exit_code == 0, result.output
    assert "gb, g/kWh" in result.output
