"""The rules of numbers in JavaScript: the same cases as in Python, and ticks that can be told apart."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fedsim.analysis.pages import TEMPLATES
from fedsim.vocabulary.formatting import format_level, format_value
from tests.analysis.browser import Page
from tests.runs.synthetic_runs import build_run
from tests.vocabulary.test_formatting import CASES, LEVELS

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("with_reports")]


@pytest.fixture(scope="module")
def page(chromium: Page, tmp_path_factory: pytest.TempPathFactory) -> Page:
    path = tmp_path_factory.mktemp("formatting") / "page.html"
    script = (TEMPLATES / "formatting.js").read_text(encoding="utf-8")
    path.write_text(f"<!doctype html><meta charset=utf-8><script>{script}</script>")
    chromium.open(path)
    return chromium


def written(page: Page, function: str, items: list[tuple[str, float]]) -> list[str]:
    cases = json.dumps([[k, float(v) if math.isfinite(v) else None] for k, v in items])
    texts: list[str] = page.run(f"{cases}.map(([kind, value]) => format.{function}(kind, value))")
    return texts


def test_the_cases_are_written_as_in_python(page: Page) -> None:
    assert written(page, "value", [(kind, value) for kind, value, _ in CASES]) == [
        text for _, _, text in CASES
    ]
    assert written(page, "level", [(kind, value) for kind, value, _ in LEVELS]) == [
        text for _, _, text in LEVELS
    ]


def test_random_values_are_written_as_in_python(page: Page) -> None:
    random = np.random.default_rng(3)
    values = [
        (kind, float(value))
        for kind in ("time", "count", "share", "number", "bytes", "energy")
        for value in random.choice([-1, 1], 400) * 10.0 ** random.uniform(-9, 14, 400)
    ]
    assert written(page, "value", values) == [format_value(v, k) for k, v in values]  # type: ignore[arg-type]
    assert written(page, "level", values) == [format_level(v, k) for k, v in values]  # type: ignore[arg-type]


@pytest.mark.parametrize("start", [0, 35.5 * 3600, 4000 * 86_400])
@pytest.mark.parametrize("step", [1e-6, 0.0005, 0.05, 1, 5, 60, 1800, 3 * 3600, 86_400])
def test_ticks_are_exact(page: Page, start: float, step: float) -> None:
    """No two ticks of an axis read alike, however far it is zoomed."""
    first = math.ceil(start / step)
    ticks = [("time", (first + k) * step) for k in range(1, 12)]
    if step < 1e-5 and start:
        pytest.skip("beyond what a double holds of so long a time")
    texts = written(page, "tick", ticks)
    assert len(set(texts)) == len(texts)
    assert not [text for text in texts if "0000" in text or "9999" in text]
    assert written(page, "tick", [("time", 35.5 * 3600), ("share", 0.2), ("count", 0)]) == [
        "1 d 11 h 30 min",
        "20%",
        "0",
    ]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run(tmp_path_factory.mktemp("formatting") / "run", clients=6, hours=40).report()


@pytest.mark.parametrize("width", [500, 1300])
def test_labels_of_a_zoomed_axis_do_not_overlap(chromium: Page, report: Path, width: int) -> None:
    """The page's own choice of ticks, asked for a stretch of half an hour on the second day."""
    page = chromium
    page.show(report)
    texts = page.run(
        f"fedsim.ticksThatFit('time', 127000, 128800, {width}, 84).map((t) => fedsim.onAxis('time', t))"
    )
    assert len(texts) >= 2
    assert len(set(texts)) == len(texts)
    assert sum(7.2 * len(text) + 14 for text in texts[1:]) <= width


def test_ticks_below_a_second_share_a_unit(chromium: Page, report: Path) -> None:
    page = chromium
    page.show(report)

    def texts(scale: str, low: float, high: float) -> list[str]:
        axis = f"kind: 'time', low: {low}, high: {high}, scale: '{scale}'"
        shown: list[str] = page.run(f"fedsim.axis({{{axis}, pixels: 380, horizontal: true}}).texts")
        return shown

    assert texts("log", 0.015, 0.36) == ["20 ms", "50 ms", "100 ms", "200 ms"]
    # Gaps from 2 s to a day, and from minutes to hours: whole units.
    for low, high in ((600, 90_000), (300, 60_000), (2, 86_400), (1500, 50_400)):
        shown = texts("log", low, high)
        assert len(shown) > 1
        assert all(len(text.split()) == 2 for text in shown), shown
    assert texts("linear", 0, 0.3) == ["0", "100 ms", "200 ms", "300 ms"]
    assert texts("linear", 0, 1.5) == ["0", "0.5 s", "1 s", "1.5 s"]
