"""What the sweeps of Wang and Ji and of Chen et al. rest on, besides what ``test_papers.py`` asks of all of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedsim.api import load, read_scenario
from fedsim.cli import cli
from fedsim.traces.bundle import TraceBundle
from tests.scenarios.test_papers import PAPERS, planned

AMPLIFIED, PERSONAL = PAPERS / "generalized_fedavg", PAPERS / "partial_personalization"


@pytest.mark.parametrize(
    ("sweep", "bundle"), [("methods_small", "turns_small"), ("methods_full", "turns_full")]
)
def test_waiting_sees_the_turns_that_the_others_draw_from(sweep: str, bundle: str) -> None:
    runs = [run.resolved() for run in planned(AMPLIFIED / f"{sweep}.yaml")]
    turns = next(
        run["server"]["selection"] for run in runs if run["server"]["method"]["name"] == "fedavg"
    )
    clients = runs[0]["task"]["partition"]["clients"]
    table = TraceBundle.read(AMPLIFIED / bundle).table("availability").to_pandas()
    assert len(table) == clients
    group = np.arange(clients) * turns["groups"] // clients
    slot_us = turns["slot_rounds"] * 1_000_000
    assert (table["start_us"].to_numpy() == group * slot_us).all()
    assert (table["end_us"].to_numpy() == (group + 1) * slot_us).all()
    for run in runs:
        step_s, steps = run["devices"]["compute"]["step"], run["training"]["local_steps"]
        assert step_s * steps == pytest.approx(1), "a round takes a second"
        if run["server"]["method"]["name"] == "wait":
            cycle_s = turns["groups"] * turns["slot_rounds"]
            assert run["server"]["schedule"]["length"] == cycle_s


def test_a_step_size_is_the_product_of_its_inner_and_outer_one() -> None:
    for run in planned(PERSONAL / "everybody_small.yaml"):
        method, training = run.resolved()["server"]["method"], run.resolved()["training"]
        gamma = training["optimizer"]["lr"]
        gamma_u = gamma if method.get("gamma_u") is None else method["gamma_u"]
        assert gamma_u * method["eta_u"] == pytest.approx(gamma)


def short(sweep: Path, folder: Path, *overrides: str) -> dict[str, dict[Any, Any]]:
    """Last metrics of each run of a sweep, cut short by these overrides, by the run's name."""
    words = ["sweep", str(sweep), "-j", "1", "-o", str(folder), "--json", "-s", "sweep.seeds=[0]"]
    for override in overrides:
        words += ["-s", override]
    ran = CliRunner().invoke(cli, words)
    assert ran.exit_code == 0, ran.output
    paths = [Path(run) for run in json.loads(ran.stdout)["runs"]]
    return {path.name: load(path).metrics.iloc[-1].to_dict() for path in paths}


def test_methods_small_runs(tmp_path: Path) -> None:
    stop = ("stop={simulated_time: 30s}", "evaluation.every=30s")
    ended = short(AMPLIFIED / "methods_small.yaml", tmp_path / "runs", *stop)
    assert len(ended) == 14
    for name, metrics in ended.items():
        # All are in their warm-up, in which waiting makes rounds of a second too.
        assert 27 <= metrics["version"] <= 30, name
        assert 0 < metrics["objective_loss"] < 3
        assert "gradient_norm_squared" in metrics


def test_steps_small_runs(tmp_path: Path) -> None:
    assert read_scenario(PERSONAL / "steps_small.yaml").scenario.evaluation.objective
    cut = ("sweep.zip={training.local_steps: [5]}", "stop.rounds=2", "task.dataset.samples=40")
    ended = short(PERSONAL / "steps_small.yaml", tmp_path / "runs", *cut)
    assert len(ended) == 8
    for metrics in ended.values():
        assert metrics["personal_gradient_norm_squared"] > 0
        assert metrics["gradient_norm_squared"] > 0
