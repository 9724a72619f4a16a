"""The style of a comparison's figure: ranges, lengths, venues, panels, scales and insets."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedsim.analysis.comparison import Comparison
from fedsim.analysis.comparison.figure import FigureStyle, inches, limits
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


@pytest.mark.parametrize(
    ("text", "kind"),
    [("2d", "time"), ("2d:1d", "time"), ("1:2:3", "number"), ("5", "share")]
    + [(value, "number") for value in (5, (1,), (2, 1), ("a", "b"), ([1], 2))],
)
def test_ranges_that_are_none(text: Any, kind: Any) -> None:
    with pytest.raises(UserError, match="is not a range") as caught:
        limits(text, kind, "xlim")
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("0:40", "time", "'40' has no unit, as 40min has"),
        ("0:500", "bytes", "'500' has no unit, as 500MB has"),
        ("0:2parsecs", "time", "'2parsecs' has no known unit of a duration: use one of"),
        ("a:b", "time", "'a' is not a duration"),
        ("a:b", "share", "'a' is not a number"),
        ("1h:2h", "count", "'1h' is not a number"),
        ("0,5:1", "number", "'0,5' is not a number: decimal numbers are written with a point: 0.5"),
    ],
)
def test_ends_of_a_range_without_a_known_unit(text: str, kind: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        limits(text, kind, "xlim")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("value", "meant"), [("85:95", "85%:95%"), (":95", ":95%"), ("0.5:95", "50%:95%")]
)
def test_percentages_without_their_sign(value: str, meant: str) -> None:
    with pytest.raises(UserError, match="not a range of shares") as caught:
        limits(value, "share", "ylim")
    assert caught.value.hint == f"write {meant}"
    assert limits("0.8:1.05", "share", "ylim") == (0.8, 1.05)


def test_one_end_of_a_range_leaves_the_other_to_the_curves(with_loss: Comparison) -> None:
    (axes,) = with_loss.plot("accuracy", ylim="30%:", xlim=":15s").axes
    assert axes.get_ylim() == pytest.approx((30, 50 + 0.04 * 40))


@pytest.mark.parametrize(
    ("text", "expected"), [("84mm", 84 / 25.4), ("3.25in", 3.25), (5, 5), ("240pt", 240 / 72.27)]
)
def test_lengths(text: str | float, expected: float) -> None:
    assert inches(text, "width") == pytest.approx(expected)


@pytest.mark.parametrize("length", ["wide", "84", "0mm", "-3in", "1.2.3in", 300, -1.0, True])
def test_lengths_that_are_none(length: str | float) -> None:
    with pytest.raises(UserError, match="is not a length"):
        inches(length, "width")


@pytest.mark.parametrize(
    ("length", "where", "message"),
    [
        ("ieeee", "width", "width: there is no venue 'ieeee'\n  did you mean 'ieee'?"),
        ("neurip-text", "width", "there is no venue 'neurip-text'\n  did you mean 'neurips-text'?"),
        (
            "3,5in",
            "width",
            "not a length or a known venue\n  decimal numbers are written with a point: 3.5in",
        ),
        ("ieee", "height", "is not a length\n  write a number and a unit, such as 84mm, 8.4cm, "),
        (
            "9m",
            "width",
            "is not a length or a known venue\n  write a number and a unit, such as 84mm, .* venue: acm, ",
        ),
        ("3mm", "height", "'3mm' is not a length from 0.5 to 100 inches\n  write [^:]*$"),
    ],
)
def test_wrong_lengths_lead_to_right_ones(length: str, where: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        inches(length, where)


def test_a_range_of_another_axis_names_the_axis() -> None:
    for style in ({"xlim": "1h:2h"}, {"inset": "1h:2h,0.1:0.2"}):
        with pytest.raises(UserError) as caught:
            FigureStyle(against="version", **style).resolved("share")
        assert str(caught.value).partition(": ")[2] == (
            "'1h' is not a number\n"
            "  write two values, the lower first: 0:100; the axis is server updates (--against version)"
        )
    with pytest.raises(UserError, match=r"0:500MB; the axis is data moved \(--against bytes\)"):
        FigureStyle(against="bytes", xlim="1h:2h").resolved("share")


def test_a_figure_has_the_width_of_a_venue(comparison: Comparison) -> None:
    figure = comparison.plot(["accuracy", "loss"], width="ieee-text", height="60mm")
    assert figure.get_size_inches().tolist() == pytest.approx([7.16, 60 / 25.4])
    # Two metrics in two settings.
    labels = [axes.get_ylabel().replace("\n", " ") for axes in figure.axes]
    assert labels == ["accuracy (%)"] * 2 + ["loss"] * 2


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


@pytest.mark.parametrize(
    ("style", "message"),
    [
        (
            {"log": "x", "xlim": "0:40min"},
            "xlim: 0 cannot be shown on a logarithmic axis\n  leave out that end: --xlim :40min",
        ),
        ({"log": "y", "ylim": "-1:0"}, "ylim: -1 cannot be shown .*\n  leave out the range"),
        ({"log": "xy", "ylim": ["loss=0:2"]}, "leave out that end: --ylim loss=:2"),
        ({"log": "logit", "ylim": "40%:100%"}, "leave out that end: --ylim 40%:"),
        ({"log": "y", "inset": "1s:5s,0:95%"}, "leave out that end: --inset 1s:5s,:95%"),
        ({"ylim": (0, 1), "log": "y"}, "0 cannot be shown on a logarithmic axis"),
        ({"inset": ((1, 5), (0, 1)), "log": "y"}, "inset: 0 cannot be shown on a logarithmic axis"),
        ({"ylim": "mae=0:1"}, "no panel of 'mae'\n  metrics of the figure: accuracy, loss"),
        ({"ylim": ["0:1", "accuracy=0:1"]}, "two ranges for 'accuracy'"),
    ],
)
def test_ranges_that_an_axis_cannot_show(style: Any, message: str) -> None:
    metric, kind = ("loss", "number") if "loss" in message else ("accuracy", "share")
    with pytest.raises(UserError, match=message):
        FigureStyle(("accuracy", "loss"), **style).resolved(kind, metric)


def test_ranges_that_a_logarithmic_axis_can_show() -> None:
    assert FigureStyle(log="x", xlim=":40min", ylim="0:1").resolved("share").xlim == (None, 2400)


@pytest.fixture
def with_loss() -> Comparison:
    run = facts(server("fedavg"), 0, "a", (0.0, 10.0, 20.0), (0.1, 0.5, 0.9))
    progress = run.progress.assign(loss=[2.3, 1.5, 0.6])
    run = dataclasses.replace(run, progress=progress, metrics=("accuracy", "loss"))
    return Comparison(((run,), (), None))


def test_a_range_and_the_inset_belong_to_one_metric(with_loss: Comparison) -> None:
    figure = with_loss.plot(["accuracy", "loss"], ylim="30%:90%", inset="10s:20s,40%:60%")
    accuracy, loss = figure.axes
    assert accuracy.get_ylim() == pytest.approx((30, 90))
    assert loss.get_ylim()[1] > 1
    assert [len(axes.child_axes) for axes in figure.axes] == [1, 0]
    figure = with_loss.plot("accuracy", ylim="80%:100%", inset="10s:20s")
    assert figure.axes[0].child_axes[0].get_ylim()[0] == pytest.approx(80)
    named = with_loss.plot(["accuracy", "loss"], ylim=["loss=0.5:2", "0.3:90%"])
    assert named.axes[0].get_ylim() == pytest.approx((30, 90))
    assert named.axes[1].get_ylim() == pytest.approx((0.5, 2))


def test_a_logarithmic_axis_has_few_plain_numbers() -> None:
    times = tuple(60.0 * minute for minute in (0, 2, 5, 9, 14, 25, 38))
    run = facts(server("fedavg"), 0, "a", times, (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9))
    comparison = Comparison(((run,), (), None))
    figure = comparison.plot("accuracy", log="x", width="ieee", inset="10min:20min")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (inset,) = axes.child_axes

    def labels(axes: Any) -> list[str]:
        low, high = axes.get_xlim()
        ticks = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        return [text.get_text() for tick, text in ticks if low <= tick <= high]

    assert labels(axes) == ["2", "5", "10", "20"]
    assert labels(inset) == ["10", "20"]
    assert not any(text.get_text() for text in axes.get_xticklabels(minor=True))
    bottom = min(text.get_window_extent().y0 for text in inset.get_xticklabels())
    assert bottom > axes.get_window_extent().y0


def test_labels_fit_a_low_figure(with_loss: Comparison, caplog: pytest.LogCaptureFixture) -> None:
    figure = with_loss.plot(["accuracy", "loss"], width="ieee", height="45mm", inset="10s:20s")
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert axes.yaxis.label.get_window_extent().y1 <= figure.bbox.y1
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "simulated time (s)"]
    assert "the panels are too low for insets" in caplog.text


@pytest.mark.parametrize(
    ("xlim", "expected"),
    [
        ("12s:18s", {12, 14, 16, 18}),
        ("2s:30s", {2, 5, 10, 20}),
        ("1s:100s", {1, 2, 5, 10, 20, 50, 100}),
    ],
)
def test_ticks_of_a_logarithmic_axis(xlim: str, expected: set[int]) -> None:
    run = facts(server("fedavg"), 0, "a", (0.0, 10.0, 20.0), (0.1, 0.5, 0.9))
    figure = Comparison(((run,), (), None)).plot("accuracy", log="x", xlim=xlim, width="ieee")
    ticks = figure.axes[0].get_xticks()
    assert len(ticks) <= 9
    assert expected <= {round(tick, 6) for tick in ticks}


def test_a_figure_without_room_for_panels(
    with_loss: Comparison, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    with_loss.plot(["accuracy", "loss"], width="1in", height="0.6in")
    assert "no room for its panels" in caplog.text
    assert not recwarn.list


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
    "curves",
    [
        [(0.1, 0.7, 0.85, 0.9, 0.92), (0.1, 0.3, 0.5, 0.6, 0.65)],
        [(0.9, 0.5, 0.3, 0.2, 0.15), (0.9, 0.7, 0.5, 0.45, 0.4)],
        [(0.1, 0.2, 0.4, 0.7, 0.9), (0.9, 0.6, 0.5, 0.3, 0.2)],
    ],
)
@pytest.mark.parametrize("region", ["10s:20s", "30s:50s", "80s:100s"])
def test_lines_to_an_inset_cross_no_curve(curves: list[tuple[float, ...]], region: str) -> None:
    runs = [
        facts(server(f"m{number}"), 0, f"{number}", (0.0, 25.0, 50.0, 75.0, 100.0), values)
        for number, values in enumerate(curves)
    ]
    comparison = Comparison((tuple(runs), (), None))
    figure = comparison.plot("accuracy", inset=region, ylim="0%:100%")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (indicator,) = [artist for artist in axes.get_children() if hasattr(artist, "connectors")]
    lines = [connector for connector in indicator.connectors if connector.get_visible()]
    assert lines
    crossings = []
    for line in lines:
        begin, end = line.get_path().transformed(line.get_transform()).vertices[[0, -1]]
        points = begin + np.linspace(0.01, 0.99, 3000)[:, None] * (end - begin)
        x, y = axes.transData.inverted().transform(points).T
        for curve in axes.get_lines():
            at = np.searchsorted(curve.get_xdata(), x, side="right") - 1
            above = y > np.asarray(curve.get_ydata())[at]
            crossings.append(int(np.abs(np.diff(above.astype(int))).sum()))
    # If every line crosses a curve, a single one is drawn.
    assert not any(crossings) or len(lines) == 1


@pytest.mark.parametrize(
    ("style", "message"),
    [
        (
            {"inset": "2min:3min"},
            r"the inset \(2 min to 3 min\) is outside the data\n  the curves in the figure go from 0 s to 1 min 40 s",
        ),
        (
            {"inset": "50s:90s", "xlim": "0:40s"},
            r"the inset \(50 s to 1 min 30 s\) is outside the data\n  the curves in the figure go from 0 s to 40 s",
        ),
        (
            {"inset": "10s:10.5s"},
            r"the inset \(10 s to 10.5 s\) covers less than 1% of the horizontal axis",
        ),
        (
            {"inset": "0s:100s,1%:2%"},
            "no curve has a value in the inset\n  the curves go from 10.0% to 90.0% there",
        ),
        (
            {"xlim": "2min:3min"},
            "the range is outside the data\n  the curves go from 0 s to 1 min 40 s",
        ),
        ({"ylim": "95%:96%"}, "outside the data\n  the curves go from 10.0% to 90.0%"),
        (
            {"ylim": "200%:300%"},
            "'200%:300%' is not a range of shares\n  shares end at 100%: for example 85%:95%",
        ),
        ({"ylim": "200:300"}, "shares end at 100%: for example 85%:95%"),
        ({"ylim": "85:95"}, "'85:95' is not a range of shares\n  write 85%:95%"),
    ],
)
def test_regions_that_show_nothing(style: dict[str, Any], message: str) -> None:
    run = facts(server("fedavg"), 0, "a", (0.0, 100.0), (0.1, 0.9))
    with pytest.raises(UserError, match=message):
        Comparison(((run,), (), None)).plot("accuracy", **style)


def test_an_inset_ends_with_the_curves_and_says_so_once(
    with_loss: Comparison, caplog: pytest.LogCaptureFixture
) -> None:
    for xlim in (None, "0:40s"):
        caplog.clear()
        figure = with_loss.plot(["accuracy", "loss"], inset="10s:30s", xlim=xlim)
        assert figure.axes[0].child_axes[0].get_xlim() == pytest.approx((10, 20))
        cut = [record.message for record in caplog.records if "cut" in record.message]
        assert cut == [
            "the inset (10 s to 30 s) is cut at the end of the data: the curves in the figure go from 0 s to 20 s"
        ]
    caplog.clear()
    with_loss.plot(["accuracy", "loss"], inset="10s:20s")
    assert "cut" not in caplog.text


def test_a_figure_shows_every_evaluation() -> None:
    """One peak among a thousand evaluations, which a figure of fewer points would miss."""
    times = tuple(float(second) for second in range(1000))
    values = tuple(0.9 if second == 501 else 0.5 for second in times)
    run = facts(server("fedavg"), 0, "a", times, values)
    (line,) = Comparison(((run,), (), None)).plot("accuracy").axes[0].lines
    assert max(line.get_ydata()) == pytest.approx(90.0)


def test_narrow_figures_have_fewer_panels_in_a_row(comparison: Comparison) -> None:
    def rows(width: str) -> int:
        panels = comparison.plot("accuracy", width=width).axes
        return len({axes.get_subplotspec().rowspan.start for axes in panels})

    assert (rows("4in"), rows("3in")) == (1, 2)


@pytest.mark.parametrize("width", [None, "2.5in"])
def test_a_legend_of_long_names_fits_the_figure(width: str | None) -> None:
    runs = tuple(
        facts(
            server(
                "fedavg", option=f"a value of many words that makes the name long, number {number}"
            ),
            *(0, "a", (0.0, 100.0), (0.1, 0.9)),
        )
        for number in range(6)
    )
    figure = Comparison((runs, (), None)).plot("accuracy", width=width)
    (legend,) = figure.legends
    taken = legend.get_window_extent()
    assert [len(text.get_text()) > 40 for text in legend.get_texts()] == [True] * 6
    assert taken.width <= figure.bbox.width
    # The panel keeps its height however tall the legend is.
    assert figure.bbox.height - taken.height >= 0.5 * figure.bbox.width


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (("fedavg, cohort=4", "fedavg, cohort=10", "fedbuff, cohort=4", "fedbuff, cohort=10"), 2),
        (("a", "b", "c", "d", "e"), 5),
        (("a method with a name that is longer than half of a column", "b", "c", "d", "e"), 1),
    ],
)
def test_a_legend_has_as_many_columns_as_fit(names: tuple[str, ...], columns: int) -> None:
    runs = tuple(
        facts(server(name), 0, name, (0.0, 100.0, 200.0), (0.1, 0.5, 0.9)) for name in names
    )
    compared = Comparison((runs, (), None))
    figure = compared.plot("accuracy", width="84mm", height="60mm", inset="50s:150s")
    (legend,) = figure.legends
    figure.draw_without_rendering()
    left = {round(text.get_window_extent().x0) for text in legend.get_texts()}
    assert len(left) == columns
    assert legend.get_window_extent().width <= figure.bbox.width


def test_insets_are_left_out_of_narrow_panels(
    comparison: Comparison, caplog: pytest.LogCaptureFixture
) -> None:
    figure = comparison.plot(["accuracy"], inset="10s:20s", width="1.5in")
    assert not any(axes.child_axes for axes in figure.axes)
    assert [record.message for record in caplog.records] == [
        "the panels are too narrow for insets; choose a larger --width"
    ]


def test_vertical_axes_fit_what_is_shown(comparison: Comparison) -> None:
    """The curves rise from 10% to 90%; no share is below 0% or above 100%, and a range of time shows its own values."""
    whole = comparison.plot("accuracy").axes[0]
    assert 0 <= whole.get_ylim()[0] < 10
    assert 90 < whole.get_ylim()[1] <= 100
    late = comparison.plot("accuracy", xlim="15s:30s")
    for axes in late.axes:
        shown = [float(line.get_ydata()[-1]) for line in axes.get_lines()]
        assert axes.get_ylim()[0] > 10
        assert axes.get_ylim()[1] >= max(shown)


def test_logit_axes_have_round_labels(comparison: Comparison) -> None:
    figure = comparison.plot("accuracy", log="logit")
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert {"20", "50", "80"} <= set(labels)
    assert len(labels) <= 11


@pytest.mark.parametrize("inset", [None, "10s:20s"])
def test_several_panels_of_a_narrow_figure_are_high_enough(
    comparison: Comparison, inset: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    for metrics in ("accuracy", ["accuracy", "loss"]):
        figure = comparison.plot(metrics, width="ieee", inset=inset)
        figure.draw_without_rendering()
        heights = [axes.get_window_extent().height / figure.dpi for axes in figure.axes]
        assert min(heights) >= 1.25, metrics
    assert "too low" not in caplog.text
    (low, *_) = comparison.plot("accuracy", width="ieee", height="1.5in").axes
    assert low.get_window_extent().height / low.get_figure().dpi < 1
    # Panels with insets are below each other, so that the insets can be read.
    panels = comparison.plot("accuracy", width="ieee", inset=inset).axes
    assert len({axes.get_subplotspec().rowspan.start for axes in panels}) == (2 if inset else 1)
    assert [len(axes.child_axes) for axes in panels] == [1 if inset else 0] * 2


def test_nothing_hides_the_grid_and_the_lines_to_an_inset(with_loss: Comparison) -> None:
    (axes,) = with_loss.plot("accuracy", inset="10s:20s").axes
    assert len(axes.child_axes) == 1
    assert not [patch for patch in axes.patches if patch.get_facecolor() == (1, 1, 1, 1)]


def test_a_logarithmic_axis_begins_where_the_first_curve_is_visible() -> None:
    times = tuple(float(2**power) for power in range(12))
    first = facts(server("fedavg"), 0, "a", times, tuple(0.05 * index for index in range(12)))
    second = facts(server("fedbuff"), 0, "b", times, tuple(0.04 * index for index in range(12)))
    comparison = Comparison(((first, second), (), None))
    (axes,) = comparison.plot("accuracy", against="version", log="x", ylim="40%:").axes
    # 40% after 256 s, at version 512.
    assert 400 < axes.get_xlim()[0] < 512
    (axes,) = comparison.plot("accuracy", against="version", log="x", ylim="40%:", xlim="4:").axes
    assert axes.get_xlim()[0] == 4
