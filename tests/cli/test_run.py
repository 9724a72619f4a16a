"""``fedsim run`` and its folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.invoking import PARABOLAS, assert_refused


def test_an_output_folder_that_exists(run: Callable[..., Result], tmp_path: Path) -> None:
    assert run(PARABOLAS, "-o", "out").exit_code == 0
    before = (tmp_path / "out" / "metrics.parquet").read_bytes()
    assert_refused(run(PARABOLAS, "-o", "out", "-s", "seed=1"), "out: ", "overwrite")
    assert (tmp_path / "out" / "metrics.parquet").read_bytes() == before


def test_a_folder_of_something_else_is_never_overwritten(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("x")
    assert_refused(run(PARABOLAS, "-o", "thesis"), "thesis: ")
    assert_refused(run(PARABOLAS, "-o", "thesis", "--overwrite"), "thesis: ", "not a run folder")
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "x"


def test_an_output_folder_below_a_file(run: Callable[..., Result]) -> None:
    assert_refused(run(PARABOLAS, "-o", "s.yaml/out"), "s.yaml/out: cannot write")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    assert_refused(run(PARABOLAS, "-o", "locked/out"), "locked/out: cannot write")
