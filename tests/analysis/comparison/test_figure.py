"""The style of a comparison's figure: ranges, lengths, venues, panels, scales and insets."""

from __future__ import annotations

from typing import Any

import pytest

from fedsim.analysis.comparison import Comparison
from fedsim.analysis.comparison.figure import inches, limits
from fedsim.errors import UserError
from tests.analysis.comparison.test_groups import facts, server


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("0:2d", "time", (0, 172_800)),
        ("1h:", "time", (3600, None)),
        ("85%:0.95", "share", (0.85, 0.95)),
        (":500MB", "bytes", (None, 5e8)),
        ("-1.5:2", "number", (-1.5, 2)),
        (None, "time", (None, None)),
    ],
)
def test_ranges(text: str, kind: Any, expected: tuple[float | None, float | None]) -> None:
    assert limits(text, kind, "xlim") == expected


@pytest.mark.parametrize(("text", "kind"), [("2d", "time"), ("2d:1d", "time"), ("a:b", "share")])
def test_ranges_that_are_none(text: str, kind: Any) -> None:
    with pytest.raises(UserError, match="is not a range") as caught:
        limits(text, kind, "xlim")
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("text", "expected"), [("84mm", 84 / 25.4), ("3.25in", 3.25), ("5", 5), ("240pt", 240 / 72.27)]
)
def test_lengths(text: str, expected: float) -> None:
    assert inches(text, "width") == pytest.approx(expected)


@pytest.mark.parametrize("text", ["wide", "0mm", "-3in", "1.2.3in"])
def test_lengths_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match="is not a length"):
        inches(text, "width")


def test_a_figure_has_the_width_of_a_venue(comparison: Comparison) -> None:
    figure = comparison.plot(["accuracy", "loss"], width="ieee-text", height="60mm")
    assert figure.get_size_inches().tolist() == pytest.approx([7.16, 60 / 25.4])
    # Two metrics in two settings.
    assert [axes.get_ylabel() for axes in figure.axes] == ["accuracy (%)"] * 2 + ["loss"] * 2


def test_ranges_and_scales_of_a_figure(comparison: Comparison) -> None:
    figure = comparison.plot("accuracy", xlim="5s:20s", ylim="30%:90%", inset="10s:20s")
    for axes in figure.axes:
        assert axes.get_xlim() == pytest.approx((5, 20))
        assert axes.get_ylim() == pytest.approx((30, 90))
        (inset,) = axes.child_axes
        assert inset.get_xlim() == pytest.approx((10, 20))
    logit = comparison.plot("accuracy", log="logit").axes[0]
    assert logit.get_yscale() == "logit"
    assert comparison.plot("loss", log="xy").axes[0].get_xscale() == "log"


def test_an_inset_hides_neither_the_curves_nor_its_region() -> None:
    # A curve along the left and the top: only the lower right corner is free.
    low = facts(server("fedavg"), 0, "a", (0.0, 1.0, 90.0, 100.0), (0.1, 0.9, 0.92, 0.93))
    comparison = Comparison(((low,), (), None))
    figure = comparison.plot("accuracy", inset="80s:100s", ylim="0%:100%")
    (inset,) = figure.axes[0].child_axes
    figure.draw_without_rendering()
    box = inset.get_position()
    panel = figure.axes[0].get_position()
    assert box.x0 > (panel.x0 + panel.x1) / 2
    assert box.y1 < (panel.y0 + panel.y1) / 2
    assert len(inset.get_xticks()) <= 5
    assert inset.get_ylim()[0] < 90 < inset.get_ylim()[1]


@pytest.mark.parametrize(
    ("region", "message"),
    [
        ("2min:3min", "outside the data\n  the curves go from 0 s to 1 min 40 s"),
        ("10s:10.5s", "below 1 % of the axis"),
        ("10s:90s,1%:2%", "no curve has a value in this region"),
    ],
)
def test_insets_that_show_nothing(region: str, message: str) -> None:
    run = facts(server("fedavg"), 0, "a", (0.0, 100.0), (0.1, 0.9))
    with pytest.raises(UserError, match=message):
        Comparison(((run,), (), None)).plot("accuracy", inset=region)


def test_insets_are_left_out_of_narrow_panels(
    comparison: Comparison, caplog: pytest.LogCaptureFixture
) -> None:
    figure = comparison.plot("accuracy", inset="10s:20s", width="3in")
    assert not any(axes.child_axes for axes in figure.axes)
    assert [record.message for record in caplog.records] == [
        "the panels are too narrow for insets; choose a larger --width"
    ]
