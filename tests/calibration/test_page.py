"""The page of a calibration."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.calibration import calibrate
from fedsim.calibration.page import (
    _bands,
    _devices,
    _distributions,
    _lateness,
    _rate,
    _seconds,
    document,
    summary,
    write_calibration_page,
)
from fedsim.calibration.prediction import Lateness, Prediction
from fedsim.scenario.loading import load_scenario
from tests.calibration.worlds import TRUTH, calibrated
from tests.cli.invoking import assert_refused, invoke


def test_rounding_is_not_drawn_as_a_distribution(tmp_path: Path) -> None:
    calibration = replace(
        calibrated(tmp_path, "client,start,end\na,0,2\na,3,5.5\n"),
        distributions={
            "download (s)": ([0.0402, 0.0402], [0.0402 + 1e-9]),
            "upload (s)": ([1.0, 2.0], [2.0, 4.0]),
        },
    )
    (figure,) = _distributions(calibration)
    assert figure.extra["title"] == "Upload"
    assert figure.finding == "Median 1.5 s in the log, 3 s in the simulation."
    x, logged, simulated = (np.asarray(column.values) for column in figure.columns)
    assert (x[0], x[-1]) == (1.0, 4.0)
    assert np.array_equal(logged, np.where(x < 2, 0.5, 1.0))
    assert np.array_equal(simulated, np.select([x < 2, x < 4], [0.0, 0.5], 1.0))
    assert _seconds(0.2, 1e-9) == "0.2 s, exact"
    assert _seconds(0.2, 0.01) == "0.2 s ± 5%"
    assert _seconds(0.2, 0.3) == "0.2 s, undetermined: its error is larger"
    assert _rate(8e6, 2e5) == "8 Mbit/s ± 2.5%"
    assert (_rate(math.nan, 0.0), _seconds(0.03, 0.0)) == ("–", "0.03 s")


def test_bands_are_drawn_for_quantities_of_several_rounds() -> None:
    rounds = Prediction("duration of a round (s)", [3.0, 9.0], [2.0, 4.0], [3.0, 5.0], [4.0, 6.0])
    total = Prediction("total time (s)", [12.0], [10.0], [11.0], [13.0])
    (figure,) = _bands([rounds, total])
    assert figure.extra["title"] == "Duration of a round"
    assert figure.finding == "50.0% of 2 logged values lie within their band."
    _, *lines = figure.columns
    assert [(line.kind, *line.values) for line in lines] == [
        ("time", *each) for each in ([3, 9], [3, 5], [2, 4], [4, 6])
    ]


def test_predicted_probabilities_are_compared_with_what_happened() -> None:
    late = Lateness(
        np.array([0.0, 0.04, 0.3, 0.4, 1.0, 0.97]),
        np.array([False, False, False, True, True, True]),
    )
    columns = {column.key: column.values for column in _lateness(late).columns}
    assert columns["predicted-probability"] == ["0% to 5%", "25% to 50%", "95% to 100%"]
    assert columns["dispatches"] == [2, 2, 2]
    assert columns["mean-predicted"] == [0.02, 0.35, 0.985]
    assert columns["late-in-the-log"] == [0.0, 0.5, 1.0]


def test_long_lists_of_devices_are_cut_to_those_with_the_most_dispatches(tmp_path: Path) -> None:
    rows = [f"d{number},{number},{number + 1}" for number in range(300)]
    rows += [f"d{number},{number + 500},{number + 501}" for number in range(250, 300)]
    figure = _devices(calibrated(tmp_path, "client,start,end\n" + "\n".join(rows) + "\n"))
    assert figure.finding == (
        "The 200 of 300 devices with the most dispatches; the bundle contains all"
    )
    names = figure.columns[0].values
    assert len(names) == 200
    assert {f"d{number}" for number in range(250, 300)} <= set(names)


def test_the_page_of_a_log_without_a_scenario(tmp_path: Path) -> None:
    calibration = calibrated(tmp_path, "client,start,end\na,0,2\na,3,5.5\n<b>,0,1\n")
    write_calibration_page(calibration, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;" in page
    assert "Without a scenario" in page


@pytest.mark.parametrize("scenario", [True, False])
def test_a_latency_that_is_not_estimated_looks_so(tmp_path: Path, scenario: bool) -> None:
    run = fedsim.run(TRUTH, tmp_path / "run", overrides=["stop={rounds: 3}"])
    logged = load_scenario(run.folder.scenario) if scenario else None
    calibration = calibrate(run.path, tmp_path / "bundle", logged)
    (tile,) = [tile for tile in summary(calibration) if tile.label == "median one-way latency"]
    assert (tile.value, tile.note) == (
        ("0.03 s", "of the scenario") if scenario else ("0 s", "not shown by the log")
    )
    write_calibration_page(calibration, tmp_path / "page.html")
    label = (
        "One-way latency, of the scenario" if scenario else "One-way latency, not shown by the log"
    )
    assert f">{label}<" in (tmp_path / "page.html").read_text()
    content: dict[str, Any] = document(calibration)
    assert content["latency_from"] == ("scenario" if scenario else "nothing")
    assert content["medians"]["latency_s"]["error"] is None
    assert {device["latency_error_s"] for device in content["devices"]} == {None}


def test_no_file_of_the_users_is_replaced(tmp_path: Path) -> None:
    run = fedsim.run(TRUTH, tmp_path / "run", overrides=["stop={rounds: 3}"])
    mine = tmp_path / "bundle.yaml"
    mine.write_text(run.folder.scenario.read_text())
    kept = mine.read_bytes()
    command = ("calibrate", run.path, "--scenario", mine, "-o", tmp_path / "bundle")
    assert_refused(invoke(*command, "--force"), "bundle.yaml: exists and was not written by fedsim")
    assert mine.read_bytes() == kept
    mine.unlink()
    command = ("calibrate", run.path, "-o", tmp_path / "bundle")
    assert invoke(*command).exit_code == invoke(*command, "--force").exit_code == 0
    assert load_scenario(mine).scenario.name == "truth-calibrated"
