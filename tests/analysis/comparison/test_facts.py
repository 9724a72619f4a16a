"""The facts of a run."""

import shutil
from pathlib import Path

import numpy as np

from fedsim.analysis.comparison import compare
from fedsim.runs import RunFolder
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import GROUPS, folders, parquet


def test_the_last_bit_is_a_difference(sweep: Sweep, tmp_path: Path) -> None:
    run = folders(sweep, *GROUPS[0])[0]
    shutil.copytree(run, tmp_path / "copy")
    assert compare([run, tmp_path / "copy"]).no_difference
    metrics = parquet(tmp_path / "copy", "metrics")
    metrics.loc[4, "loss"] = np.nextafter(metrics.loc[4, "loss"], 9)
    metrics.to_parquet(tmp_path / "copy" / "metrics.parquet")
    RunFolder(tmp_path / "copy").update_info(files={})
    assert not compare([run, tmp_path / "copy"]).no_difference


def test_a_deployment_is_compared_with_its_simulation(sweep: Sweep, tmp_path: Path) -> None:
    """By the clock, whose time is not called simulated."""
    run = folders(sweep, *GROUPS[0])[0]
    shutil.copytree(run, tmp_path / "deployed")
    RunFolder(tmp_path / "deployed").update_info(clock="wall")
    comparison = compare([run, tmp_path / "deployed"])
    assert {group.label for group in comparison.groups} == {"clock=simulated", "clock=wall"}
    comparison.write(tmp_path / "pages")
    assert "simulated time" not in (tmp_path / "pages" / "compare.html").read_text()
