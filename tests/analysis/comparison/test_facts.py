"""The facts of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

import fedsim
from fedsim import bundled
from fedsim.analysis.comparison import compare
from fedsim.analysis.comparison.headline import headline
from fedsim.runs import RunFolder
from fedsim.sweeps import Sweep
from tests.analysis.comparison.compared import GROUPS, folders, parquet


def test_the_last_bit_is_a_difference(sweep: Sweep, tmp_path: Path) -> None:
    run = folders(sweep, *GROUPS[0])[0]
    shutil.copytree(run, tmp_path / "copy")
    metrics = parquet(tmp_path / "copy", "metrics")
    metrics.loc[4, "loss"] = np.nextafter(metrics.loc[4, "loss"], 9)
    metrics.to_parquet(tmp_path / "copy" / "metrics.parquet")
    RunFolder(tmp_path / "copy").update_info(files={})
    other = compare([run, tmp_path / "copy"])
    assert not other.no_difference
    assert headline(other) != "No difference"


def test_the_folder_of_a_bundled_trace_is_no_difference_to_its_name(tmp_path: Path) -> None:
    trace = "builtin:phones_mostly_on_week"
    scenario = {
        "task": {"name": "timing", "clients": 3},
        "devices": {"trace": trace},
        "server": {"selection": {"name": "uniform", "cohort": 2}},
        "stop": {"rounds": 2},
    }
    fedsim.run(scenario, tmp_path / "now")
    shutil.copytree(tmp_path / "now", tmp_path / "earlier")
    # Earlier versions wrote the folder in the installation.
    earlier = RunFolder(tmp_path / "earlier")
    path = str(bundled.resolved(trace))
    earlier.scenario.write_text(earlier.scenario.read_text().replace(trace, path))
    digests = earlier.read_info()["data_files"]
    earlier.update_info(files={}, data_files={path: digests[trace]})
    assert not compare([tmp_path / "now", earlier.path]).grouping.differing
