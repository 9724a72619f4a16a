"""The folder of a sweep: its index, and which run has which folder."""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.files.checksums import text_sha256
from fedsim.files.locks import locked
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.listing import DAMAGED, listed
from fedsim.runs.records import read_sweep
from fedsim.runs.verification import verify
from fedsim.scenario.loading import load_scenario_dict
from fedsim.sweeps import Sweep
from fedsim.sweeps.execution import SweepProgress, sweep
from fedsim.sweeps.folder import claimed, write_index
from fedsim.sweeps.folder import record as folder_record
from fedsim.sweeps.plan import plan_runs
from tests.devices.worlds import LINKS, STEPS
from tests.sweeps.worlds import SMALL, command, record, scenario, schedules


def test_the_index_says_what_the_run_folders_say(tmp_path: Path) -> None:
    sweep = fedsim.sweep(SMALL, tmp_path / "sweep", jobs=1)
    index = sweep.index
    assert index["training.optimizer.lr"].tolist() == [0.1, 0.1, 0.2, 0.2]
    assert index["seed"].tolist() == [0, 1, 0, 1]
    assert set(index["status"]) == {"complete"}
    for row in index.to_dict("records"):
        info = RunFolder(sweep.path / row["run"]).read_info()
        assert row["loss"] == info["metrics"]["loss"]
        assert (row["simulated_s"], row["rounds"]) == (info["simulated_s"], info["rounds"])
    table = pd.read_csv(sweep.path / "index.csv")
    pd.testing.assert_frame_equal(table.drop(columns="error"), index.drop(columns="error"))
    assert [run.path.name for run in sweep.runs] == index["run"].tolist()
    assert len(sweep.compare().facts) == 4


def test_a_column_of_the_index_with_text_and_numbers_is_text(tmp_path: Path) -> None:
    """``index.csv`` is read by people: a text has no quotation marks of JSON."""
    world = {**SMALL, "sweep": {"grid": {"server.schedule.length": ["5s", 7, "1min"]}}}
    world["server"] = {"schedule": {"name": "window", "length": "1s"}}
    sweep = fedsim.sweep(world, tmp_path / "sweep", jobs=1)
    assert sweep.index["server.schedule.length"].tolist() == ["5s", "7", "1min"]
    assert '"' not in (sweep.path / "index.csv").read_text()


def test_another_scenario_in_the_same_folder_is_refused_by_name(tmp_path: Path) -> None:
    fedsim.sweep(SMALL, tmp_path / "sweep", jobs=1)
    with pytest.raises(UserError, match="made from a different scenario") as caught:
        fedsim.sweep(SMALL, tmp_path / "sweep", overrides=["training.local_steps=3"], jobs=1)
    assert "training.local_steps was 2 and is 3" in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "sweep" / "lr0.1_seed0"))
    assert len(Sweep(tmp_path / "sweep").record["runs"]) == 4
    shutil.rmtree(tmp_path / "sweep" / "lr0.1_seed0")
    shutil.copytree(tmp_path / "sweep" / "lr0.2_seed0", tmp_path / "sweep" / "lr0.1_seed0")
    with pytest.raises(UserError, match=r"made from a different scenario: training\.optimizer\.lr"):
        fedsim.sweep(SMALL, tmp_path / "sweep", jobs=1)


def test_other_tags_and_new_keys_of_a_scenario_keep_the_runs(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    for run in fedsim.sweep(SMALL, out, jobs=1).runs:
        # As an earlier version has written it.
        lines = run.folder.scenario.read_text().splitlines(keepends=True)
        older = "".join(line for line in lines if "last_batch" not in line)
        run.folder.scenario.write_text(older)
        files = run.info["files"] | {"scenario.yaml": text_sha256(older)}
        run.folder.update_info(files=files)
    changes = {"tags": ["paper"], "ignore": ["slow-clients"]}
    assert sweep(load_scenario_dict({**SMALL, **changes}, tmp_path), out, jobs=1).skipped == 4
    with pytest.raises(UserError, match=r"training\.last_batch was null and is"):
        fedsim.sweep(SMALL, out, overrides=["training.last_batch=drop"], jobs=1)


@pytest.mark.parametrize(
    ("timing_only", "made", "advice"),
    [
        (True, "without training, with --timing-only", "add --timing-only"),
        (False, "with training, not with --timing-only", "leave out --timing-only"),
    ],
)
def test_runs_with_and_without_training_share_no_folder(
    tmp_path: Path, timing_only: bool, made: str, advice: str
) -> None:
    out = tmp_path / "sweep"
    first = fedsim.sweep(SMALL, out, timing_only=timing_only, jobs=1)
    assert [run.info["timing_only"] for run in first.runs] == [timing_only] * 4
    with pytest.raises(UserError, match=made) as caught:
        fedsim.sweep(SMALL, out, timing_only=not timing_only, jobs=1)
    assert advice in str(caught.value)
    assert str(caught.value).startswith(str(out / "lr0.1_seed0"))
    # The same call again skips all runs.
    written = [(run.path / "run.json").stat().st_mtime_ns for run in first.runs]
    again = fedsim.sweep(SMALL, out, timing_only=timing_only, jobs=1)
    assert [(run.path / "run.json").stat().st_mtime_ns for run in again.runs] == written


def test_tasks_without_a_model_may_be_swept_either_way(tmp_path: Path) -> None:
    devices = {"compute": STEPS, "network": LINKS}
    task = {"name": "timing", "clients": 4, "size": "1MB"}
    world = {"task": task, "devices": devices, "sweep": {"seeds": [0]}, "stop": {"rounds": 2}}
    for timing_only in (False, True, False):
        sweep = fedsim.sweep(world, tmp_path / "sweep", timing_only=timing_only, jobs=1)
        assert sweep.index["status"].tolist() == ["complete"]


def test_a_run_keeps_its_folder_when_names_change(tmp_path: Path) -> None:
    """As they do when a sweep grows, or with a fedsim that names differently."""
    out = tmp_path / "sweep"
    first = fedsim.sweep(schedules("9s"), out, jobs=1)
    assert [entry["run"] for entry in first.record["runs"]] == ["server_seed0"]
    written = (out / "server_seed0" / "run.json").stat().st_mtime_ns
    grown = fedsim.sweep(schedules("9s", "8s"), out, jobs=1)
    assert [entry["run"] for entry in grown.record["runs"]] == [
        "server_seed0",
        "fedavgm-deadline9s_seed0",
        "fedavg-deadline8s_seed0",
        "fedavgm-deadline8s_seed0",
    ]
    assert (out / "server_seed0" / "run.json").stat().st_mtime_ns == written
    assert set(grown.index["status"]) == {"complete"}
    assert grown.index["run"].tolist() == [entry["run"] for entry in grown.record["runs"]]


def test_a_value_that_takes_the_place_of_another_does_not_take_its_folder(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    fedsim.sweep(schedules("9s"), out, jobs=1)
    (replaced,) = fedsim.sweep(schedules("8s"), out, jobs=1).runs
    assert re.fullmatch(r"server_seed0-[0-9a-f]{6}", replaced.path.name)
    assert replaced.scenario["server"]["schedule"]["deadline"] == 8
    assert (out / "server_seed0" / "run.json").exists()


def test_runs_of_one_scenario_keep_their_own_folders(tmp_path: Path) -> None:
    """A default left out and the same value given: two runs of the sweep, equal to the last bit."""
    data = scenario(grid={"server.schedule": [None, {"name": "sync"}]})
    for _ in range(2):
        sweep = fedsim.sweep(data, tmp_path / "sweep", jobs=1)
        assert [entry["run"] for entry in sweep.record["runs"]] == ["seed0", "sync_seed0"]
    assert len({entry["digest"] for entry in sweep.record["runs"]}) == 1


def test_folders_that_are_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "other").mkdir()
    for name in ("thesis.tex", "scenario.yaml"):
        (tmp_path / "other" / name).write_text("mine")
        with pytest.raises(UserError, match=r"not a folder with sweep\.json"):
            fedsim.sweep(SMALL, tmp_path / "other", jobs=1)
        (tmp_path / "other" / name).unlink()
    (tmp_path / "sweep" / "lr0.1_seed0").mkdir(parents=True)
    record(tmp_path / "sweep")
    (tmp_path / "sweep" / "lr0.1_seed0" / "thesis.tex").write_text("")
    before = (tmp_path / "sweep" / "sweep.json").read_bytes()
    (tmp_path / "sweep" / "index.csv").mkdir()
    with pytest.raises(UserError, match=r"index\.csv: is a folder"):
        fedsim.sweep(SMALL, tmp_path / "sweep", jobs=1)
    assert (tmp_path / "sweep" / "sweep.json").read_bytes() == before
    (tmp_path / "sweep" / "index.csv").rmdir()
    sweep = fedsim.sweep(SMALL, tmp_path / "sweep", jobs=1)
    assert "not empty" in sweep.failures["lr0.1_seed0"]
    assert repr(sweep).endswith(f"sweep': {len(sweep.record['runs'])} runs, 1 failed>")
    assert ".failures says why" in caplog.text
    assert (tmp_path / "sweep" / "lr0.1_seed0" / "thesis.tex").exists()
    with pytest.raises(UserError, match=r"contains no sweep\.json"):
        Sweep(tmp_path / "other")


def test_a_run_that_lost_its_description_is_not_left_out_silently(tmp_path: Path) -> None:
    sweep = fedsim.sweep(scenario(seeds=[0, 1]), tmp_path / "sweep", jobs=1)
    (tmp_path / "sweep" / "seed0" / "run.json").unlink()
    with pytest.raises(
        UserError, match=r"seed0/run\.json: no such file, though the run is complete"
    ):
        _ = sweep.runs


def test_runs_that_are_missing_or_replaced_are_damage(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    fedsim.sweep(SMALL, out, jobs=1)
    assert command("verify", out).exit_code == 0
    shutil.rmtree(out / "lr0.1_seed1")
    lost = "is damaged (run.json: no such file, though the run is complete)"
    assert [item.reason for item in fedsim.compare([out]).left_out] == [lost]
    shutil.rmtree(out / "lr0.1_seed0")
    shutil.copytree(out / "lr0.2_seed0", out / "lr0.1_seed0")
    states = [verdict.state for verdict in verify(out)]
    assert states == ["intact", "damaged", "damaged", "intact", "intact"]
    assert [run.statuses for run in listed(out)][:2] == [{DAMAGED: 1}] * 2
    shown = command("watch", "--once", out).stdout.splitlines()
    assert shown[0] == "lr0.1_seed0: damaged, is the run of another scenario"
    assert shown[1] == "lr0.1_seed1: damaged, no such file, though the run is complete"
    with pytest.raises(UserError, match=r"lr0.1_seed0: is the run of another scenario"):
        fedsim.compare([out])
    shutil.rmtree(out / "lr0.1_seed0")
    fedsim.sweep(SMALL, out, jobs=1)
    assert command("compare", out).exit_code == 0
    (out / "index.csv").write_text("run\n")
    assert [verdict.state for verdict in verify(out)] == ["damaged", *["intact"] * 4]
    # The advice is not to remove what is missing.
    for name in ("index.parquet", "sweep.json"):
        (out / name).unlink()
        verdict, *others = verify(out)
        [problem] = (each for each in verdict.problems if str(out / name) in str(each.where))
        assert "or continue without it: repeat the command" in str(problem.hint)
        assert [each.state for each in others] == ["intact"] * 4
    # It works, though the default output of compare is there.
    assert fedsim.sweep(SMALL, out, jobs=1).failures == {}
    assert {verdict.state for verdict in verify(out)} == {"intact"}


def test_a_run_that_is_replaced_during_the_sweep_is_not_taken_for_its_own(tmp_path: Path) -> None:
    """Nor one that is put in the place of a run that is waiting."""
    out, foreign = tmp_path / "sweep", tmp_path / "foreign"
    fedsim.run({**SMALL, "sweep": None, "seed": 5}, foreign)
    replaced = ("lr0.1_seed0", "lr0.2_seed1")

    def put(progress: SweepProgress) -> None:
        if progress.complete == 2 and not (out / replaced[1]).exists():
            shutil.rmtree(out / replaced[0])
            for name in replaced:
                shutil.copytree(foreign, out / name)

    with pytest.raises(UserError, match="seed0: is the run of another scenario"):
        sweep(load_scenario_dict(SMALL, tmp_path), out, jobs=1, on_progress=put)
    index = pd.read_csv(out / "index.csv").set_index("run")
    assert index["status"].tolist() == ["failed", "complete", "complete", "failed"]
    assert index.loc[[*replaced], "loss"].isna().all()
    assert "seed was 5 and is 0" in index.loc[replaced[0], "error"]
    damaged = [each.path.name for each in verify(out) if each.state == "damaged"]
    assert damaged == [*replaced]
    for name in replaced:
        shutil.rmtree(out / name)
    again = fedsim.sweep(SMALL, out, jobs=1)
    assert set(again.index["status"]) == {"complete"}
    assert {each.state for each in verify(out)} == {"intact"}


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    with claimed(tmp_path / "sweep"), pytest.raises(UserError, match="another fedsim process"):
        fedsim.sweep(SMALL, tmp_path / "sweep", jobs=1)
    assert fedsim.sweep(SMALL, tmp_path / "sweep", jobs=1).failures == {}


def test_complete_runs_of_other_code_or_data_are_not_taken_for_those_of_the_sweep(
    tmp_path: Path,
) -> None:
    code = tmp_path / "mine.py"
    code.write_text(
        "from fedsim.methods.fedavg import FedAvg\n\n\nclass Mine(FedAvg):\n    name = 'mine'\n"
    )
    world = scenario(seeds=[0, 1])
    world["server"] = {**world.get("server", {}), "method": f"{code}:Mine"}
    sweep = fedsim.sweep(world, tmp_path / "sweep", jobs=1)
    fedsim.sweep(world, tmp_path / "sweep", jobs=1)
    before = code.read_text()
    code.write_text(f"{before}\n\nCHANGED = True\n")
    with pytest.raises(UserError, match="were made before this file changed") as caught:
        fedsim.sweep(world, tmp_path / "sweep", jobs=1)
    assert caught.value.where == str(code)
    # A run that is not complete begins again with the new code.
    for run in sweep.runs:
        run.folder.update_info(status="interrupted")
    again = fedsim.sweep(world, tmp_path / "sweep", jobs=1)
    assert set(again.index["status"]) == {"complete"}
    code.write_text(before)
    with pytest.raises(UserError, match="were made before this file changed"):
        fedsim.sweep(world, tmp_path / "sweep", jobs=1)


def test_a_killed_sweep_has_interrupted_runs_and_its_index_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "sweep"
    made = scenario(seeds=[0, 1])
    fedsim.sweep(made, path, jobs=1)
    killed = RunFolder(path / "seed1")
    # As after SIGKILL: the index was written while the run was in progress.
    killed.update_info(status=Status.RUNNING)
    with locked(killed.path):
        planned = plan_runs(load_scenario_dict(made, tmp_path))
        write_index(path, planned, {})
        assert Sweep(path).index["status"].tolist() == ["complete", "running"]
    assert "seed1,1,running" in (path / "index.csv").read_text()
    assert Sweep(path).index["status"].tolist() == ["complete", "interrupted"]
    shutil.rmtree(killed.path)
    assert Sweep(path).index["status"].tolist() == ["complete", "waiting"]
    with locked(killed.path):
        assert [verdict.state for verdict in verify(path)] == ["intact", "intact"]
    before = read_sweep(path)["complete"]
    folder_record(path, load_scenario_dict(made, tmp_path), planned)
    assert read_sweep(path)["complete"] == before  # As after SIGKILL while it is repeated.
    fedsim.sweep(made, path, jobs=1)
    assert Sweep(path).index["status"].tolist() == ["complete", "complete"]
    assert "running" not in (path / "index.csv").read_text()
