"""The figure of a comparison: its options, and what it draws."""

import dataclasses
import itertools
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from fedsim.analysis.comparison import Comparison, Target
from fedsim.analysis.comparison.facts import TIMING
from fedsim.analysis.comparison.figure import FigureStyle, inches, limits, save
from fedsim.errors import UserError
from tests.analysis.comparison.compared import SETTINGS, VARIANTS
from tests.analysis.comparison.made import GOAL, of, racers, run
from tests.analysis.comparison.test_groups import facts, server

INFINITE = float("inf")


@pytest.fixture(scope="module")
def with_loss() -> Comparison:
    made = facts(server("fedavg"), 0, "a", (0.0, 10.0, 20.0), (0.1, 0.5, 0.9))
    progress = made.progress | {"loss": np.array([2.3, 1.5, 0.6])}
    return of(dataclasses.replace(made, progress=progress, metrics=("accuracy", "loss")))


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("0:2d", "time", (0, 172_800)),
        ("1h:", "time", (3600, INFINITE)),
        ("85%:0.95", "share", (0.85, 0.95)),
        (":500MB", "bytes", (-INFINITE, 5e8)),
        ("-1.5:2", "number", (-1.5, 2)),
        ((0.8, 1.05), "share", (0.8, 1.05)),
        (None, "time", (-INFINITE, INFINITE)),
    ],
)
def test_ranges(text: Any, kind: Any, expected: tuple[float, float]) -> None:
    assert limits(text, kind, "xlim") == expected


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        *((value, "number", "is not a range") for value in (5, (1,), (2, 1), ("a", "b"), ([1], 2))),
        ("2d", "time", "is not a range"),
        ("2d:1d", "time", "is not a range"),
        ("1:2:3", "number", "is not a range"),
        ("0:40", "time", "'40' has no unit, as 40min has"),
        ("0:500", "bytes", "'500' has no unit, as 500MB has"),
        ("0:2parsecs", "time", "'2parsecs' has no known unit of a duration: use one of"),
        ("a:b", "share", "is not a range"),
    ],
)
def test_ranges_that_are_none(text: Any, kind: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        limits(text, kind, "xlim")
    assert "write two values" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "expected"), [("84mm", 84 / 25.4), ("3.25in", 3.25), (5, 5), ("240pt", 240 / 72.27)]
)
def test_lengths(text: str | float, expected: float) -> None:
    assert inches(text, "width") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("length", "where", "hint"),
    [
        *((bad, "width", "write 0.5 to 100 inches") for bad in ("84", "0mm", "1.2.3in", 300, True)),
        ("3mm", "height", "such as 84mm"),
        ("9m", "width", "or name a venue: acm, "),
        ("ieee", "height", "write 0.5"),
        ("3,5in", "width", "decimal numbers are written with a point: 3.5in"),
    ],
)
def test_lengths_that_are_none(length: Any, where: str, hint: str) -> None:
    with pytest.raises(UserError, match="is not a length") as caught:
        inches(length, where)
    assert caught.value.where == where
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("style", "message"),
    [
        ({"log": "x", "xlim": "0:40s"}, "xlim: --log cannot show 0\n  leave out that end"),
        ({"log": "xy", "ylim": ["loss=-1:2"]}, "ylim: --log cannot show -1"),
        ({"log": "logit", "ylim": "40%:100%"}, "ylim: --log cannot show 1"),
        ({"log": "logit"}, "log: logit shows shares .*, which loss is not"),
        ({"ylim": "mae=0:1"}, "ylim: the figure has no panel of 'mae'"),
        ({"xlim": "2min:3min"}, "xlim: the range is outside .*\n  the curves go from 0 s to 20 s"),
        ({"ylim": "95%:96%"}, "ylim: the range is outside .*\n  the curves go from 10.0% to 90.0%"),
        ({"log": "z"}, "log: there is no scale 'z'\n  choose one of x, y, xy, logit"),
        ({"against": "times"}, "against: curves cannot be drawn against 'times'"),
    ],
)
def test_options_that_show_nothing(with_loss: Comparison, style: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        with_loss.plot(["accuracy", "loss"], **style)


def test_ranges_belong_to_the_metric_that_they_name(with_loss: Comparison) -> None:
    ylim = ["loss=0.5:2", "0.3:90%"]
    accuracy, loss = with_loss.plot(["accuracy", "loss"], ylim=ylim, xlim=":15s").axes
    assert accuracy.get_ylim() == pytest.approx((30, 90))
    assert loss.get_ylim() == pytest.approx((0.5, 2))
    assert loss.get_xlim() == pytest.approx((0, 15))
    (axes,) = with_loss.plot("accuracy", ylim="30%:", xlim=":15s").axes
    # The upper end is that of the curve until 15 s.
    assert axes.get_ylim()[0] == 30
    assert 50 < axes.get_ylim()[1] < 55


def test_a_figure_has_the_size_and_the_panels_that_are_asked_for(comparison: Comparison) -> None:
    figure = comparison.plot(["accuracy", "loss"], width="ieee-text", height="60mm")
    assert figure.get_size_inches().tolist() == pytest.approx([7.16, 60 / 25.4])
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["accuracy (%)", "", "loss", ""]
    assert [axes.get_title() for axes in figure.axes] == [*SETTINGS, "", ""]

    def rows(width: str) -> int:
        panels = comparison.plot("accuracy", width=width).axes
        return len({axes.get_subplotspec().rowspan.start for axes in panels})

    assert (rows("4in"), rows("3in")) == (1, 2)


def test_variants_differ_without_color(comparison: Comparison) -> None:
    figure = comparison.plot("accuracy", "bytes")
    assert [axes.get_title() for axes in figure.axes] == list(SETTINGS)
    # The lines of single runs have no names.
    lines = [line for line in figure.axes[0].get_lines() if line.get_label()[0] != "_"]
    assert [line.get_label() for line in lines] == list(VARIANTS)
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == 2
    frame = comparison.curves("accuracy", "bytes")
    of_first = (frame["setting"] == SETTINGS[0]) & (frame["label"] == "fedavg")
    known = frame[of_first].dropna(subset="median")
    assert lines[0].get_ydata().tolist() == pytest.approx((100 * known["median"]).tolist())
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(VARIANTS)


def test_runs_are_drawn_for_few_variants_and_bands_on_request(comparison: Comparison) -> None:
    def drawn(compared: Comparison, **style: Any) -> tuple[int, int]:
        axes = compared.plot("accuracy", **style).axes[0]
        runs = [each for each in axes.collections if isinstance(each, LineCollection)]
        lines = len(_curves(axes)) + sum(len(each.get_paths()) for each in runs)
        return len(axes.collections) - len(runs), lines

    seeds = 2 * len(comparison.groups[0].runs)
    assert drawn(comparison) == (0, 2 + seeds)
    assert drawn(comparison, bands=True) == (2, 2)
    assert drawn(comparison, bands=False) == (0, 2)
    many = of(*(run(f"m{number}", seed) for number in range(7) for seed in (0, 1)))
    # One panel per variant, with its two runs and the others in gray.
    panels = [axes for axes in many.plot("accuracy").axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == list(many.shown.values())
    # The last one of each column has the axis of the column.
    assert [bool(axes.get_xlabel()) for axes in panels] == [False] * 4 + [True] * 3
    ticks = [axes.xaxis.get_tick_params()["labelbottom"] for axes in panels]
    assert ticks == [False] * 4 + [True] * 3
    assert drawn(many) == (0, 7 + 2)
    assert drawn(many, bands=True) == (1, 7)


def test_scales_have_plain_numbers(comparison: Comparison) -> None:
    logit = comparison.plot("accuracy", log="logit").axes[0]
    assert logit.get_yscale() == "logit"
    shown = [text.get_text() for text in logit.get_yticklabels()]
    assert {"20", "50", "80"} <= set(shown)
    (axes, *_) = comparison.plot("loss", log="xy", xlim="6s:20s").axes
    axes.get_figure().draw_without_rendering()
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    labels = {text.get_text() for text in axes.get_xticklabels()}
    assert {"10 s", "20 s"} <= labels
    assert not any(text.get_text() for text in axes.get_xticklabels(minor=True))


def test_the_last_value_of_a_curve_is_marked() -> None:
    """A step ends at it, so that without a marker nothing but the vertical line would show it."""
    for count in (1, 2, 20, 101):
        times = tuple(map(float, range(count)))
        (line,) = of(facts(server("a"), 0, "a", times, (0.5,) * count)).plot().axes[0].lines
        marked = line.get_markevery()
        assert marked[-1] == len(line.get_xdata()) - 1
        assert len(marked) <= 10
        assert sorted(set(marked)) == marked


def test_targets_and_short_names_at_the_ends_of_lines_are_those_of_the_page() -> None:
    ends = {"fedavg": (100, 110), "fedprox": (200, 210), "method_with_a_long_name": (150, 160)}
    runs = racers(**ends)
    # One is beyond the axis; the names of two would touch.
    goals = (GOAL, Target("accuracy", 0.79), Target("accuracy", 0.99))
    for variants, width, named in ((2, None, 2), (3, None, 0), (3, "acm-text", 3)):
        (axes,) = of(*runs[: 2 * variants], goals=goals).plot("accuracy", width=width).axes
        texts = {text.get_text(): text for text in axes.texts if text.get_text()}
        assert sorted(texts) == sorted(["target 80%, 79%", *list(ends)[:named]])
        axes.figure.draw_without_rendering()
        boxes = [texts[name].get_window_extent() for name in list(ends)[:named]]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        lines = {line.get_label(): line.get_xydata()[-1].tolist() for line in axes.lines}
        assert all([*texts[name].xy] == lines[name] for name in list(ends)[:named])


@pytest.mark.parametrize("width", [None, "nature", "acm-text"])
@pytest.mark.parametrize("variants", [3, 8])  # Eight have a panel each, with their names as titles.
@pytest.mark.parametrize("name", ["deadline=1min, over_selection=1.333, pause=0", "W" * 40])
def test_long_names_are_inside_the_figure(name: str, variants: int, width: str | None) -> None:
    ends = {f"{name}{number}": 0.9 - number / 10 for number in range(variants)}
    compared = of(*(run(each, accuracy=(0.1, end)) for each, end in ends.items()))
    figure = compared.plot("accuracy", width=width, ylim="85%:" if variants == 3 else None)
    with FigureStyle(width=width).context():
        figure.draw_without_rendering()
    titles = [axes.title for axes in figure.axes if axes.get_title()]
    drawn = [*figure.legends, *titles, *(text for axes in figure.axes for text in axes.texts)]
    boxes = [each.get_window_extent() for each in drawn]
    assert all(0 <= box.x0 <= box.x1 <= figure.bbox.x1 for box in boxes)
    boxes = [title.get_window_extent() for title in titles]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


@pytest.mark.parametrize(("settings", "width"), [(3, None), (3, "ieee"), (8, None)])
def test_long_settings_below_bars_touch_neither_each_other_nor_the_edge(
    settings: int, width: str | None
) -> None:
    names = [f"a_long_name_{number}" for number in range(settings)]
    timing = {"figures": dict.fromkeys(TIMING, 1.0), "metrics": ()}
    runs = [
        facts({**server(variant), "task": {"alpha": name}}, 0, f"{variant}{name}", (), ())
        for variant, name in itertools.product("ab", names)
    ]
    figure = of(*(dataclasses.replace(each, **timing) for each in runs)).plot(width=width)
    with FigureStyle(width=width).context():
        figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.get_xticklabels()]
        assert all(0 <= box.x0 <= box.x1 <= figure.bbox.x1 for box in boxes)
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_names_at_the_ends_of_lines_are_in_the_order_of_the_ends() -> None:
    goals = (Target("accuracy", 0.85),)
    for ends in itertools.permutations((0.3, 0.8, 0.86)):
        values = dict(zip("abc", ends, strict=True))
        compared = of(*(run(a, accuracy=(0.1, end)) for a, end in values.items()), goals=goals)
        (axes,) = compared.plot("accuracy").axes
        texts = [text for text in axes.texts if text.get_text() in values]
        assert all(abs(text.xyann[1]) <= 18 for text in texts)
        axes.figure.draw_without_rendering()
        texts.sort(key=lambda text: text.get_window_extent().y0)
        assert [values[text.get_text()] for text in texts] == sorted(ends)


def test_logarithmic_time_has_the_units_of_the_page() -> None:
    (axes,) = of(*racers(a=(100,), b=(400_000,), every_s=50)).plot("accuracy").axes
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    assert (ticks, axes.get_xlabel()) == (["1 min", "1 h", "1 d"], "simulated time")


def test_a_figure_shows_every_evaluation() -> None:
    """One peak among a thousand evaluations, which a figure of fewer points would miss."""
    times = tuple(float(second) for second in range(1000))
    values = tuple(0.9 if second == 501 else 0.5 for second in times)
    compared = of(facts(server("fedavg"), 0, "a", times, values))
    (line,) = _curves(compared.plot("accuracy").axes[0])
    assert max(line.get_ydata()) == pytest.approx(90.0)


@pytest.mark.parametrize(
    ("style", "notes"),
    [
        ({"ylim": "70%:95%"}, ["not shown: a"]),
        ({"ylim": "40%:95%"}, []),
        ({"xlim": "15s:30s"}, ["not shown: b"]),
        ({"xlim": "5s:30s"}, []),
    ],
)
def test_a_range_names_the_variants_that_it_leaves_without_a_curve(
    style: dict[str, Any], notes: list[str]
) -> None:
    last = 0.7 if "ylim" not in style else 0.5
    comparison = of(
        run("a", accuracy=(0.1, 0.5, 0.6, last) if last == 0.7 else (0.1, 0.5)),
        run("b", accuracy=(0.1, 0.9)),
    )
    (axes,) = comparison.plot(**style).axes
    assert _notes(axes) == notes


def test_the_figure_shows_the_late_range_and_says_so() -> None:
    """R² of a slow run, and of one that ended at its first evaluation after an untrained model."""
    slow = facts(server("slow"), 0, "slow", (0.0, 300.0, 2000.0, 4000.0), (-19.4, 0.46, 0.58, 0.7))
    fast = facts(server("fast"), 0, "fast", (0.0, 300.0), (-19.4, 0.74))
    comparison = of(
        *(
            dataclasses.replace(
                made, progress=made.progress | {"r2": made.progress["accuracy"]}, metrics=("r2",)
            )
            for made in (slow, fast)
        )
    )
    assert comparison.plot("r2").axes[0].get_xscale() == "log"
    vars(comparison)["needs_log_time"] = False
    (axes,) = comparison.plot("r2").axes
    low, high = 0.58 - 0.06 * 0.16, 0.74 + 0.06 * 0.16
    assert axes.get_ylim() == pytest.approx((low, high))
    assert _notes(axes) == ["not shown: below 0.5704"]
    for style in ({"ylim": "-20:1"}, {"xlim": "0:1h"}):
        (axes,) = comparison.plot("r2", **style).axes
        assert axes.get_ylim()[0] < -19
        assert _notes(axes) == []


def _notes(axes: Any) -> list[str]:
    texts = [text.get_text() for text in axes.texts]
    return [text for text in texts if text.startswith("not shown")]


def _curves(axes: Any) -> list[Any]:
    """The lines but for those of targets."""
    return [line for line in axes.lines if line.get_drawstyle() == "steps-post"]


def test_files_are_equal_and_their_text_is_text(
    with_loss: Comparison, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    style = FigureStyle(("accuracy",), width="nature")
    for folder in ("a", "b"):
        figure = with_loss.plot("accuracy", width="nature")
        (tmp_path / folder).mkdir()
        files = [tmp_path / folder / f"curves.{suffix}" for suffix in ("pdf", "svg", "png")]
        with caplog.at_level(logging.WARNING):
            save(figure, files, style)
    for path in files:
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes()
    assert "simulated time (s)</text>" in files[1].read_text()
    assert b"/Type3" not in files[0].read_bytes()
    # Fonts that are not installed are replaced in silence.
    assert not [text for text in caplog.messages if "findfont" in text]


@pytest.mark.parametrize(
    ("settings", "variables", "message"),
    [
        ("text.usetex: True\nfigure.dpi: 10000\n", {"SOURCE_DATE_EPOCH": "x"}, ""),
        ("\xff", {}, "can't decode byte 0xff"),
        ("", {"MPLBACKEND": "none such"}, "'none such' is not a valid"),
    ],
)
def test_the_users_settings_of_matplotlib_do_not_matter(
    tmp_path: Path, settings: str, variables: dict[str, str], message: str
) -> None:
    (tmp_path / "matplotlibrc").write_text(settings, encoding="latin-1")
    text = """
from pathlib import Path
from fedsim.analysis.figures.lines import drawing
with drawing():
    from matplotlib.figure import Figure
    figure = Figure()
    figure.subplots()
    figure.savefig("a.pdf")
print(sum(figure.get_size_inches() * figure.dpi))
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    expected = "UserError: Matplotlib cannot read its settings: " if message else ""
    assert expected in done.stderr
    assert message in done.stderr
    assert done.stdout == ("" if message else "1120.0\n")
