"""A run is resumed with the scenario that it began with."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import fedsim
from fedsim import bundled
from fedsim.cli import cli
from fedsim.composition.run import Progress, execute
from fedsim.errors import UserError
from fedsim.files.locks import locked
from fedsim.runs import Status
from fedsim.runs.verification import verify_folder
from fedsim.scenario.loading import load_scenario_dict
from tests.composition.interrupting import interrupted, interrupted_with_checkpoint
from tests.composition.worlds import digests, digits


def test_an_edited_scenario_is_refused_and_its_keys_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run"
    interrupted(path)
    assert verify_folder(path).state == "unfinished"
    scenario = path / "scenario.yaml"
    text = scenario.read_text()
    scenario.write_text(text.replace("lr: 0.1", "lr: 0.2"))
    assert scenario.read_text() != text
    with pytest.raises(UserError, match=r"training\.optimizer\.lr was 0\.1 and is 0\.2"):
        fedsim.resume(path)
    kept = path / "checkpoint" / "scenario.yaml"
    kept.write_text(scenario.read_text())
    with pytest.raises(UserError, match="has changed since the run began") as both:
        fedsim.resume(path)
    assert str(kept) not in str(both.value)
    kept.write_text(text)
    scenario.unlink()
    with pytest.raises(UserError, match="No such file") as caught:
        fedsim.resume(path)
    _, original, target = str(caught.value.hint).removeprefix("restore it: ").split()
    assert (Path(original).read_text(), target) == (text, str(scenario))
    scenario.write_text(text)
    assert fedsim.resume(path).status is Status.COMPLETE


def test_damage_to_an_interrupted_run_is_noticed_and_resuming_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.composition.run.CHECKPOINT_INTERVAL_S", 0.0)
    path, model_file = tmp_path / "run", "models/version-00000001.safetensors"

    world = digits(checkpoint_models={"every": "1 versions"})
    world["training"] |= {"verify": "eager"}
    interrupted(path, world, rounds=4)
    assert verify_folder(path).state == "unfinished"
    for name in (model_file, "dispatches.arrows"):
        content = bytearray((path / name).read_bytes())
        content[-9] ^= 1
        (path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"dispatches\.arrows: it has changed"):
        _ = fedsim.load(path).dispatches
    # The tables are written again; the model is not, because it comes from before the checkpoint.
    fedsim.resume(path)
    (problem,) = verify_folder(path).problems
    assert problem.where == str(path / model_file)


def content(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_run_whose_checkpoints_are_damaged_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run"
    interrupted_with_checkpoint(path, digits(stop={"rounds": 50}), 20)
    loaded = fedsim.load(path)
    for state in path.glob("checkpoint/*/state.json"):
        state.write_text("")
    with locked(path):  # A process that resumes the run replaces them.
        assert verify_folder(path).state == "unfinished"
    problems = verify_folder(path).problems
    before = content(path)
    assert path / "dispatches.arrows" in before
    with pytest.raises(UserError, match="every checkpoint is damaged") as raised:
        fedsim.resume(path)
    assert content(path) == before
    *command, folder = str(raised.value.hint).partition(",")[0].rpartition(": ")[2].split()
    assert command == ["rm", "-r"]
    advice = f"resume from the start: rm -r {folder}, then continue with: fedsim resume {path}"
    assert {problem.hint for problem in problems} == {advice}
    shutil.rmtree(folder)
    # Somebody who has begun to read it goes on with the tables that are there.
    assert loaded.dispatches.equals(fedsim.resume(path).dispatches)


def test_a_checkpoint_of_another_run_is_damaged(tmp_path: Path) -> None:
    """Even one that fits the timeline; the other checkpoint is used."""
    path, other = tmp_path / "run", tmp_path / "other"
    interrupted_with_checkpoint(path, digits(stop={"rounds": 50}), 20)
    interrupted_with_checkpoint(
        other, digits(stop={"rounds": 50}, training={"optimizer": {"lr": 0.2}}), 20
    )
    shutil.copytree(other / "checkpoint" / "1", path / "checkpoint" / "9")
    (problem,) = verify_folder(path).problems
    assert problem.where == str(path / "checkpoint" / "9" / "state.json")
    assert "resume" in str(problem.hint)
    before = content(path)
    (path / "checkpoint" / "1").rename(tmp_path / "1")
    with pytest.raises(UserError, match="every checkpoint is damaged"):
        fedsim.resume(path)
    (tmp_path / "1").rename(path / "checkpoint" / "1")
    assert content(path) == before
    complete = fedsim.run(digits(stop={"rounds": 50}), tmp_path / "complete")
    assert fedsim.resume(path).metrics.equals(complete.metrics)


def test_a_folder_in_the_place_of_that_of_a_run_stays_as_it_is(tmp_path: Path) -> None:
    path, keep, moved = (tmp_path / name for name in ("run", "keep", "moved"))
    fedsim.run(digits(seed=3), keep)

    def swap(_: Progress) -> None:
        if not moved.exists():
            path.rename(moved)
            shutil.copytree(keep, path)

    loaded = load_scenario_dict(digits(), tmp_path)
    with pytest.raises(UserError, match="another folder is in the place"):
        execute(loaded, path, on_progress=swap)
    assert [digest for _, digest in sorted(content(path).items())] == [
        digest for _, digest in sorted(content(keep).items())
    ]
    assert verify_folder(moved).state == "unfinished"
    complete = fedsim.run(digits(), tmp_path / "complete")
    assert fedsim.resume(moved).dispatches.equals(complete.dispatches)


def test_a_run_is_resumed_after_its_project_was_moved(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(bundled.resolved("builtin:phones_mostly_on_week"), project / "trace")
    (project / "mine.py").write_text(
        "from fedsim.scheduling.selections.uniform import Uniform\nclass Mine(Uniform): pass\n"
    )
    (project / "scenario.yaml").write_text(
        "task: {name: quadratic, centers: [1, 2, 3]}\n"
        "devices: {trace: trace, compute: {name: values, step: 1s}}\n"
        "server: {selection: {name: 'mine.py:Mine', cohort: 2}}\nstop: {rounds: 3}\n"
    )

    complete = fedsim.run(project / "scenario.yaml", tmp_path / "complete")
    for name in ("same", "edited"):
        interrupted(project / "runs" / name, project / "scenario.yaml")
    moved = project.rename(tmp_path / "moved")
    assert fedsim.resume(moved / "runs" / "same").dispatches.equals(complete.dispatches)
    (moved / "mine.py").write_text((moved / "mine.py").read_text() + "\n")
    with pytest.raises(UserError, match=r"moved/mine\.py: the code has changed"):
        fedsim.resume(moved / "runs" / "edited")
    manifest = moved / "trace" / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    with pytest.raises(UserError, match=r"code has changed(.|\n)*moved/trace: the data have"):
        fedsim.resume(moved / "runs" / "edited")
    shutil.rmtree(moved / "trace")
    mine = moved / "mine.py"
    mine.write_text(mine.read_text().removesuffix("\n"))
    with pytest.raises(UserError, match="no such trace bundle"):
        fedsim.resume(moved / "runs" / "edited")


_SELECTION = """\
import numpy as np
from fedsim.scheduling.base import CohortParams, Selection


class Pick(Selection):
    Params = CohortParams

    def draw(self, count):
        return np.random.default_rng().permutation(self.available())[:count].tolist()
"""


def test_a_timeline_that_is_not_repeated_is_one_error_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.composition.run.CHECKPOINT_INTERVAL_S", 0.0)
    (tmp_path / "pick.py").write_text(_SELECTION)
    path = tmp_path / "run"
    selection = {"name": f"{tmp_path}/pick.py:Pick", "cohort": 4}
    interrupted(path, digits(stop={"rounds": 50}, server={"selection": selection}), rounds=30)
    before = content(path)
    assert path / "aggregations.arrows" in before
    result = CliRunner().invoke(cli, ["resume", str(path)])
    assert (result.exit_code, "Traceback" in result.stderr) == (2, False)
    assert "does not repeat the timeline that the checkpoint continues: dispatch " in result.stderr
    assert ("pick.py:Pick (server.selection) must be a function of the seed") in result.stderr
    assert f"fedsim run {path / 'scenario.yaml'} -o NEW_FOLDER" in result.stderr
    assert content(path) == before


def test_the_scenario_of_a_run_names_bundled_traces_as_any_installation_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = "builtin:phones_mostly_on_week"
    parts = {"compute": "trace", "availability": "trace", "network": "static"}
    scenario = {
        "name": "phones",
        "task": {"name": "timing", "clients": 5},
        "devices": {
            "trace": trace,
            **{section: {"name": name, "trace": trace} for section, name in parts.items()},
        },
        "server": {"selection": {"name": "uniform", "cohort": 2}},
        "stop": {"rounds": 3},
    }

    complete = fedsim.run(scenario, tmp_path / "complete")
    interrupted(tmp_path / "interrupted", scenario)
    text = complete.scenario_text
    assert text.count(f"trace: {trace}\n") == 4
    assert str(bundled.located("traces")) not in text + json.dumps(dict(complete.info))
    elsewhere = tmp_path / "site-packages" / "fedsim" / "bundled"
    shutil.copytree(bundled.resolved(trace), elsewhere / "traces" / bundled.resolved(trace).name)
    monkeypatch.setattr(bundled, "HERE", elsewhere)
    again = fedsim.run(tmp_path / "complete" / "scenario.yaml", tmp_path / "again")
    for run in (again, fedsim.resume(tmp_path / "interrupted")):
        assert run.dispatches.equals(complete.dispatches)


def test_only_what_never_changes_a_result_may_change_on_the_way(tmp_path: Path) -> None:
    world = digits(stop={"rounds": 50})
    world["server"] = {**world["server"], "method": {"name": "scaffold"}}
    world["training"] = {**world["training"], "threads": 1}
    folder = tmp_path / "half"
    interrupted_with_checkpoint(folder, world, 20)
    command = ["resume", str(folder), "-s", "training.threads=2", "-s", "training.memory=disk"]
    refused = CliRunner().invoke(cli, [*command, "-s", "training.optimizer.lr=1"])
    assert refused.exit_code == 2
    assert refused.stderr == (
        "error: option -s training.optimizer.lr=1: training.optimizer.lr affects the result, so it cannot "
        "change when a run is resumed\n  a resumed run may change training.workers, training.threads, training.memory, "
        "training.cuda_graphs, logging; for other changes begin a new run\n"
    )
    # A section in whole would put its other keys back to their defaults.
    with pytest.raises(UserError, match=r"training\.batch_size affects the result"):
        fedsim.resume(folder, overrides=["training={threads: 2}"])
    assert fedsim.load(folder).status is Status.INTERRUPTED
    finished = CliRunner().invoke(cli, command)
    assert finished.exit_code == 0, finished.output
    assert fedsim.load(folder).info["learning"]["workers"] == 2
    assert digests(folder) == digests(fedsim.run(world, tmp_path / "whole").path)
