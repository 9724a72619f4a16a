"""A run again with a change, against cases on paper and the predictions of the critical path."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.analysis.figures.time import predicted_changes, waiting
from fedsim.composition.what_if import default_folder
from fedsim.errors import UserError
from fedsim.runs import Status
from fedsim.runs.critical import waiting_by_cause
from tests.calibration.worlds import calibrated
from tests.cli.invoking import assert_refused, invoke
from tests.composition.worlds import timed


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rounds of 1 + 6 + 1 s, until the slow one of three clients has answered."""
    content = {
        "name": "before",
        "task": {"name": "quadratic", "centers": [1.0, 2.0, 3.0]},
        "training": {"local_steps": 2, "dtype": "float64", "device": "cpu"},
        "devices": {
            "compute": {"name": "values", "step": [1.0, 3.0, 0.5]},
            "network": {"name": "static", "latency": "0s", "down": "64bps", "up": "64bps"},
        },
        "stop": {"rounds": 5, "target": {"distance": 1e-9}},
        "evaluation": {"every_rounds": 1},
    }
    folder = tmp_path_factory.mktemp("what_if") / "before"
    fedsim.run(content, folder)
    return folder


@pytest.mark.parametrize(
    ("cause", "change", "seconds"),
    [
        ("compute", "devices.compute.step=0.5x", 25),
        ("upload", "devices.network.up=2x", 37.5),
        ("download", "devices.network.down=2x", 37.5),
    ],
)
def test_predictions_hold(before: Path, cause: str, change: str, seconds: float) -> None:
    run = fedsim.load(before)
    assert run.critical is not None
    spent = waiting_by_cause(run.critical)
    predicted = spent.sum() - spent[cause] / 2
    result = invoke("what-if", before, "-s", change, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["simulated time"] == {"before": 40, "after": pytest.approx(predicted)}
    assert predicted == pytest.approx(seconds)
    # The order of arrival does not matter to the mean.
    assert figures["final loss"]["after"] == pytest.approx(figures["final loss"]["before"])
    changes = predicted_changes(run, run.critical)
    commands = {each["command"]: each["share"] for each in changes}
    assert commands[f"fedsim what-if {before} -s {change}"] == pytest.approx(1 - seconds / 40)


LOG = "client,start,end\na,0,20\na,30,55\nb,0,10\nb,12,24\n"
PHONES = "builtin:fedscale_phones"


@pytest.mark.parametrize(
    "compute",
    [
        {"name": "trace", "trace": "calibrated"},
        {"name": "trace", "trace": PHONES},  # times measured for inference
        {"name": "trace", "trace": "builtin:phones_week", "reference_step": "10s"},
        {"name": "flops", "flops_per_s": 1e6},
        {"name": "exponential", "mean": "10s"},
    ],
    ids=lambda compute: str(compute.get("trace", compute["name"])),
)
def test_every_advice_of_a_page_is_accepted(compute: dict[str, Any], tmp_path: Path) -> None:
    if compute.get("trace") == "calibrated":
        calibrated(tmp_path, LOG)
        compute = {**compute, "trace": str(tmp_path / "bundle")}
    schedule = {"name": "sync", "pause": "5s"}
    content = {
        "task": {"name": "timing", "clients": 2, "size": "100kB", "flops_per_sample": 1e5},
        "training": {"local_steps": 10},
        "devices": {"compute": compute, "network": STATIC},
        "server": {"schedule": schedule, "aggregation_time": "2s"},
        "stop": {"rounds": 5},
    }
    run = fedsim.run(content, tmp_path / "before")
    figure = waiting(run)
    assert figure is not None
    assert any(each["change"] == "devices twice as fast" for each in figure.extra["changes"])
    for change in figure.extra["changes"]:
        result = invoke(*shlex.split(change["command"])[1:])
        assert result.exit_code == 0, result.output
        assert "No effect" not in result.output


STATIC = {"name": "static", "latency": "2s", "down": "8Mbps", "up": "200kbps"}
PAUSED: dict[str, Any] = {
    "server": {"schedule": {"name": "sync", "pause": "20s"}, "aggregation_time": "8s"}
}
LATE: dict[str, Any] = {
    "devices": {"compute": {"name": "values", "step": [0.1, 0.2, 0.3, 9.0]}, "network": STATIC},
    "server": {"schedule": {"name": "sync", "deadline": "30s"}},
    # A deadline that is warned about is not advised to be shorter.
    "ignore": ["slow-clients"],
}
BUFFERED: dict[str, Any] = {
    "task": {"name": "timing", "clients": 12, "size": "400kB"},
    "server": {
        "method": "fedbuff",
        "schedule": {"name": "buffered", "buffer_size": 3, "concurrency": 12},
    },
    "stop": {"rounds": 60},
}
SPARE: dict[str, Any] = {
    "task": {"name": "timing", "clients": 40, "size": "100kB"},
    "server": {
        "selection": {"name": "uniform", "cohort": 5},
        "schedule": {"name": "sync", "over_selection": 2},
    },
    "stop": {"rounds": 60},
}
CUT = {
    **SPARE,
    "server": {**SPARE["server"], "schedule": {**SPARE["server"]["schedule"], "stragglers": "cut"}},
}
UP, PAUSE, STEP = "devices.network.up", "server.schedule.pause", "devices.compute.median"


@pytest.mark.parametrize(
    ("more", "network", "change", "word"),
    [
        ({}, {}, f"{UP}=2x", "about"),
        # A halved latency is not an uplink twice as fast.
        ({}, {"latency": {"name": "lognormal", "median": "2s", "sigma": 0.5}}, f"{UP}=2x", "at most"),
        ({}, {"transport": "tcp"}, f"{UP}=2x", "at most"),
        ({}, {"variation": 0.4}, f"{UP}=2x", "about"),
        (PAUSED, {}, f"{PAUSE}=0.5x", "about"),
        (PAUSED, {}, "server.aggregation_time=0.5x", ""),
        ({"server": {"selection": {"cohort": 2}}}, {}, f"{STEP}=0.5x", "about"),
        ({"server": {"schedule": {"name": "sync", "quorum": 3}}}, {}, f"{STEP}=0.5x", "±"),
        (SPARE, {}, f"{STEP}=0.5x", "±"),
        (SPARE, {}, f"{UP}=2x", "±"),
        (CUT, {}, f"{STEP}=0.5x", "±"),
        (CUT, {}, f"{UP}=2x", "±"),
        (LATE, {}, "server.schedule.deadline=0.5x", "at most"),
        (BUFFERED, {}, f"{STEP}=0.5x", "±"),
        (BUFFERED, {}, f"{UP}=2x", "±"),
        (BUFFERED | {"server": {"method": "rennala"}, "stop": {"rounds": 20}}, {}, f"{UP}=2x", "±"),
    ],
)  # fmt: skip
def test_predictions_agree_with_the_run(
    more: dict[str, Any], network: dict[str, Any], change: str, word: str, tmp_path: Path
) -> None:
    """Within a percentage point, the stated error, or the bound; what saves nothing is not shown."""
    content = {
        "name": "before",
        "task": {"name": "timing", "clients": 4, "size": "100kB"},
        "training": {"local_steps": 10},
        "devices": {
            "compute": {"name": "lognormal", "median": "500ms", "jitter": {"cv": 0.2}},
            "network": {**STATIC, **network},
        },
        "stop": {"rounds": 12},
        **more,
    }
    run = fedsim.run(content, tmp_path / "before")
    path, _, factor = change.partition("=")
    fedsim.what_if(run, {path: factor})
    after = fedsim.load(tmp_path / "before-what-if")
    saved = 1 - after.aggregations["time_s"].iloc[-1] / run.aggregations["time_s"].iloc[-1]
    assert run.critical is not None
    changes = {
        each["command"].rpartition(" ")[2]: each for each in predicted_changes(run, run.critical)
    }
    if not word:
        assert saved == 0
        assert change not in changes
        return
    words, share = changes[change]["effect"], changes[change]["share"]
    assert word in words
    if word == "at most":
        assert 0 < saved <= share + 1e-9
        return
    stated = re.search(r"± ([\d.]+)%", words)
    assert (stated is not None) == (word == "±")
    assert share == pytest.approx(saved, abs=float(stated[1]) / 100 if stated else 0.01)


def test_a_file_that_has_changed_is_not_a_change_of_the_settings(tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    code.write_text(
        "from fedsim.methods.fedavg import FedAvg\n\n\nclass Mine(FedAvg):\n    name = 'mine'\n"
    )
    run = fedsim.run(timed(server={"method": f"{code}:Mine"}), tmp_path / "run", timing_only=True)
    code.write_text(code.read_text() + "\n")
    with pytest.raises(UserError, match="the code has changed since the run began"):
        fedsim.what_if(run, {"devices.network.up": "2x"})


def test_without_a_change_the_predictions_are_shown(before: Path) -> None:
    result = invoke("what-if", before)
    assert result.exit_code == 0, result.output
    assert "75.0% went to: local steps" in result.output
    assert "devices twice as fast: about −38%" in result.output
    assert f"fedsim what-if {before} -s devices.compute.step=0.5x" in result.output
    shown = fedsim.what_if(before, {"devices.compute.step": "0.5x"}).set_index("figure")
    assert shown.loc["simulated time", ["before", "after"]].tolist() == [40, pytest.approx(25)]


def test_without_the_slowest_clients(before: Path, tmp_path: Path) -> None:
    options = ("--without-clients", "slowest:10%", "-o", tmp_path / "after")
    result = invoke("what-if", before, *options)
    assert result.exit_code == 0, result.output
    # 1 + 2 + 1 s per round.
    assert "40 s" in result.stdout
    assert "20 s" in result.stdout
    assert "−50.0%" in result.stdout
    assert set(fedsim.load(tmp_path / "after").dispatches["client_id"]) == {0, 2}
    again = invoke("what-if", before, "--without-clients", "1", "-o", tmp_path / "one")
    assert again.exit_code == 0, again.output
    assert fedsim.load(tmp_path / "one").simulated_s == 20


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (("--without-clients", "slowest:-5%"), ("names no clients", "write slowest:5%")),
        (("--without-clients", "slowest:105%"), ("names no clients", "write slowest:5%")),
        (("-s", "server.method.name=2x"), ("not a number to multiply", "give its new value")),
        (("-s", "server.schedule.pauze=0.5x"), ("unknown key", "did you mean 'pause'?")),
        (("--without-clients", "slow"), ("--without-clients slow: names no clients",)),
        (("--without-clients", "3"), ("there is no client 3", "clients are 0 to 2")),
    ],
)
def test_mistakes(before: Path, options: tuple[str, ...], fragments: tuple[str, ...]) -> None:
    assert_refused(invoke("what-if", before, *options), *fragments)


def test_only_runs_of_a_what_if_are_replaced_and_no_tracker_is_written_to(tmp_path: Path) -> None:
    tracked = {"logging": [{"name": "tensorboard", "folder": str(tmp_path / "board")}]}
    run = fedsim.run(timed(**tracked), tmp_path / "run", timing_only=True)
    fedsim.run(timed(), tmp_path / "other", timing_only=True)
    kept = {file: file.read_bytes() for file in tmp_path.glob("*/*.*")}
    for folder in ("run", "other"):
        with pytest.raises(UserError, match="no what-if made"):
            fedsim.what_if(run, {"devices.network.up": "2x"}, output=tmp_path / folder)
    for factor in ("2x", "4x"):
        fedsim.what_if(run, {"devices.network.up": factor}, output=tmp_path / "what-if")
    assert fedsim.load(tmp_path / "what-if").scenario["logging"] == []
    assert not (tmp_path / "board" / "what-if").exists()
    assert kept == {file: file.read_bytes() for file in kept}


def test_an_unfinished_run_is_not_compared(before: Path, tmp_path: Path) -> None:
    shutil.copytree(before, tmp_path / "run")
    fedsim.load(tmp_path / "run").folder.update_info(status=Status.INTERRUPTED)
    for options in ((), ("-s", "devices.network.up=2x")):
        result = invoke("what-if", tmp_path / "run", *options)
        assert_refused(result, "the run is not complete", f"fedsim resume {tmp_path / 'run'}")


def test_the_present_folder_as_run(before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (before / "deep").mkdir()
    for folder, run in ((before, "."), (before / "deep", "..")):
        monkeypatch.chdir(folder)
        assert default_folder(fedsim.load(run)) == before.with_name(f"{before.name}-what-if")
