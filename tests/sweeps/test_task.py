"""One run of a sweep."""

from __future__ import annotations

from pathlib import Path

import fedsim
from fedsim.durable import TEMPORARY_PREFIX
from fedsim.runs.folder import RunFolder
from tests.sweeps.worlds import (
    scenario,
)


def test_what_a_run_leaves_in_its_first_moments_is_cleared(tmp_path: Path) -> None:
    folder = tmp_path / "sweep" / "seed0"
    folder.mkdir(parents=True)
    (tmp_path / "sweep" / "sweep.json").write_text(
        '{"format": 1, "name": "x", "scenario": null, "runs": []}'
    )
    temporary = folder / f"{TEMPORARY_PREFIX}0f.json"
    temporary.write_text("half")
    assert fedsim.sweep(scenario(seeds=[0]), tmp_path / "sweep", jobs=1).failures == {}
    assert not temporary.exists()
    # Killed once run.json was there, and before the scenario was.
    folder = tmp_path / "sweep" / "seed1"
    folder.mkdir()
    RunFolder(folder).write_info(
        {"status": "running", "files": {}, "versions": {"fedsim-des": "0.0.0"}}
    )
    (folder / "scenario.yaml").write_text("half")
    assert fedsim.sweep(scenario(seeds=[0, 1]), tmp_path / "sweep", jobs=1).failures == {}
