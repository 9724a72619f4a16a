"""One run of a sweep."""

from pathlib import Path
from unittest import mock

import pytest

import fedsim
from fedsim.files.durable import TEMPORARY_PREFIX
from fedsim.runs.records import RUN
from fedsim.sweeps.task import Performer
from tests.cli.invoking import PARABOLAS, invoke
from tests.sweeps.worlds import record, scenario


def test_what_a_run_leaves_in_its_first_moments_is_cleared(tmp_path: Path) -> None:
    folder = tmp_path / "sweep" / "seed0"
    folder.mkdir(parents=True)
    record(tmp_path / "sweep")
    temporary = folder / f"{TEMPORARY_PREFIX}0f.json"
    temporary.write_text("half")
    assert fedsim.sweep(scenario(seeds=[0]), tmp_path / "sweep", jobs=1).failures == {}
    assert not temporary.exists()
    # Killed once run.json was there, and before the scenario was.
    folder = tmp_path / "sweep" / "seed1"
    folder.mkdir()
    RUN.write(folder, {"status": "running", "files": {}, "versions": {"fedsim-des": "0.0.0"}})
    (folder / "scenario.yaml").write_text("half")
    assert fedsim.sweep(scenario(seeds=[0, 1]), tmp_path / "sweep", jobs=1).failures == {}


def test_a_run_without_memory_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Performer, "_perform", mock.Mock(side_effect=MemoryError))
    (tmp_path / "s.yaml").write_text(PARABOLAS + "sweep: {seeds: [0]}\n")
    result = invoke("sweep", tmp_path / "s.yaml", "-o", tmp_path / "sweep", "-j", "1")
    assert result.exit_code == 2
    assert "out of memory: MemoryError\n    use a smaller model" in result.stderr


@pytest.mark.parametrize("jobs", [1, 2])
def test_warnings_and_errors_of_a_run_name_the_line_of_the_scenario(
    jobs: int, tmp_path: Path
) -> None:
    file = tmp_path / "own.yaml"
    battery = "  energy: {battery_j: BATTERY}\n"
    text = PARABOLAS.replace("stop:", f"{battery}stop:") + "sweep:\n  seeds: [0, 1]\n"
    file.write_text(text.replace("BATTERY", "2"))
    result = invoke("sweep", file, "-o", tmp_path / "sweep", "-j", str(jobs))
    assert result.exit_code == 0, result.output
    assert f"warning: {file}:6:23: devices.energy.battery_j: " in result.stderr
    # Values that the sweep sets are at their place in the list.
    varied = text.replace("BATTERY", "1e9") + "  grid: {devices.energy.battery_j: [2, 1e9]}\n"
    file.write_text(varied)
    result = invoke("sweep", file, "-o", tmp_path / "varied", "-j", str(jobs))
    assert f"warning: {file}:10:37: devices.energy.battery_j: " in result.stderr
    file.write_text(text.replace("BATTERY", "1e9").replace("down: 1Mbps, ", ""))
    result = invoke("sweep", file, "-o", tmp_path / "refused", "-j", str(jobs))
    assert result.exit_code == 2
    assert f"{file}:5:12: devices.network" in result.stderr
