"""The files of a comparison: tables, LaTeX, and the figure."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from fedsim.analysis.comparison import Comparison, compare, files
from fedsim.errors import UserError
from fedsim.formatting import format_mean, format_mean_count, format_number, format_ratio
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import SETTINGS, TARGETS, VARIANTS, row


@pytest.fixture(scope="module")
def page(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return comparison.write(tmp_path_factory.mktemp("written") / "out")


def test_files(sweep: Sweep, comparison: Comparison, page: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in page.parent.iterdir()) == [
        "compare.html",
        "curves.pdf",
        "curves.png",
        "curves.svg",
        "summary.csv",
        "summary.parquet",
        "table.tex",
        "targets.csv",
        "targets.parquet",
    ]
    for name in ("summary", "targets"):
        frame = getattr(comparison, name)
        pd.testing.assert_frame_equal(pd.read_parquet(page.parent / f"{name}.parquet"), frame)
        back = pd.read_csv(page.parent / f"{name}.csv", keep_default_na=True)
        pd.testing.assert_frame_equal(back, frame, check_dtype=False)
    first = {path.name: path.read_bytes() for path in page.parent.iterdir()}
    compare(sweep.path, targets=[f"accuracy={value}" for value in TARGETS]).write(
        tmp_path / "again"
    )
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}


def test_latex_table(comparison: Comparison, page: Path) -> None:
    lines = (page.parent / "table.tex").read_text().splitlines()
    assert lines[1] == r"\begin{tabular}{lrrrrrrrrrrrr}"
    assert r"\multicolumn{6}{c}{alpha=5}" in lines[3]
    assert lines[4].count(r"final accuracy (\%)") == 2
    body = [line for line in lines if line.startswith(VARIANTS)]
    assert len(body) == 2
    shown = row(comparison.targets, SETTINGS[0], "fedbuff", target=0.5)
    assert (
        f"{shown['time_s']:.2f} [{shown['time_low_s']:.2f}, {shown['time_high_s']:.2f}]" in body[1]
    )
    assert f"({format_ratio(shown['relative'])})".replace("×", r"$\times$") in body[1]
    cells = body[1].removesuffix(r" \\").split(" & ")
    updates, rate = shown["client_updates"], shown["client_updates_per_h"]
    assert cells[2] == f"{format_mean_count(updates)} ({format_number(rate)})"
    assert cells[-2] == "--"
    last = row(comparison.summary, SETTINGS[1], "fedbuff")
    final = format_mean(last["final_accuracy"], last["final_accuracy_sd"], "share")
    assert cells[-1] == final.replace("%", "").replace("±", r"$\pm$")


def test_numbers_are_rounded_in_latex_as_on_the_page() -> None:
    row = {"time_s": 97.5, "time_low_s": 37.5, "time_high_s": 127.5, "relative": 0.625}
    times = pd.Series({**row, "reached": 3, "runs": 3})
    assert format_ratio(0.625) == "0.63×"
    assert files._time(times, 60) == r"1.63 [0.63, 2.13] (0.63$\times$)"
    values = {"final_accuracy": 0.90625, "final_accuracy_sd": 0.01, "final_r2": -0.0125}
    ends = pd.Series({**values, "final_r2_sd": math.nan})
    assert files._final(ends, "accuracy", "share") == r"90.6 $\pm$ 1.0"
    assert files._final(ends, "r2", "number") == "$-$0.0125"


def test_a_mean_over_some_of_the_seeds_is_marked_in_latex() -> None:
    row = {
        "time_s": 90.0,
        "time_low_s": math.nan,
        "time_high_s": math.nan,
        "relative": 1.0,
        "reached": 2,
        "runs": 2,
    }
    assert files._time(pd.Series(row), 60) == r"1.50 (1.00$\times$)"
    assert files._time(pd.Series({**row, "reached": 1}), 60) == r"1.50 (1.00$\times$) {[1/2]}"


def test_only_an_earlier_comparison_is_replaced(comparison: Comparison, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "summary.csv").write_text("mine")
    with pytest.raises(UserError, match="not overwritten") as caught:
        comparison.write(folder)
    assert caught.value.where == str(folder / "summary.csv")
    (folder / "summary.csv").rename(folder / "compare.html")
    with pytest.raises(UserError, match="not written by fedsim"):
        comparison.write(folder)
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]
    (folder / "compare.html").rename(folder / "notes.html")
    assert comparison.write(folder) == comparison.write(folder)
    assert (folder / "notes.html").read_text() == "mine"
