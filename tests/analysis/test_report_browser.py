"""The report page in a real browser: silent, offline, usable with a keyboard, readable in both themes."""

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from synthetic_runs import build_run

from fedsim.analysis.run import Run
from fedsim.vocabulary.formatting import format_duration, format_share
from tests.analysis.browser import Page
from tests.composition.test_closing import simulate

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("with_reports")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("browser") / "run"
    return build_run(path, clients=20, hours=12, asynchronous=True)


@pytest.fixture(scope="module")
def written(run: Run) -> Path:
    return run.report()


@pytest.fixture(scope="module")
def synchronous(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return build_run(tmp_path_factory.mktemp("synchronous") / "run", clients=12, hours=30)


def test_a_value_holds_until_the_next_evaluation(unchanged: Page) -> None:
    """As on the page of a comparison: the global model does not change gradually between evaluations."""
    series = "fedsim.charts.get(document.getElementById('chart-learning')).option.series[0]"
    assert unchanged.run(f"{series}.step") == "end"


def test_a_figure_can_be_saved(unchanged: Page, run: Run) -> None:
    drawing = unchanged.run("fedsim.picture(document.getElementById('chart-outcomes'))")
    root = ElementTree.fromstring(drawing)
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Useful and lost work" in texts
    assert any(text.startswith("aggregated ") for text in texts)
    rows = unchanged.run("fedsim.csv(fedsim.data.learning)").splitlines()
    assert rows[0].split(",")[:3] == ["time_s", "version", "round"]
    assert len(rows) == len(run.metrics) + 1
    labels = unchanged.run(
        "[...document.querySelectorAll('#figure-outcomes .save button')].map((b) => b.textContent)"
    )
    assert labels == ["SVG", "PNG", "CSV"]
    size = unchanged.run(
        """new Promise((done) => fedsim.png(
            fedsim.picture(document.getElementById('chart-outcomes')), (blob) => done(blob.size)))"""
    )
    assert size > 5000


def test_bars_of_the_page_can_be_saved_as_pictures(unchanged: Page, run: Run) -> None:
    """Widths of the parts are their shares of the time, and every word of the card is in the picture."""
    drawing = unchanged.run("fedsim.snapshot(document.querySelector('#figure-time .body'))")
    root = ElementTree.fromstring(drawing)
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "Where the time went"
    words = unchanged.run("document.querySelector('#figure-time .body').innerText").split()
    assert set(words) <= set(" ".join(texts).split())
    bars = unchanged.run(
        """[...document.querySelectorAll('#figure-time .bar span')].map((part) => {
            const { width, height } = part.getBoundingClientRect();
            return [width, height];
        })"""
    )
    drawn = {
        (float(rect.get("width", "")), float(rect.get("height", "")))
        for rect in list(root.iter("{http://www.w3.org/2000/svg}rect"))[1:]
    }
    assert {tuple(bar) for bar in bars} <= drawn
    labels = "[...document.querySelectorAll('#figure-time .save button')].map((b) => b.textContent)"
    assert unchanged.run(labels) == ["SVG", "PNG", "CSV"]


def test_arrow_keys_read_the_chart(unchanged: Page, run: Run) -> None:
    unchanged.run("document.querySelector('#chart-learning').focus()")
    unchanged.press("ArrowRight")
    unchanged.press("ArrowRight")
    row = run.metrics.iloc[1]
    said = unchanged.said
    assert f"accuracy {100 * row['accuracy']:.1f}%" in said
    # Charts over the same time read the same instant, to the width of their points.
    places = "fedsim.charts.get(document.getElementById('chart-online')).state"
    read = unchanged.run(f"{places}.drawn.along.value({places}.drawn.places[{places}.current].x)")
    assert read == pytest.approx(row["time_s"], abs=run.simulated_s / 100)
    unchanged.run("document.activeElement.blur()")
    assert unchanged.run(f"{places}.current") == -1


def test_x_axis_can_be_zoomed_and_reset(unchanged: Page, run: Run) -> None:
    """A drag over the second quarter of the plot; the vertical range follows what is left."""
    ticks = "[...document.querySelectorAll('#chart-learning svg text')].map((t) => t.textContent)"
    unchanged.run("document.querySelector('#chart-learning').scrollIntoView({ block: 'center' })")
    unchanged.settle()
    whole = unchanged.run(ticks)
    left, top, width, height = unchanged.run(
        """(({ left, top, width, height }) => [left, top, width, height])(
            document.querySelector('#chart-learning').getBoundingClientRect())"""
    )
    begin, end, y = left + width / 4, left + width / 2, top + height / 2
    unchanged.drag((begin, y), (end, y))
    zoomed = unchanged.run(
        "fedsim.charts.get(document.getElementById('chart-learning')).state.zoom"
    )
    assert 0 < zoomed[0] < zoomed[1] < run.simulated_s
    for other in ("outcomes", "online"):
        state = f"fedsim.charts.get(document.getElementById('chart-{other}')).state"
        assert unchanged.run(f"{state}.zoom") == zoomed
    # So does the life of clients.
    view = unchanged.run("document.getElementById('chart-timeline').dataset.view")
    assert [float(end) for end in view.split()] == pytest.approx(zoomed, abs=1)
    inside = run.metrics["time_s"].between(*zoomed)
    lowest = run.metrics["accuracy"][inside].min()
    axis = unchanged.run(
        "fedsim.charts.get(document.getElementById('chart-learning')).option.yAxis.min"
    )
    assert 0 < axis < lowest
    assert unchanged.run(ticks) != whole
    unchanged.run(
        "document.querySelector('#chart-learning').dispatchEvent(new MouseEvent('dblclick'))"
    )
    unchanged.settle()
    assert unchanged.run(ticks) == whole


def test_numbers_of_a_figure_open_as_a_table(unchanged: Page, run: Run) -> None:
    details = "document.querySelector('[data-table=learning]')"
    unchanged.run(f"{details}.open = true")
    unchanged.settle()
    rows = unchanged.run(f"{details}.querySelectorAll('tbody tr').length")
    assert rows == len(run.metrics)
    unchanged.run(f"{details}.open = false")


@pytest.mark.parametrize("kind", ["timing-only", "killed", "empty"])
def test_lesser_runs_have_a_page_too(chromium: Page, tmp_path: Path, kind: str) -> None:
    settings = {
        "timing-only": {"learning": False, "hours": 6},
        "killed": {"finish": False, "hours": 6},
        "empty": {"cohort": 0, "hours": 0.001, "asynchronous": True, "learning": False},
    }[kind]
    other = build_run(tmp_path / "run", clients=12, **settings)  # type: ignore[arg-type]
    chromium.open(other.report())
    assert chromium.complaints == []
    assert chromium.run("document.getElementById('figure-learning') === null") == (kind != "killed")
    assert "undefined" not in chromium.run("document.body.innerText")
    assert "NaN" not in chromium.run("document.body.innerText")


CROSSED = """(() => {
    const svg = document.querySelector("#chart-learning svg"), texts = [...svg.querySelectorAll("text")];
    const curve = [...svg.querySelectorAll("path[stroke-width='2.25']")].at(-1), length = curve.getTotalLength();
    const matrix = curve.getScreenCTM();
    const along = (i) => curve.getPointAtLength((i / 1999) * length).matrixTransform(matrix);
    // The part below the late range is clipped.
    const bottom = svg.getBoundingClientRect().top
        + fedsim.charts.get(document.getElementById("chart-learning")).state.drawn.box.bottom;
    const points = Array.from({ length: 2000 }, (_, i) => along(i)).filter((p) => p.y <= bottom + 1);
    const boxes = texts.map((text) => text.getBoundingClientRect());
    const meets = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
        && a.top < b.bottom - 3 && b.top < a.bottom - 3;
    const holds = (box, p) => box.left < p.x && p.x < box.right && box.top < p.y && p.y < box.bottom;
    const named = (keep) => texts.filter((_, k) => keep(k)).map((text) => text.textContent);
    return {
        notes: texts.filter((text) => text.textContent.startsWith("target")).length,
        crossed: named((k) => points.some((p) => holds(boxes[k], p))),
        touching: named((k) => boxes.some((box, j) => j < k && meets(box, boxes[k]))),
    };
})()"""


@pytest.mark.parametrize("target", [0.3, 0.8, 0.99])
def test_the_curve_does_not_run_through_words(
    chromium: Page, synchronous: Run, target: float
) -> None:
    run = Run(synchronous.folder)
    run.scenario["stop"]["target"]["accuracy"] = target
    chromium.open(run.report(run.path / "target.html"))
    for width in (400, 1300):
        chromium.resize(width)
        chromium.settle()
        crossings = chromium.run(CROSSED)
        assert crossings == {"notes": 1, "crossed": [], "touching": []}, width


def test_x_axis_and_metric_can_be_chosen(page: Page) -> None:
    before = page.run("document.querySelector('#chart-learning').innerHTML")
    page.click("input[value=bytes]")
    by_bytes = page.run("document.querySelector('#chart-learning').textContent")
    assert "data moved" in by_bytes
    page.choose("metric", "loss")
    after = page.run("document.querySelector('#chart-learning').innerHTML")
    assert "loss" in page.run("document.querySelector('#chart-learning').textContent")
    assert before != after
    assert page.complaints == []


def test_an_untrained_model_does_not_compress_the_chart(chromium: Page, run: Run) -> None:
    metrics = run.metrics.assign(r2=run.metrics["accuracy"])
    metrics.loc[0, "r2"] = -20.0
    other = Run(run.folder)
    other.metrics = metrics.drop(columns="accuracy")
    chromium.open(other.report(run.path / "r2.html"))
    chromium.choose("metric", "r2")
    bottom = "fedsim.charts.get(document.getElementById('chart-learning')).option.yAxis.min"
    assert chromium.run(bottom) > 0
    clipped = "document.getElementById('clipped').textContent"
    assert "clear “late range” to see them" in chromium.run(clipped)
    chromium.click("#focus")
    assert chromium.run(bottom) < -20
    assert chromium.run(clipped) == ""
    # A single value beside the untrained one has no range.
    other.metrics = metrics.drop(columns="accuracy").iloc[:2]
    chromium.open(other.report(run.path / "r2.html"))
    chromium.choose("metric", "r2")
    assert chromium.run(bottom) < -20


@pytest.mark.parametrize("scale", ["log", "logit"])
def test_scales(page: Page, scale: str) -> None:
    page.choose("scale", scale)
    option = page.run(
        "(({ min, max }) => [min, max])(fedsim.charts.get(document.getElementById('chart-learning')).option.yAxis)"
    )
    reached = page.run("Math.max(...fedsim.column('learning', 'accuracy').values)")
    expected = math.log10(reached) if scale == "log" else math.log(reached / (1 - reached))
    assert option[0] < expected < option[1]
    assert page.complaints == []


VIEW = """(({ view, mode }) => [view.split(' ').map(Number), mode])(
    document.getElementById('chart-timeline').dataset)"""


def test_the_life_of_clients_opens_on_the_whole_run_and_moves_with_keys(
    page: Page, run: Run
) -> None:
    assert page.run(VIEW)[0] == [0, round(run.simulated_s)]
    page.run("document.getElementById('chart-timeline').focus()")
    views = [page.run(VIEW)]
    for key in ("+", "ArrowRight", "0"):
        page.press(key)
        assert page.run(VIEW) != views[-1], key
        views.append(page.run(VIEW))
    assert views[-1][0] == [0, round(run.simulated_s)]
    for key in ("ArrowDown", "Enter"):
        page.press(key)
    said = page.said
    number = int(said.split("dispatch ")[1].split(",")[0])
    assert run.dispatches.loc[number, "outcome"] in said


def test_the_run_can_be_played_with_the_keyboard_and_starts_still(page: Page, run: Run) -> None:
    clock = "document.getElementById('clock').textContent"
    assert page.run(clock) == ""
    page.call(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-reduced-motion", "value": "reduce"}],
    )
    controls = (
        "['sort', 'client'].map((id) => document.getElementById(id).getBoundingClientRect().left)"
    )
    online = "document.querySelector('#figure-timeline .legend rect').style.fill"
    page.settle()
    before = page.run(controls), page.run(online)
    assert page.run("document.getElementById('play').textContent") == "Next 5% of the run"
    page.run("document.getElementById('chart-timeline').focus()")
    for steps in (1, 2):
        page.press(" ")
        at_s = steps * 0.05 * run.simulated_s
        measured = run.metrics[run.metrics["time_s"] <= at_s]["accuracy"].iloc[-1]
        assert page.run(clock) == f"{format_duration(at_s)} · accuracy {format_share(measured)}"
        assert page.run(clock) == page.run(clock), "nothing moves by itself"
        assert (page.run(controls), page.run(online)) == before
    page.press("p")
    shown = int(page.run(CLIENTS)[0])
    assert page.run("document.querySelectorAll('.lamps .pinned').length") == 1
    readout = "document.querySelector('.readout[data-for=chart-timeline]').textContent"
    assert page.run(readout).startswith(f"Client {shown}: ")
    page.press("Escape")
    assert page.run(clock) == ""
    assert page.run("document.querySelectorAll('.veil').length") == 0


def test_the_life_of_clients_shows_pauses(chromium: Page, tmp_path: Path) -> None:
    """Ten steps of 1 s, interrupted from 4 to 30 s."""
    paused = simulate(tmp_path, "pause", [(0, 4), (30, 60)])
    chromium.open(paused.report())
    legend = chromium.run("document.querySelector('#figure-timeline .legend').textContent")
    assert "paused while offline" in legend
    chromium.run("document.getElementById('chart-timeline').focus()")
    for key in ("ArrowDown", "Enter"):
        chromium.press(key)
    said = chromium.said
    assert "download 1 s · compute 10 s · upload 2 s · paused 26 s" in said
    assert chromium.complaints == []


def test_nights_are_shaded(chromium: Page, tmp_path: Path) -> None:
    """A run that begins at 18 o'clock has its first night, from 22 to 6 o'clock, after 4 to 12 hours."""
    run = build_run(tmp_path / "run", clients=5, hours=40, asynchronous=True)
    run.info["time_of_day_s"] = 18 * 3600
    chromium.open(run.report())
    shades = chromium.run(
        """(({ option, state: { drawn } }) => option.graphic.filter(({ type, z }) => type === "rect" && z < 0)
            .map(({ shape: { x, width } }) => [drawn.along.value(x), drawn.along.value(x + width)]))(
            fedsim.charts.get(document.getElementById("chart-online")))"""
    )
    hours = [[end / 3600 for end in shade] for shade in shades]
    assert hours == [pytest.approx([4, 12]), pytest.approx([28, 36])]


def test_the_legend_says_when_lines_of_updates_are_left_out(page: Page) -> None:
    """All updates of a day would merge into one area; a view with few of them shows each."""
    legend = "document.querySelector('#figure-timeline .legend').textContent"
    page.run("document.getElementById('chart-timeline').focus()")
    page.press("0")
    assert page.run(legend).endswith("server update (when zoomed in)")
    for _ in range(12):
        page.press("+")
    assert page.run(legend).endswith("server update")


LABEL = "fedsim.charts.get(document.getElementById('chart-timeline')).option.yAxis[0].axisLabel"


CLIENTS = f"{LABEL}.customValues.map({LABEL}.formatter)"
"""The clients whose rows are shown."""


def test_clients_can_be_sorted_filtered_and_found(page: Page, run: Run) -> None:
    shown = CLIENTS
    given = run.dispatches[run.dispatches["outcome"] == "aggregated"]["client_id"].value_counts()
    assert run.critical is not None
    on_path = run.critical[run.critical["client_id"] >= 0]
    seconds = (on_path["to_s"] - on_path["from_s"]).groupby(on_path["client_id"]).sum()
    assert int(page.run(shown)[0]) == seconds.idxmax()
    page.choose("sort", "most updates first")
    assert given[int(page.run(shown)[0])] == given.max()
    page.choose("sort", "fewest updates first")
    assert given.get(int(page.run(shown)[0]), 0) == min(
        given.get(client, 0) for client in run.dispatches["client_id"].unique()
    )
    page.choose("filter", "with lost work")
    lost = run.dispatches[run.dispatches["outcome"].isin(["late", "dropped", "cut", "discarded"])]
    assert {int(client) for client in page.run(shown)} <= set(lost["client_id"])
    page.type("client", "3")
    page.settle()
    assert "Client 3, dispatch" in page.said
    page.type("client", "777")
    assert "777 is not among" in page.said


def test_from_far_away_work_is_summed_and_near_it_has_phases(page: Page) -> None:
    page.click("[data-view=whole]")
    assert page.run(VIEW)[1] == "sums"
    for _ in range(12):
        page.click("[data-view=in]")
    assert page.run(VIEW)[1] == "phases"
