"""The printed figure can be read without color."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedsim.analysis.comparison import Comparison
from tests.analysis.comparison.compared import SETTINGS, VARIANTS
from tests.analysis.comparison.made import of, run
from tests.analysis.comparison.test_groups import facts, server


def test_figure_is_told_apart_without_color(comparison: Comparison) -> None:
    figure = comparison.plot("accuracy", "bytes")
    assert [axes.get_title() for axes in figure.axes] == list(SETTINGS)
    lines = figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == list(VARIANTS)
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == 2
    frame = comparison.curves("accuracy", "bytes")
    known = frame[(frame["setting"] == SETTINGS[0]) & (frame["label"] == "fedavg")].dropna(
        subset="mean"
    )
    assert lines[0].get_ydata().tolist() == pytest.approx((100 * known["mean"]).tolist())


def test_the_last_value_of_a_curve_is_marked() -> None:
    """A step ends at it, so that without a marker nothing but the vertical line would show it."""
    for count in (1, 2, 20, 101):
        times = tuple(map(float, range(count)))
        (line,) = of(facts(server("a"), 0, "a", times, (0.5,) * count)).plot().axes[0].lines
        marked = line.get_markevery()
        assert marked[-1] == len(line.get_xdata()) - 1
        assert len(marked) <= 10
        assert sorted(set(marked)) == marked


def _early_and_late() -> Comparison:
    """R² of a slow run, and of one that ended at its first evaluation after an untrained model."""
    slow = facts(server("slow"), 0, "slow", (0.0, 300.0, 2000.0, 4000.0), (-19.4, 0.46, 0.58, 0.7))
    fast = facts(server("fast"), 0, "fast", (0.0, 300.0), (-19.4, 0.74))
    return of(
        *(
            replace(
                run,
                progress=run.progress.rename(columns={"accuracy": "r2"}),
                metrics=("r2",),
            )
            for run in (slow, fast)
        )
    )


def test_a_range_names_the_variants_that_it_leaves_without_a_curve() -> None:
    comparison = of(run("a", accuracy=(0.1, 0.5)), run("b", accuracy=(0.1, 0.9)))
    for ylim, notes in (("70%:95%", ["not shown: a"]), ("40%:95%", [])):
        (axes,) = comparison.plot(ylim=ylim).axes
        assert [text.get_text() for text in axes.texts] == notes


def test_a_range_names_the_variants_whose_runs_end_before_it() -> None:
    long, short = run("a", accuracy=(0.1, 0.5, 0.6, 0.7)), run("b", accuracy=(0.1, 0.9))
    comparison = of(long, short)
    for xlim, notes in (("15s:30s", ["not shown: b"]), ("5s:30s", []), (":30s", [])):
        (axes,) = comparison.plot(xlim=xlim).axes
        assert [text.get_text() for text in axes.texts] == notes
    # The vertical axis fits the curves that are shown.
    (axes,) = comparison.plot(xlim="15s:30s").axes
    assert axes.get_ylim()[1] < 75


def test_the_figure_shows_the_late_range_and_says_so() -> None:
    comparison = _early_and_late()
    (axes,) = comparison.plot("r2").axes
    low, high = 0.58 - 0.06 * 0.16, 0.74 + 0.06 * 0.16
    assert axes.get_ylim() == pytest.approx((low, high))
    assert [text.get_text() for text in axes.texts] == ["not shown: below 0.5704"]
    # A range, a scale or an inset says otherwise.
    styles: list[dict[str, Any]] = [{"ylim": "-20:1"}, {"xlim": "0:1h"}, {"inset": "10min:1h"}]
    for style in styles:
        (axes,) = comparison.plot("r2", **style).axes
        assert axes.get_ylim()[0] < -19
        assert list(axes.texts) == []
