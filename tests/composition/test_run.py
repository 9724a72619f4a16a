"""A run folder has one owner, and a crash in the first or last moments leaves it usable."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ruamel.yaml import YAML

import fedsim
from fedsim.composition.run import execute
from fedsim.errors import UserError
from fedsim.learning.learner import Learner
from fedsim.methods.fedavg import FedAvg
from fedsim.runs import Run, RunFolder
from fedsim.runs.checkpoint import Checkpoints
from fedsim.runs.folder import Status
from fedsim.runs.records import RUN
from fedsim.runs.verification import verify_folder
from fedsim.scenario.loading import load_scenario_dict
from tests.composition.interrupting import interrupted
from tests.composition.killing import run_killed, started
from tests.composition.worlds import digests, digits, quadratic, timed


def _run_on(path: Path) -> None:
    """A run that goes on until it is killed, and says when it has begun."""
    going = path.with_name("going")
    fedsim.run(digits(stop={"rounds": 100_000}), path, on_progress=lambda progress: going.touch())


def test_a_run_that_is_going_on_is_neither_resumed_nor_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = started(_run_on, path)
    try:
        while not (tmp_path / "going").exists():
            assert process.is_alive()
            time.sleep(0.01)
        before = sorted(item.name for item in path.iterdir())
        with pytest.raises(UserError, match=f"process {process.pid} on"):
            fedsim.resume(path)
        with pytest.raises(UserError, match=f"process {process.pid} on"):
            fedsim.run(digits(), path, overwrite=True)
        assert sorted(item.name for item in path.iterdir()) == before
        assert fedsim.load(path).status is Status.RUNNING
        assert process.is_alive()
    finally:
        process.kill()
        process.join()
    assert fedsim.load(path).status is Status.INTERRUPTED
    fedsim.run(digits(stop={"rounds": 1}), path, overwrite=True)
    assert verify_folder(path).state == "intact"


def test_a_run_killed_before_it_began_can_be_run_again(tmp_path: Path) -> None:
    path = tmp_path / "run"
    interrupted(path)
    folder = RunFolder(path)
    info = folder.read_info()
    RUN.write(folder.path, info | {"files": {}})
    folder.scenario.unlink()
    with pytest.raises(UserError, match="before it began"):
        fedsim.resume(path)
    assert fedsim.run(digits(stop={"rounds": 1}), path).status is Status.COMPLETE


def test_links_in_a_run_folder_are_not_written_through(tmp_path: Path) -> None:
    """Neither those under the names of results, nor those under names of temporary files."""
    victim, path = tmp_path / "victim", tmp_path / "run"
    victim.write_text("precious")
    scenario = quadratic([[0, 1], [2]])
    fedsim.run(scenario, path)
    for name in ("dispatches.parquet", "model.safetensors", ".dispatches.parquet.part"):
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(victim)
    run = fedsim.run(scenario, path, overwrite=True)
    assert (run.status, len(run.dispatches)) == (Status.COMPLETE, 3)
    assert not (path / "dispatches.parquet").is_symlink()
    (path / ".lock").unlink()
    (path / ".lock").symlink_to(victim)
    with pytest.raises(UserError, match="symbolic links"):
        fedsim.run(scenario, path, overwrite=True)
    assert victim.read_text() == "precious"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of the digits that nothing disturbed."""
    return fedsim.run(digits(), tmp_path_factory.mktemp("whole") / "run")


@contextlib.contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """Files may have at most ``limit`` bytes inside, or writing fails as on a full disk."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("with_reports")
@pytest.mark.parametrize("limit", [1_000, 4_000, 20_000])
def test_a_limit_on_the_size_of_files_is_one_message_and_the_run_can_go_on(
    tmp_path: Path,
    limit: int,
    whole: Run,
    capfd: pytest.CaptureFixture[str],
    recwarn: pytest.WarningsRecorder,
) -> None:
    path = tmp_path / "run"
    with file_size_limit(limit), pytest.raises(UserError) as caught:
        fedsim.run(digits(), path)
    assert (capfd.readouterr().err, recwarn.list) == ("", [])
    message = str(caught.value)
    assert message.startswith(f"{path}: the disk is full, or a quota or file size limit")
    begun = RunFolder(path).has_begun
    assert ("fedsim resume" in message) == begun
    if begun:
        # The largest file is the page, which is written after the run is complete.
        expected = Status.COMPLETE if limit == 20_000 else Status.INTERRUPTED
        assert fedsim.load(path).status is expected
        with file_size_limit(100), pytest.raises(UserError, match=f"^{path}.*: the disk is full"):
            fedsim.resume(path)
    resumed = fedsim.resume(path) if begun else fedsim.run(digits(), path)
    assert (path / "report.html").exists()
    for name in ("dispatches.parquet", "metrics.parquet", "model.safetensors"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes()


@pytest.mark.parametrize(
    ("evaluations", "server"),
    [
        (1, None),
        (10, None),
        (10, {"selection": {"name": "oort", "cohort": 4}}),
        (10, {"method": {"name": "scaffold"}, "schedule": {"name": "async", "concurrency": 4}}),
    ],
    ids=["no checkpoint", "a checkpoint", "selection by losses", "clients with memories"],
)
def test_a_killed_run_is_resumed_to_the_same_bits(
    tmp_path: Path, evaluations: int, server: dict[str, Any] | None
) -> None:
    """kill -9 before and after the first checkpoint; flushed rows are readable; resume ends with the same bits."""
    world = digits(stop={"rounds": 25}, evaluation={"every_rounds": 2})
    world["server"] = server or world["server"]
    world["task"]["partition"]["test"] = "split"
    scenario, killed = tmp_path / "scenario.yaml", tmp_path / "killed"
    YAML(typ="safe").dump(world, scenario)
    run_killed(scenario, killed, evaluations)
    half = fedsim.load(killed)
    assert half.status is Status.INTERRUPTED
    assert len(half.metrics) == evaluations
    assert any((killed / "checkpoint").glob("[0-9]*")) == (evaluations > 1)
    resumed = fedsim.resume(killed)
    undisturbed = fedsim.run(scenario, tmp_path / "undisturbed")
    assert resumed.status is Status.COMPLETE
    assert digests(resumed.path) == digests(undisturbed.path)
    assert not (killed / "checkpoint").exists()
    assert fedsim.resume(killed).info == resumed.info


NORMED = """
import torch
from torch import nn

class Normed(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, classes))

    def forward(self, x):
        return self.layers(x)
"""


def normed(folder: Path, partition: Any = None, **training: Any) -> dict[str, Any]:
    """A round of a model with batch normalization: 1,239 samples of eleven clients, of which seven have 113 and four
    112, so that batches of 16 are eight, the last of one sample; or with another partition."""
    (folder / "own.py").write_text(NORMED)
    rows = "".join(f"{row},{row % 11}\n" for row in range(1239))
    (folder / "own.csv").write_text(f"sample,client\n{rows}")
    world = digits(stop={"rounds": 1}, training={"batch_size": 16, **training})
    world["task"] = {
        **world["task"],
        "partition": partition or {"name": "file", "path": str(folder / "own.csv")},
        "model": {"name": f"{folder / 'own.py'}:Normed"},
    }
    return world


@pytest.mark.parametrize(
    ("training", "client"),
    [
        ({"local_epochs": 1}, 0),
        ({"local_steps": 7}, None),
        ({"local_steps": 8}, 0),
        ({"time_budget": "1s"}, 0),
        # 112 samples leave one in a batch of 111; client 7 is the first that has 112.
        ({"batch_size": 111}, 7),
        ({"batch_size": 1}, 0),
        ({"local_epochs": 1, "batches": "with_replacement"}, None),
        ({"batch_size": 1, "local_steps": 2, "batches": "with_replacement"}, 0),
    ],
)
def test_a_mini_batch_of_one_sample_is_refused_where_the_model_needs_two(
    tmp_path: Path, training: dict[str, Any], client: int | None
) -> None:
    if client is None:
        fedsim.run(normed(tmp_path, **training), tmp_path / "run")
        return
    with pytest.raises(
        UserError, match=f"client {client} has a mini-batch of one sample"
    ) as refusal:
        fedsim.run(normed(tmp_path, **training), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    drops = training.get("batch_size") != 1
    assert str(refusal.value.hint).startswith("set training.last_batch to drop, ") == drops
    if drops:
        fedsim.run(normed(tmp_path, **training, last_batch="drop"), tmp_path / "dropping")


def test_a_run_told_to_stop_while_it_is_prepared_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "run"
    world = quadratic([[0, 1], [2]])
    for start in (lambda: fedsim.run(world, path), lambda: fedsim.resume(path)):
        with monkeypatch.context() as patched:
            patched.setattr("fedsim.composition.run.build_server", stop)
            with pytest.raises(KeyboardInterrupt):
                start()
        assert fedsim.load(path).status is Status.INTERRUPTED
    assert fedsim.resume(path).status is Status.COMPLETE


def test_a_run_that_fails_before_its_first_event_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the error, the command can be repeated, and a run that is resumed keeps its status."""
    with monkeypatch.context() as context:
        context.setattr(FedAvg, "initial_state", lambda self, model: {}["missing"])
        with pytest.raises(KeyError):
            fedsim.run(digits(), tmp_path / "run")
    assert not (tmp_path / "run").exists()

    interrupted(tmp_path / "run")
    with monkeypatch.context() as context:
        context.setattr(Learner, "__init__", lambda *_, **__: {}["missing"])
        with pytest.raises(KeyError):
            fedsim.resume(tmp_path / "run")
    assert fedsim.load(tmp_path / "run").status is Status.INTERRUPTED
    assert fedsim.resume(tmp_path / "run").status is Status.COMPLETE


@pytest.mark.parametrize(("took_s", "expected"), [(0, [24, 48, 72]), (0.5, [24, 72.5])])
def test_checkpoints_are_at_most_30_seconds_apart_unless_they_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_s: float, expected: list[float]
) -> None:
    """Waves of 12 s: the second ends at 24 s, and the third would end too late for a checkpoint.

    After a checkpoint that took 0.5 s, a hundredth of 50 s, the fourth wave is the last that does not end too late.
    """
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now, perf_counter=lambda: now)
    monkeypatch.setattr("fedsim.composition.run.time", clock)
    saved: list[float] = []
    train = Learner._train

    def save(*_: Any) -> None:
        nonlocal now
        saved.append(now)
        now += took_s

    def slowly(learner: Learner, wave: Any) -> None:
        nonlocal now
        train(learner, wave)
        now += 12

    monkeypatch.setattr(Checkpoints, "save", save)
    monkeypatch.setattr(Learner, "_train", slowly)
    world = digits(stop={"rounds": 6})
    world["training"] |= {"verify": "eager"}
    world["server"]["selection"]["cohort"] = 1
    fedsim.run(world, tmp_path / "run")
    assert saved == pytest.approx(expected)


@pytest.mark.parametrize("seed", ["", "0"])
def test_a_generator_without_a_seed_in_the_users_code_is_one_warning(
    tmp_path: Path, seed: str
) -> None:
    code = f"""\
import numpy as np
from fedsim.scheduling.base import CohortParams, Selection


class Pick(Selection):
    Params = CohortParams

    def draw(self, count):
        return np.random.default_rng({seed}).permutation(self.available())[:count].tolist()
"""
    (tmp_path / "pick.py").write_text(code)
    selection = {"name": f"{tmp_path}/pick.py:Pick", "cohort": 1}
    scenario = timed(server={"selection": selection})
    seen: list[UserError] = []
    execute(load_scenario_dict(scenario, tmp_path), tmp_path / "run", on_warning=seen.append)
    assert [each.where for each in seen if "without a seed" in each.message] == (
        [] if seed else [f"{tmp_path}/pick.py:9"]
    )
