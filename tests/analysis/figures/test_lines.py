"""Figures of lines."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsim.analysis.figures.lines import cumulative, places
from fedsim.calibration import calibrate
from fedsim.calibration.page import write_calibration_page
from fedsim.calibration.prediction import Prediction
from tests.analysis.browser import Page


def test_a_distribution_function_counts_the_samples_up_to_each_place() -> None:
    samples = np.array([3.0, 1.0, 2.0, 2.0])
    assert list(cumulative(samples, np.array([0.5, 1.0, 2.0, 2.5, 3.0]))) == [
        0,
        0.25,
        0.75,
        0.75,
        1,
    ]


def test_places_cover_all_samples_but_times_too_short_for_the_axis() -> None:
    x = places([np.array([0.0, 2.0]), np.array([8.0])], log=True, times=True)
    assert (x[0], x[-1]) == (2.0, 8.0)
    assert np.allclose(np.diff(np.log(x)), np.log(4) / (len(x) - 1), rtol=1e-2)
    assert places([np.array([0.01, 100.0])], log=True, times=True)[0] == 0.5
    assert places([np.array([0.01, 100.0])], log=True, times=False)[0] == 0.01
    ties = np.array([1.0, 6.7000019, 6.7000019])  # The last place is not rounded below them.
    assert cumulative(ties, places([ties], log=True, times=True))[-1] == 1
    assert list(places([np.array([0.2])], log=False, times=False)[[0, -1]]) == [0.0, 1.0]


@pytest.mark.browser
def test_distributions_and_bands_are_drawn_and_read_aloud(chromium: Page, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("client,start,end\na,0,2\na,3,5.5\n")
    calibration = replace(
        calibrate(tmp_path / "log.csv", tmp_path / "bundle"),
        distributions={"upload (s)": ([1.0, 2.0], [2.0, 4.0])},
        predictions=[Prediction("duration of a round (s)", [3, 9], [2, 4], [3, 5], [4, 6])],
    )
    write_calibration_page(calibration, tmp_path / "page.html")
    chromium.open(tmp_path / "page.html")
    assert chromium.complaints == []
    for figure, expected in (("upload", "logged 50.0%"), ("duration-of-a-round", "logged 3 s")):
        chromium.run(f"document.querySelector('#chart-{figure}').focus()")
        chromium.press("ArrowRight")
        spoken = chromium.run("document.getElementById('live').textContent")
        assert expected in spoken
