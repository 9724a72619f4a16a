"""The files of a comparison: tables and the figure."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fedsim.analysis.comparison import Comparison, compare
from fedsim.errors import UserError
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import SETTINGS, TARGETS, VARIANTS, folders


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


def test_only_an_earlier_comparison_is_replaced(sweep: Sweep, tmp_path: Path) -> None:
    comparison = compare([folders(sweep, SETTINGS[0], variant)[0] for variant in VARIANTS])
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
