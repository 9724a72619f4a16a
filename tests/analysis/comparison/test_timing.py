"""Comparisons of timing-only runs: the terminal's table, the LaTeX table, the figure and the page."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fedsim.analysis.comparison import Comparison, compare
from fedsim.analysis.comparison.headline import headline
from fedsim.analysis.comparison.latex import latex
from fedsim.cli.compare import command
from fedsim.errors import UserError
from fedsim.vocabulary.formatting import format_mean
from tests.analysis.comparison.made import of, run
from tests.runs.synthetic_runs import build_run

FIGURES = {
    "a": {"interval_s": 60.0, "client_updates_per_h": 100.0, "lost_steps": 0.25, "bytes": 4e9},
    "b": {"interval_s": 120.0, "client_updates_per_h": 50.0, "lost_steps": 0.0, "bytes": 2e9},
}


def _made(settings: tuple[Any, ...] = (0.5, 2), seeds: tuple[int, ...] = (0, 1)) -> Comparison:
    """Two variants; with the second seed, every figure is 10% larger."""
    return of(
        *(
            replace(
                run(method, seed, (), devices={"network": {"rate_factor": setting}}),
                figures={name: value * (1 + seed / 10) for name, value in of_variant.items()},
            )
            for setting in settings
            for method, of_variant in FIGURES.items()
            for seed in seeds
        )
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timing")
    for seed in (0, 1):
        build_run(path / f"{seed}", hours=6, learning=False, seed=seed)
        build_run(path / f"{seed}b", hours=6, learning=False, seed=seed, cohort=4)
    return path


def test_the_summary_has_the_spread_over_seeds() -> None:
    row = _made().summary.iloc[0]
    assert row["interval_s"] == pytest.approx(63.0)
    assert row["interval_s_sd"] == pytest.approx(6 / 2**0.5)


def test_the_figures_of_a_run_are_those_of_its_page(folder: Path) -> None:
    comparison = compare([folder / "0"])
    values = comparison.runs.iloc[0]
    loaded = build_run(folder.parent / "again", hours=6, learning=False, seed=0)
    every_s = {
        "interval": np.diff(loaded.aggregations["time_s"], prepend=0.0),
        "turnaround": (loaded.dispatches["arrived_s"] - loaded.dispatches["dispatched_s"]).dropna(),
    }
    for name, seconds in every_s.items():
        for percent in (50, 95, 99):
            exact = np.percentile(seconds, percent)
            assert values[f"{name}_p{percent}_s"] == pytest.approx(exact)
    assert values["interval_s"] == pytest.approx(every_s["interval"].mean())
    entered = (loaded.dispatches["outcome"] == "aggregated").sum()
    assert values["client_updates_per_h"] == pytest.approx(entered / 6)


def test_the_terminal_shows_the_numbers_that_matter(folder: Path, tmp_path: Path) -> None:
    build_run(folder / "killed", hours=1, finish=False)
    arguments = [str(folder), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(command, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for heading in ("time per server update", "client updates per hour", "local steps lost"):
        assert heading in result.output
    frame = pd.read_csv(tmp_path / "out" / "summary.csv")
    for heading, name, kind in (
        ("clients that contributed", "contributed", "share"),
        ("energy", "energy_j", "energy"),
    ):
        assert heading in result.output
        for row in frame.to_dict("records"):
            assert format_mean(row[name], row[f"{name}_sd"], kind) in result.output
    for share in frame["lost_steps"]:
        assert f"{share:.1%}"[:3] in result.output
    assert "±" in result.output
    assert "1 run left out" in result.output
    assert "timing-only runs" in (tmp_path / "out" / "compare.html").read_text()
    assert not (tmp_path / "out" / "curves.pdf").exists()
    names = ("timing.pdf", "timing.png", "timing.svg", "table.tex", "compare.html")
    assert all((tmp_path / "out" / name).stat().st_size for name in names)


def test_the_latex_table_has_the_main_figures() -> None:
    one = latex(_made(settings=(2,), seeds=(0,))).splitlines()
    assert one[3:5] == [
        r" & time per server update & client updates per hour & local steps lost & data moved \\",
        r" & (s) &  & (\%) & (GB) \\",
    ]
    assert one[6] == r"a & 60 & 100 & 25.0 & 4 \\"
    assert r"rate\_factor=0.5 & a & 63.0 $\pm$ 4.2 &" in latex(_made())


def test_the_figure_has_a_bar_per_setting_and_variant() -> None:
    figure = _made().plot(width="ieee")
    assert len(figure.axes) == 4
    time, _, lost, moved = figure.axes
    bars = [patch.get_height() for container in time.containers[1::2] for patch in container]
    assert bars == pytest.approx([1.05, 1.05, 2.1, 2.1])
    assert time.get_title() == "time per server update (min)"
    names = [text.get_text().replace("\n", "") for text in moved.get_xticklabels()]
    assert names == ["rate_factor=0.5", "rate_factor=2"]
    assert lost.get_ylim()[0] == 0


@pytest.mark.parametrize("style", [{"xlim": "0:2d"}, {"log": "y"}, {"bands": True}])
def test_options_of_curves_are_refused(style: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="bars instead of curves"):
        _made().plot(**style)
    with pytest.raises(UserError, match="timing-only"):
        _made().plot("accuracy")


def test_the_headline_names_the_variant_with_the_most_updates() -> None:
    most = "Most client updates per simulated hour"
    assert headline(_made(settings=(2,), seeds=(0,))) == [f"{most}: 100 with a."]
    assert headline(_made()) == [f"{most}: a in 2 of 2 settings."]
