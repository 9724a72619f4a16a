"""The page of a calibration."""

from __future__ import annotations

from pathlib import Path

from fedsim.calibration import calibrate
from fedsim.calibration.page import _constant, _ends, _with_error, write_calibration_page


def test_rounding_is_not_drawn_as_a_distribution() -> None:
    assert _constant([0.0402], [0.0402 + 1e-9]) == "0.0402 s"
    assert _constant([0.04], [0.05]) == ""
    assert _ends([1, 2], [0.5]) == ["0.5 s", "2 s"]
    assert _with_error(0.2, 1e-9) == "0.2 s, exact"
    assert _with_error(0.2, 0.05) == "0.2 s ± 5.0%"


def test_the_page_of_a_log_without_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("client,start,end\na,0,2\na,3,5.5\n<b>,0,1\n")
    write_calibration_page(
        calibrate(tmp_path / "log.csv", tmp_path / "bundle"), tmp_path / "page.html"
    )
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;" in page
    assert "Without --scenario" in page
