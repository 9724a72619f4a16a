"""What every kind of page and of the documentation shares: no violation of axe-core in either theme, no overflow on
phones, tables that fit on paper, figures without scripts."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from fedsim.analysis.bundles import write_plot
from fedsim.analysis.comparison import compare
from fedsim.analysis.comparison.page import render
from fedsim.analysis.pages import write_page
from fedsim.board import results
from fedsim.board.page import write as write_board
from fedsim.board.suite import BASELINE, suite
from fedsim.calibration.page import write_calibration_page
from fedsim.decisions.forecast import Forecast, _page
from fedsim.sweeps import Sweep
from fedsim.traces.statistics import describe
from fedsim.traces.synthesis import Synthesis, synthesize
from tests.analysis.browser import Page
from tests.calibration.worlds import calibrated
from tests.decisions.test_deciding import decided
from tests.reports import empty_reports
from tests.runs.synthetic_runs import build_run

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("with_reports")]
ROOT = Path(__file__).parents[2]


def _report(folder: Path) -> Path:
    world = build_run(folder / "run", clients=20, hours=12, asynchronous=True)
    return world.report(folder / "page.html")


def _decision(folder: Path) -> Path:
    with empty_reports():
        return decided(folder / "d", settings=8, seeds=2).path / "decide.html"


def _forecast(folder: Path) -> Path:
    times_s, flat = np.arange(3.0, 25.0) * 100, np.zeros(22, bool)
    made = Forecast(folder, "90% accuracy", times_s, flat, times_s)
    write_page(folder / "page.html", _page(made, "Forecast: made"))
    return folder / "page.html"


def _calibration(folder: Path) -> Path:
    write_calibration_page(
        calibrated(folder, "client,start,end\na,0,2\na,3,5.5\nb,0,1\n"), folder / "page.html"
    )
    return folder / "page.html"


def _board(folder: Path) -> Path:
    whole = suite()
    rows = results.shipped(whole)
    tables = [results.table(rows, question) for question in whole.scenarios.values()]
    return write_board(folder, tables, whole, BASELINE)


def _traces(folder: Path) -> Path:
    bundles = [
        synthesize(Synthesis(population=name, devices=40))
        for name in ("phone_mostly_on", "desktop")
    ]
    write_plot(list(map(describe, bundles)), folder / "page.html")
    return folder / "page.html"


KINDS: dict[str, Callable[[Path], Path]] = {
    "report": _report,
    "decision": _decision,
    "forecast": _forecast,
    "calibration": _calibration,
    "board": _board,
    "traces": _traces,
}


@pytest.fixture(scope="module", params=["comparison", *KINDS])
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sweep: Sweep
) -> Path:
    if request.param == "comparison":
        path = tmp_path_factory.mktemp("comparison") / "page.html"
        labels = {"fedavg": "a_method_whose_name_has_no_space_and_is_long, mu=0.1"}
        write_page(path, render(compare(sweep.path, labels=labels)))
        return path
    return KINDS[request.param](tmp_path_factory.mktemp(request.param))


# The theme of the documentation has a landmark without a name around each button that copies code.
VIOLATIONS = """axe.run({ exclude: [".md-code__nav"] }, { resultTypes: ["violations"] })
    .then(({ violations }) => violations.map(({ id, nodes }) => [id, nodes[0].html]))"""


def violations(page: Page) -> str:
    """What axe-core finds, in both themes; empty if nothing."""
    pytest.importorskip("axe_core_python", reason="axe-core is not installed")
    rules = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    page.run(f"{rules}; 0")
    found = []
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        found += [[scheme, *each] for each in page.run(VIOLATIONS)]
    return json.dumps(found) if found else ""


def test_axe_finds_no_violation_in_both_themes(unchanged: Page) -> None:
    numbers = "document.querySelectorAll('.numbers').forEach((e) => { e.open = %s; })"
    unchanged.run(numbers % "true")
    unchanged.settle()
    assert violations(unchanged) == ""
    assert unchanged.complaints == []
    unchanged.run(numbers % "false")


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_scrolls_only_down(unchanged: Page, width: int) -> None:
    unchanged.resize(width)
    unchanged.settle()
    assert unchanged.run("document.documentElement.scrollWidth") <= width
    over = """[...document.querySelectorAll("nav a")].map((e) => e.getBoundingClientRect())
        .filter((box, i, all) => i && box.left < all[i - 1].right).length"""
    assert unchanged.run(over) == 0


def test_tables_and_charts_fit_on_paper(unchanged: Page) -> None:
    """A4 without margins of 1 cm is 718 CSS pixels wide."""
    unchanged.run("window.dispatchEvent(new Event('beforeprint'))")
    unchanged.call("Emulation.setEmulatedMedia", media="print", features=[])
    unchanged.resize(718)
    unchanged.settle()
    wide = """[...document.querySelectorAll("table, .chart svg, .chart canvas")]
        .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > 719)
        .map((e) => e.parentElement.id || e.closest("figure, section")?.id)"""
    found = unchanged.run(wide)
    unchanged.call("Emulation.setEmulatedMedia", media="", features=[])
    unchanged.run("window.dispatchEvent(new Event('afterprint'))")
    assert found == []


def test_print_shows_what_is_folded(chromium: Page, written: Path) -> None:
    """But for the file of a scenario and the facts of a run, whose titles are there."""
    chromium.open(written, unfold=False)
    folded = "[...document.querySelectorAll('details:not(.card, .numbers)')].filter((e) => !e.open)"
    closed = chromium.run(f"{folded}.length")
    chromium.run("window.dispatchEvent(new Event('beforeprint'))")
    chromium.call("Emulation.setEmulatedMedia", media="print", features=[])
    hidden = "[...document.querySelectorAll('h2, h3, summary:not(.numbers *)')].filter((e) => !e.checkVisibility())"
    assert chromium.run(f"{folded}.length + {hidden}.length") == 0
    chromium.call("Emulation.setEmulatedMedia", media="", features=[])
    chromium.run("window.dispatchEvent(new Event('afterprint'))")
    assert chromium.run(f"{folded}.length") == closed


def test_figures_have_numbers_without_scripts(chromium: Page, written: Path) -> None:
    chromium.open(written, unfold=False)  # another test may have shown the page
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    chromium._navigate(f"{written.as_uri()}?")
    chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    empty = chromium.run(
        """[...document.querySelectorAll("figure")]
            .filter((e) => !e.querySelector("table, .bar, .dots")).map((e) => e.id)"""
    )
    assert empty == []
    assert chromium.run("[...document.querySelectorAll('.chart')].every((e) => !e.clientHeight)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    pytest.importorskip("axe_core_python", reason="axe-core is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("name", [".", "runs", "papers/fedcompass", "reference/python"])
def test_axe_finds_no_violation_in_the_documentation(chromium: Page, site: Path, name: str) -> None:
    chromium.open(site / name / "index.html", unfold=False)
    assert violations(chromium) == ""
