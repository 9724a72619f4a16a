"""Importing UCC 5G logs: values, what is dropped and counted, and what is refused."""

import csv
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.traces.helpers import import_, refused, series_rows

US = 1_000_000


HEADER = "Timestamp,Speed,NetworkMode,DL_bitrate,UL_bitrate,State,PINGAVG,PINGLOSS"


def ucc(path: Path, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def stamp(second: int) -> str:
    return f"2020.02.27_18.39.{second:02d}"


def test_ucc_repeats_gaps_missing_and_idle(tmp_path: Path) -> None:
    path = ucc(
        tmp_path / "b.csv",
        f"{stamp(1)},0,5G,100,10,D,-,-",
        f"{stamp(1)},0,5G,300,30,D,50,0",  # the same second again: mean
        f"{stamp(2)},0,LTE,-,5,D,-,-",  # missing rate: held
        f"{stamp(5)},0,HSPA+,0,7,I,-,-",  # idle: not the link's rate; and two seconds without a row
        f"{stamp(6)},0,??,80,8,D,20,50",
    )
    bundle = import_("ucc5g", path)
    assert series_rows(bundle, "b", "down") == [
        (0, US, 200e3),
        (US, 3 * US, 200e3),
        (4 * US, US, 200e3),
        (5 * US, US, 80e3),
    ]
    assert [rate for _, _, rate in series_rows(bundle, "b", "up")] == [20e3, 5e3, 5e3, 8e3]
    down = bundle.tables["network_series"].to_pylist()[:4]
    assert [row["radio"] for row in down] == ["5g", "lte", "3g", None]
    assert [row["rtt_s"] for row in down] == pytest.approx([0.05, None, None, 0.02])
    assert [row["loss"] for row in down] == [0.0, None, None, 0.5]
    assert bundle.manifest.counts == {
        "files": 1,
        "app_limited_files": 0,
        "rows": 5,
        "same_second": 1,
        "out_of_order": 0,
        "seconds_without_row": 2,
        "missing_rates": 1,
        "idle_rows": 1,
    }


def test_ucc_players_are_not_the_link(tmp_path: Path) -> None:
    row = f"{stamp(1)},0,5G,100,10,D,-,-"
    ucc(tmp_path / "set" / "Netflix" / "a.csv", row)
    only = tmp_path / "set" / "Netflix"
    assert "app_limited=true" in refused("ucc5g", only)
    ucc(tmp_path / "set" / "Download" / "a.csv", row)
    bundle = import_("ucc5g", tmp_path / "set")
    assert bundle.device_ids.to_pylist() == ["a"]
    assert bundle.manifest.counts["app_limited_files"] == 1
    both = import_("ucc5g", tmp_path / "set", app_limited=True)
    assert both.device_ids.to_pylist() == ["Download/a", "Netflix/a"]
    assert any("player" in caveat for caveat in both.manifest.caveats)


@pytest.mark.parametrize("second", [60, 61])
def test_ucc_minutes_have_sixty_seconds(tmp_path: Path, second: int) -> None:
    rows = (f"{stamp(each)},0,5G,100,10,D,-,-" for each in (0, 1, second))
    message = refused("ucc5g", ucc(tmp_path / "a.csv", *rows))
    assert f"a.csv:4: Timestamp is '{stamp(second)}'" in message


@pytest.mark.real_data
def test_real_ucc(real_traces: Path) -> None:
    source = real_traces / "ucc_5g" / "ucc_5g_production.zip"
    bundle = import_("ucc5g", source)
    counts = bundle.manifest.counts
    assert (counts["files"], counts["app_limited_files"]) == (21, 62)
    assert (counts["rows"], counts["same_second"]) == (43208, 4272)
    assert (counts["idle_rows"], counts["missing_rates"]) == (276, 0)
    # The mean download rate over downloading rows of one file, in whole seconds, read another way.
    name = "Download/Static/B_2020.02.27_18.39.27.csv"
    with zipfile.ZipFile(source) as archive:
        rows = list(csv.DictReader(io.TextIOWrapper(archive.open(name))))
    by_second: dict[str, list[float]] = {}
    for row in rows:
        if "D" in row["State"]:
            by_second.setdefault(row["Timestamp"], []).append(float(row["DL_bitrate"]))
    rates = [
        rate
        for _, _, rate in series_rows(bundle, "B_2020.02.27_18.39.27", "down")
        if rate is not None
    ]
    means = {round(float(np.mean(values)), 6) for values in by_second.values()}
    assert {round(rate / 1000, 6) for rate in rates} == means
