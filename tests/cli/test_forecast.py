"""``fedsim forecast``: what it prints."""

import json
from pathlib import Path

import fedsim
from fedsim.files.checksums import file_sha256
from fedsim.runs import RunFolder
from tests.calibration.test_scenario import DEVICES
from tests.composition.worlds import JITTERY, timed
from tests.sweeps.worlds import command, write


def test_the_command_prints_the_forecast(tmp_path: Path) -> None:
    file = write(tmp_path / "sites.yaml", timed(devices=JITTERY, stop={"simulated_time": "1h"}))
    call = ["forecast", file, "--target", "rounds=2", "--runs", 4, "-j", 1, "-o", tmp_path / "f"]
    done = command(*call)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("2 rounds after about 1 min 2")
    assert "not a finite number" in command(*call, "--confidence", "nan").output
    document = json.loads(command(*call, "--json").stdout)
    assert len(document["times_s"]) == 4
    assert document["low_s"] is None
    page = Path(document["page"]).read_text()
    assert "2 rounds after about 1" in page.replace("\u00a0", " ")
    assert '"share","values":[0.0,0.25,' in page.replace(" ", "")


def test_a_run_is_forecast_on_its_devices(tmp_path: Path) -> None:
    """The devices are estimated from its log, as those of a deployment."""
    section = timed(devices=JITTERY, stop={"rounds": 5})
    fedsim.run(section, tmp_path / "run")
    call = ["forecast", tmp_path / "run", "--target", "rounds=2", "--runs", 3, "-j", 1]
    done = command(*call, "-o", tmp_path / "f", "-s", "stop.simulated_time=1h")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-2].startswith("2 rounds after about 1 min")
    assert (tmp_path / "f" / "devices" / "calibrated" / "manifest.json").exists()


def test_a_flower_app_of_one_round_is_refused(tmp_path: Path) -> None:
    fedsim.run(timed(devices=JITTERY, stop={"rounds": 1}), tmp_path / "run")
    call = ["forecast", tmp_path / "run", "--target", "rounds=1", "-o", tmp_path / "f"]
    file = tmp_path / "run" / "scenario.yaml"
    write(file, DEVICES)
    assert "scenario.yaml: it has changed" in command(*call).output
    folder = RunFolder(tmp_path / "run")
    files = folder.read_info()["files"] | {file.name: file_sha256(file)}
    folder.update_info(files=files)
    done = command(*call)
    assert done.exit_code == 2
    assert "fewer than two rounds" in done.output
    assert not (tmp_path / "f" / "devices").exists()
