"""The comparison page in a real browser: silent, offline, usable with a keyboard, readable in both themes."""

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_runs import build_run

from fedsim.analysis.comparison import Comparison, compare
from fedsim.analysis.comparison.figure import FigureStyle
from fedsim.analysis.comparison.page import render
from fedsim.analysis.pages import write_page
from fedsim.sweeps import Sweep
from tests.analysis.browser import Page
from tests.analysis.comparison import compared
from tests.analysis.comparison.compared import folders

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def comparison(sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    path = tmp_path_factory.mktemp("browser") / "sweep"
    shutil.copytree(sweep.path, path)
    (path / "reference.yaml").write_text(
        "source: A. Author 2024\ntables:\n"
        "  - {title: Table 1, quantity: final, values: {alpha=5: {fedavg: 0.9, fedbuff: 0.8}}}\n"
    )
    return compare(path, targets=["accuracy=0.5", "accuracy=0.99"])


@pytest.fixture(scope="module")
def written(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(comparison, tmp_path_factory.mktemp("page"))


def page_of(comparison: Comparison, folder: Path, style: FigureStyle | None = None) -> Path:
    """The page alone, without tables and figures."""
    path = folder / "compare.html"
    write_page(path, render(comparison, style))
    return path


def test_timing_only_runs_have_a_page_too(chromium: Page, tmp_path: Path) -> None:
    runs = [build_run(tmp_path / f"{seed}", hours=6, learning=False, seed=seed) for seed in (0, 1)]
    chromium.open(page_of(compare(runs), tmp_path))
    assert chromium.complaints == []
    assert chromium.run("document.getElementById('learning')") is None
    assert "NaN" not in chromium.run("document.body.innerText")


def test_tables_of_several_settings_fit_a_laptop_and_show_a_value_on_a_phone(
    chromium: Page, sweep: Sweep, tmp_path: Path
) -> None:
    """Nothing of the table of times is cut off, and the first value is beside the name of its variant."""
    labels = {"fedavg": "a_variant_with_a_long_name, mu=0.1", "alpha=5": "a setting, also long"}
    comparison = compare(sweep.path, targets=["accuracy=0.5", "accuracy=0.7"], labels=labels)
    chromium.open(page_of(comparison, tmp_path))
    for width in (1300, 390):
        chromium.resize(width)
        chromium.settle()
        for figure in ("quality", "target-0", "target-1", "pairs", "time", "work", "runs"):
            table = f"document.querySelector('#figure-{figure} .scroll')"
            if width == 1300:
                assert chromium.run(f"{table}.scrollWidth <= {table}.clientWidth"), figure
            values = f"[...{table}.querySelector('tbody tr:not(.group)').children]"
            at = {"quality": 2, "target-0": 2, "target-1": 2, "pairs": 3, "runs": 2}.get(figure, 1)
            right = chromium.run(f"{values}[{at}].getBoundingClientRect().right")
            assert right <= chromium.run(f"{table}.getBoundingClientRect().right + 1"), figure
            chromium.run(f"{table}.scrollTo(300, 0)")
            left = chromium.run(f"{values}[0].getBoundingClientRect().left")
            assert left >= chromium.run(f"{table}.getBoundingClientRect().left"), figure


def test_arrow_keys_read_the_curves(page: Page, comparison: Comparison) -> None:
    page.run("document.querySelector('#chart-curves').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    frame = comparison.curves("accuracy", "time_s")
    here = frame[frame["setting"] == "alpha=5"]
    second_x = sorted(here["x"].unique())[1]
    said = page.said
    for row in here[here["x"] == second_x].itertuples():
        assert f"{row.label} {100 * row.median:.1f}%" in said
    page.click("#bands")
    page.press("ArrowRight")
    page.press("ArrowRight")
    said = page.said
    for row in here[here["x"] == second_x].itertuples():
        low, high = 100 * row.low, 100 * row.high
        assert f"{row.label} {100 * row.median:.1f}% ({low:.1f}% to {high:.1f}%)" in said


CURVES = "document.querySelector('#chart-curves').innerHTML"


def test_setting_metric_and_axis_can_be_chosen(page: Page) -> None:
    pictures = {page.run(CURVES)}
    page.click("input[value=compute_s]")
    pictures.add(page.run(CURVES))
    assert "client compute time" in page.run("document.querySelector('#chart-curves').textContent")
    page.choose("metric", "loss")
    pictures.add(page.run(CURVES))
    lorenz = page.run("document.querySelector('#chart-lorenz').innerHTML")
    assert "share of updates, alpha=5" in lorenz
    page.choose("setting", "alpha=0.2")
    pictures.add(page.run(CURVES))
    assert len(pictures) == 4
    # Who takes part does not depend on the data split; the accuracy of the clients does.
    lorenz = lorenz.replace("alpha=5", "alpha=0.2")
    assert page.run("document.querySelector('#chart-lorenz').innerHTML") == lorenz
    assert page.complaints == []


def test_bands_can_be_switched_on_and_the_target_is_drawn(page: Page) -> None:
    bands = 'document.querySelectorAll("#chart-curves path[fill-opacity=\\"0.15\\"]").length'
    assert page.run(bands) == 0
    page.click("#bands")
    assert page.run(bands) == 2
    drawn = "document.querySelector('#chart-curves svg').textContent"
    page.run("document.getElementById('focus').checked && document.getElementById('focus').click()")
    page.settle()
    assert "target 50%" in page.run(drawn)
    page.choose("metric", "loss")
    assert "target" not in page.run(drawn)


def test_a_target_at_the_end_of_the_visible_range_is_drawn(
    chromium: Page, comparison: Comparison, tmp_path: Path
) -> None:
    chromium.open(page_of(comparison, tmp_path, FigureStyle(("accuracy",), ylim="50%:100%")))
    chart = "fedsim.charts.get(document.getElementById('chart-curves'))"
    lines = f"{chart}.option.graphic.filter((each) => each.type === 'line')"
    assert chromium.run("document.getElementById('focus_name').textContent") == "range of --ylim"
    gaps = chromium.run(f"{lines}.map((each) => {chart}.state.drawn.box.bottom - each.shape.y1)")
    assert min(gaps) >= 2


def test_the_page_opens_on_the_range_of_the_figure(
    chromium: Page, sweep: Sweep, tmp_path: Path
) -> None:
    facts = []
    for number, path in enumerate(folders(sweep, *compared.GROUPS[0])[:2]):
        (run,) = compare([path]).facts
        progress = run.progress | {"loss": run.progress["loss"].copy()}
        # An untrained model that would compress the rest; and a run that ended early at the best value.
        progress["loss"][0] = 50.0
        if number:
            progress = {name: values[:2] for name, values in progress.items()}
            progress["loss"] = np.array([50.0, 0.01])
        scenario = {**run.scenario, "server": {"method": {"name": f"m{number}"}}}
        facts.append(replace(run, progress=progress, scenario=scenario))
    comparison = Comparison((tuple(facts), (), None))
    assert comparison.plot("loss").axes[0].get_xscale() == "log"
    linear = Comparison((tuple(facts), (), None))
    vars(linear)["needs_log_time"] = False
    (axes,) = linear.plot("loss").axes
    chromium.open(page_of(comparison, tmp_path, FigureStyle(("loss",))))
    # Runs that end far apart open on a logarithmic axis, which has no late range.
    chromium.click("#logx")
    chart = "fedsim.charts.get(document.getElementById('chart-curves')).option.yAxis"
    low, high = chromium.run(f"[{chart}.min, {chart}.max]")
    assert axes.get_ylim() == pytest.approx((low, high), rel=1e-4)
    assert low <= 0.01 < high < 5
    clipped = "document.getElementById('clipped').textContent"
    assert "are not shown" in chromium.run(clipped)
    chromium.choose("scale", "log")
    assert chromium.run(clipped) == ""


def test_names_are_at_the_ends_of_lines_and_touch_nothing(page: Page) -> None:
    """Two lines end early at a target that is close to another one; the third goes on."""
    page.run("""fedsim.curves(document.getElementById("chart-curves"), "", {
        x: { kind: "time", label: "simulated time", values: [0, 10, 20, 30, 40, 50] },
        y: { kind: "share", label: "accuracy" }, marks: [{ value: 0.79 }, { value: 0.8 }], ends: true,
        series: [["early", 0.5, 0.8, null, null, null], ["too", 0.4, 0.8, null, null, null],
            ["later", 0.2, 0.3, 0.4, 0.5, 0.8], ["low", 0.2, 0.3, 0.4, 0.5, 0.76], ["mid", 0.2, 0.3, 0.4, 0.5, 0.78]]
            .map(([label, ...values]) => ({ label, color: "g0", values: [0.1, ...values] })),
    }); 0""")
    boxes = {
        name: box
        for name, *box in page.run("""[...document.querySelectorAll("#chart-curves text")].map((text) => {
            const { left, right, top, bottom } = text.getBoundingClientRect();
            return [text.textContent, left, right, top, bottom];
        })""")
    }
    left, right, top, bottom = zip(
        *(boxes[name] for name in ("target 80%, 79%", "early", "too", "later")), strict=True
    )
    assert left[1] == pytest.approx(left[2], abs=1)
    assert right[2] < left[3]
    ends = ["later", "mid", "low"]
    assert sorted(ends, key=lambda name: boxes[name][2]) == ends
    for a, b in itertools.combinations(range(4), 2):
        across, down = (
            (right[a] < left[b] or right[b] < left[a]),
            (bottom[a] < top[b] + 3 or bottom[b] < top[a] + 3),
        )
        assert across or down, boxes


@pytest.mark.parametrize("width", [1300, 1000, 390])
def test_times_to_the_target_have_room(page: Page, width: int) -> None:
    """Labels of ticks are about 40 pixels wide, and at least an eighth of the axis apart."""
    page.resize(width)
    page.settle()
    assert page.run("document.querySelector('.dotaxis .strip').clientWidth") >= 320


def test_pointing_at_a_name_fades_the_other_lines(page: Page) -> None:
    faded = """fedsim.charts.get(document.getElementById('chart-curves')).option.series
        .filter((s) => s.lineStyle?.opacity < 0.3).map((s) => s.name)"""
    button = "document.querySelector('#figure-curves .legend button')"
    page.run(f"{button}.dispatchEvent(new PointerEvent('pointerenter'))")
    assert set(page.run(faded)) == {"fedbuff"}
    page.run(f"{button}.dispatchEvent(new PointerEvent('pointerleave'))")
    assert page.run(faded) == []


def test_a_variant_can_be_hidden_with_the_keyboard(page: Page) -> None:
    button = "document.querySelector('#figure-curves .legend button')"
    before = page.run(CURVES)
    page.run(f"{button}.focus()")
    page.press("Enter")
    assert page.run(f"{button}.getAttribute('aria-pressed')") == "false"
    assert page.run(f"document.activeElement === {button}")
    names = "fedsim.charts.get(document.getElementById('chart-curves')).option.series.map((s) => s.name)"
    assert "fedavg" not in page.run(names)
    hidden = page.run(CURVES)
    assert hidden != before
    page.press("Enter")
    assert page.run(f"{button}.getAttribute('aria-pressed')") == "true"
    assert len(page.run(CURVES)) == len(before)


def test_numbers_follow_what_is_chosen(page: Page, comparison: Comparison) -> None:
    page.run("document.querySelector('[data-table=curves]').open = true")
    page.settle()
    read = "[...document.querySelectorAll('[data-table=curves] tbody tr')].map((r) => r.children[1].textContent)"
    for setting in ("alpha=5", "alpha=0.2"):
        page.choose("setting", setting)
        frame = comparison.curves("accuracy", "time_s")
        known = frame[(frame["setting"] == setting) & (frame["label"] == "fedavg")]["median"]
        assert page.run(read) == [f"{100 * value:.1f}%" for value in known]
