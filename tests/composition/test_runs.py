"""Whole runs: exact learning on simulated time, the same bits every time, whole books."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import fedsim
from fedsim.errors import UserError
from fedsim.runs import Run
from tests.composition.worlds import digests, digits, quadratic


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of the digits."""
    return fedsim.run(digits(), tmp_path_factory.mktemp("whole") / "run")


def test_the_same_scenario_gives_the_same_bits(whole: Run, tmp_path: Path) -> None:
    """Again, with one worker thread instead of two, and as the scenario.yaml of the run folder has it."""
    one = fedsim.run(digits(), tmp_path / "one", overrides=["training.threads=1"])
    resolved = fedsim.run(whole.folder.scenario, tmp_path / "resolved")
    assert digests(one.path) == digests(resolved.path) == digests(whole.path)
    other = fedsim.run(digits(), tmp_path / "other", overrides=["seed=1"])
    assert digests(other.path)["model.safetensors"] != digests(whole.path)["model.safetensors"]


def test_the_bits_do_not_follow_hash_randomisation_or_threads_of_others(
    whole: Run, tmp_path: Path
) -> None:
    """A fresh interpreter with another hash seed and thread count writes the same files as this one."""
    scenario, folder = tmp_path / "scenario.yaml", tmp_path / "there"
    YAML(typ="safe").dump(digits(), scenario)
    environment = {**os.environ, "PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-m", "fedsim", "run", str(scenario), "-o", str(folder)]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    assert digests(folder) == digests(whole.path)


def test_a_target_ends_the_run(tmp_path: Path) -> None:
    """The run stops at the first evaluation that reaches the target, and says when."""
    world = digits(
        stop={"rounds": 200, "target": {"accuracy": 0.6}}, evaluation={"every_rounds": 1}
    )
    run = fedsim.run(world, tmp_path / "run")
    accuracy = run.metrics["accuracy"].to_numpy()
    assert accuracy[-1] >= 0.6
    assert (accuracy[:-1] < 0.6).all()
    assert run.info["rounds"] < 200
    assert run.time_to("accuracy", 0.6) == run.metrics["time_s"].iloc[-1]


def test_a_timing_only_run_is_the_same_run_without_learning(whole: Run, tmp_path: Path) -> None:
    """The dispatches and aggregations are those of the run that learns, bit for bit."""
    timed = fedsim.run(digits(), tmp_path / "timed", timing_only=True)
    for name in ("dispatches.parquet", "aggregations.parquet"):
        assert (whole.path / name).read_bytes() == (timed.path / name).read_bytes()
    assert timed.metrics.empty
    assert not timed.folder.model.exists()


def test_the_size_of_a_model_that_is_only_timed_may_be_given_in_bytes(tmp_path: Path) -> None:
    """25 MB at 8 and 4 Mbit/s: 25 s down and, compressed to a tenth, 5 s up; a step of 1 s between them."""
    world = quadratic([[0]])
    world["task"] = {"name": "timing", "clients": 3}
    world["devices"]["network"] |= {"down": "8Mbps", "up": "4Mbps"}
    world["server"]["compression"] = {"up": {"factor": 0.1}}
    world["training"] = {"local_steps": 1}
    for dtype in ("float32", "float64"):
        run = fedsim.run(
            world, tmp_path / dtype, overrides=["task.size=25MB", f"training.dtype={dtype}"]
        )
        (row,) = run.dispatches.to_dict("records")
        assert (row["bytes_down"], row["bytes_up"]) == (25_000_000, 2_500_000)
        assert (row["downloaded_s"], row["computed_s"], row["arrived_s"]) == (25.0, 26.0, 31.0)
    millions = fedsim.run(world, tmp_path / "default").dispatches
    assert millions["bytes_down"].tolist() == [4_000_000]
    for both in ("task.parameters=5", "task.names={head: 1000000}"):
        with pytest.raises(UserError, match=r"give size, or parameters .*, not both"):
            fedsim.run(world, tmp_path / "both", overrides=["task.size=25MB", both])


def test_only_images_are_augmented_and_nothing_is_left_behind(tmp_path: Path) -> None:
    augmentation = {"crop_padding": 1, "flip": True}
    flat = quadratic([[0]])
    flat["training"] = {**flat["training"], "augmentation": augmentation}
    with pytest.raises(UserError, match=r"training\.augmentation"):
        fedsim.run(flat, tmp_path / "flat")
    assert not (tmp_path / "flat").exists()
    images = digits(stop={"rounds": 2})
    plain = fedsim.run(images, tmp_path / "plain")
    images["training"] = {**images["training"], "augmentation": augmentation}
    augmented = fedsim.run(images, tmp_path / "augmented")
    assert plain.dispatches.equals(augmented.dispatches)
    assert not plain.metrics["loss"].equals(augmented.metrics["loss"])
