"""What all pages share, in a real browser: silent, offline, usable with a keyboard, readable in both themes."""

from pathlib import Path

import pytest

from fedsim.analysis.pages import write_page
from tests.analysis.browser import Page
from tests.runs.synthetic_runs import build_run

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("with_reports")]


@pytest.fixture(scope="module", params=["report", "comparison"])
def written(
    request: pytest.FixtureRequest, comparison_page: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("pages") / "page.html"
    if request.param == "comparison":
        write_page(path, comparison_page)
        return path
    return build_run(path.parent / "run", clients=20, hours=12, asynchronous=True).report(path)


def test_loads_in_silence_and_without_network(unchanged: Page, written: Path) -> None:
    assert unchanged.complaints == []
    others = {url for url in unchanged.urls if not url.startswith("data:")}
    assert others == {written.as_uri()}
    assert unchanged.run("document.querySelectorAll('.chart svg path').length") > 12
    text = unchanged.run("document.body.innerText")
    assert "undefined" not in text
    assert "NaN" not in text


def test_nothing_moves_while_it_is_drawn(chromium: Page, written: Path) -> None:
    chromium.open(written, unfold=False)
    shift = chromium.run(
        """new Promise((done) => {
            let total = 0;
            new PerformanceObserver((list) => list.getEntries().forEach((e) => { total += e.value; }))
                .observe({ type: "layout-shift", buffered: true });
            setTimeout(() => done(total), 300);
        })"""
    )
    assert shift < 0.05


WIDEST = """[...document.querySelectorAll("main *")].filter((e) => !e.closest(".scroll, pre"))
    .reduce((most, e) => Math.max(most, e.getBoundingClientRect().right), 0)"""


def test_fits_every_width_and_clips_no_table_on_a_laptop(unchanged: Page) -> None:
    for width in (400, 700, 1100, 1220, 1300, 1600):
        unchanged.resize(width)
        unchanged.settle()
        assert unchanged.run("document.documentElement.scrollWidth") <= width
        assert unchanged.run(WIDEST) <= width
        drawn = unchanged.run("document.querySelector('.chart svg').width.baseVal.value")
        assert drawn == unchanged.run("document.querySelector('.chart').clientWidth")
        clipped = unchanged.run(
            """[...document.querySelectorAll("figure .scroll")]
                .filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.ariaLabel)"""
        )
        assert clipped == [] or width < 1300


CONTRASTS = r"""(() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (text) => {
        canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
        .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (element) => {
        for (let e = element; e; e = e.parentElement) {
            const colour = rgba(getComputedStyle(e).backgroundColor);
            if (colour[3] === 255) return colour;
        }
        return rgba(getComputedStyle(document.body).backgroundColor);
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const poor = [];
    let checked = 0;
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim() || !element.checkVisibility({ visibilityProperty: true })) continue;
        if (element.closest(".unseen, script, style, option")) continue;
        const style = getComputedStyle(element);
        const ink = rgba(element instanceof SVGElement ? style.fill : style.color);
        const [a, b] = [light(ink), light(ground(element))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        checked += 1;
        if (ratio < 4.5) poor.push(`${walker.currentNode.textContent.trim()}: ${ratio.toFixed(2)}`);
    }
    return { poor, checked };
})()"""


def test_contrast_in_both_themes(unchanged: Page) -> None:
    for scheme in ("light", "dark"):
        unchanged.prefer(scheme)
        dark = unchanged.run("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
        assert dark == (scheme == "dark")
        contrasts = unchanged.run(CONTRASTS)
        assert contrasts["checked"] > 150, scheme
        assert contrasts["poor"] == [], scheme


def test_prints_in_light_without_controls(unchanged: Page) -> None:
    unchanged.prefer("dark")
    unchanged.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert unchanged.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert unchanged.run("getComputedStyle(document.querySelector('.top')).display") == "none"
    unchanged.call("Emulation.setEmulatedMedia", media="", features=[])
    pdf = unchanged.call("Page.printToPDF", printBackground=True)["data"]
    assert len(pdf) > 50_000
    assert unchanged.complaints == []


def test_theme_can_be_switched(unchanged: Page) -> None:
    unchanged.prefer("light")
    for label, scheme in [
        ("light", "rgb(244, 246, 248)"),
        ("dark", "rgb(15, 19, 24)"),
        ("auto", "rgb(244, 246, 248)"),
    ]:
        unchanged.run("document.getElementById('theme').click()")
        assert unchanged.run("document.getElementById('theme').textContent") == f"Theme: {label}"
        assert unchanged.run("getComputedStyle(document.body).backgroundColor") == scheme


def test_tab_reaches_every_control(page: Page) -> None:
    expected = page.run(
        """(() => {
            const all = "a[href], button, select, input, summary, .chart[tabindex]";
            const visible = [...document.querySelectorAll(all)]
                .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !(e.type === "radio" && !e.checked));
            visible.forEach((e, number) => { e.dataset.stop = number; });
            return visible.length;
        })()"""
    )
    reached: set[int] = set()
    presses = 0
    while len(reached) < expected and presses < expected + 40:
        presses += 1
        page.press("Tab")
        stop, outlined = page.run(
            """[document.activeElement.dataset.stop ?? null,
                getComputedStyle(document.activeElement).outlineStyle !== "none"]"""
        )
        if stop is not None:
            reached.add(int(stop))
            assert outlined, stop
    assert expected > 25
    assert reached == set(range(expected))


def test_skip_link_comes_first_and_works(page: Page) -> None:
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    page.press("Enter")
    assert page.run("document.activeElement.id") == "main"
