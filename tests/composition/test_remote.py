"""Whole runs on other workers: the files of a run are those of one thread, and nothing is left behind."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import fedsim
from fedsim.cli import cli
from fedsim.errors import UserError
from fedsim.runs.folder import Status
from tests.composition.interrupting import interrupted_with_checkpoint
from tests.composition.worlds import digests, digits
from tests.learning.imitation_ray import Imitation, imitated

pytestmark = pytest.mark.usefixtures("without_reports")

HAVE_RAY = importlib.util.find_spec("ray") is not None
RAY = {"name": "ray", "count": 2}
PARTS = {
    "method": {"name": "fedavg"},
    "submodels": {"name": "heterofl", "rates": [1, 0.5], "by": "speed"},
    "compression": {"up": {"name": "topk", "share": 0.1}, "down": {"name": "qsgd"}},
}
ON_RAY, THREADS = "training.workers={name: ray, count: 2}", "training.workers={name: threads}"


def world(workers: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Digits learned with control variates, on one thread or with these workers."""
    scenario = digits(**changes)
    scenario["server"] = {**scenario["server"], "method": {"name": "scaffold"}}
    who: dict[str, Any] = {"threads": 1} if workers is None else {"workers": workers}
    scenario["training"] = {**scenario["training"], **who}
    return scenario


@pytest.fixture
def ray() -> Iterator[Imitation]:
    with imitated() as imitation:
        yield imitation


@pytest.mark.parametrize("server", [{}, PARTS])
def test_a_run_on_ray_writes_the_same_files(
    tmp_path: Path, ray: Imitation, server: dict[str, Any]
) -> None:
    scenarios = world(), world(RAY)
    for scenario in scenarios:
        scenario["server"] |= server
    expected, run = (
        fedsim.run(scenario, tmp_path / str(number)) for number, scenario in enumerate(scenarios)
    )
    assert digests(run.path) == digests(expected.path)
    assert [number for number, name in ray.calls if name == "prepare"] == [0, 1]
    assert "train" in [name for _, name in ray.calls]
    assert not ray.is_initialized()
    learning = run.info["learning"]
    assert (learning["workers"], learning["workers_are"]) == (2, "ray")


@pytest.mark.skipif(not HAVE_RAY, reason="Ray is not installed")
def test_a_run_on_a_real_cluster_writes_the_same_files(tmp_path: Path) -> None:
    import ray

    expected = fedsim.run(world(), tmp_path / "threads")
    run = fedsim.run(world(RAY), tmp_path / "ray")
    assert digests(run.path) == digests(expected.path)
    assert not ray.is_initialized()


def test_devices_without_cuda_are_threads(tmp_path: Path) -> None:
    expected = fedsim.run(world(), tmp_path / "threads")
    run = fedsim.run(world({"name": "devices"}), tmp_path / "devices")
    assert digests(run.path) == digests(expected.path)


def test_without_a_cluster_nothing_is_left_behind(tmp_path: Path, ray: Imitation) -> None:
    with pytest.raises(UserError, match=r"no Ray cluster answers at ray://127\.0\.0\.1:1"):
        fedsim.run(world({**RAY, "address": "ray://127.0.0.1:1"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("began_on_ray", [True, False])
def test_a_run_goes_on_with_other_workers(
    began_on_ray: bool, tmp_path: Path, ray: Imitation
) -> None:
    long = {"stop": {"rounds": 50}}
    expected = fedsim.run(world(**long), tmp_path / "threads")
    folder = tmp_path / "half"
    interrupted_with_checkpoint(folder, world(RAY if began_on_ray else None, **long), 20)
    assert not ray.is_initialized()
    assert fedsim.load(folder).status is Status.INTERRUPTED
    assert list((folder / "checkpoint").iterdir())
    before = len(ray.calls)
    scenario = (folder / "scenario.yaml").read_bytes()
    finished = fedsim.resume(folder, overrides=[THREADS if began_on_ray else ON_RAY])
    assert digests(finished.path) == digests(expected.path)
    assert (len(ray.calls) > before) is not began_on_ray
    assert finished.info["learning"]["workers_are"] == ("threads" if began_on_ray else "ray")
    assert (folder / "scenario.yaml").read_bytes() == scenario


def test_only_what_never_changes_a_result_may_change_on_the_way(tmp_path: Path) -> None:
    long = {"stop": {"rounds": 50}}
    folder = tmp_path / "half"
    interrupted_with_checkpoint(folder, world(**long), 20)
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
    assert digests(folder) == digests(fedsim.run(world(**long), tmp_path / "whole").path)
