"""What every method keeps: an aggregation without updates changes nothing, and no state is changed in place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import fedsim
from fedsim.cli import cli
from fedsim.methods.fedavg import FedAvg
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.loading import load_scenario_dict
from fedsim.scheduling.schedules.compass import Compass
from tests.methods.driver import play
from tests.methods.own_method import SCENARIO, run_with
from tests.methods.personal_worlds import CASE_B, Story, coupled

pytestmark = pytest.mark.usefixtures("without_reports")


def test_a_round_in_which_nothing_arrives_changes_nothing() -> None:
    for method in ("fedavg_p", "scaffold_p"):
        story = Story(method, coupled(CASE_B)).round([], lost=[0, 1, 2])
        for name in ("u", "v", "c", "ci"):
            if series := getattr(story, name):
                np.testing.assert_array_equal(series[0], series[1])
    others = "fedalt ditto feddyn fedadam fedprox fedcompass fedbuff fedasync fedat fedavgm"
    for method in others.split():
        played = play(method, coupled(CASE_B, initial=[0.3, -0.2]), [[]])
        np.testing.assert_array_equal(played.models[0], played.models[1])


@pytest.mark.parametrize(
    ("method", "schedule"),
    [
        ("fedasync", "async"),
        ("fedbuff", "buffered"),
        ("fedat", "tiered"),
        ("fedcompass", "compass"),
    ],
)
def test_a_method_brings_its_schedule(method: str, schedule: str, tmp_path: Path) -> None:
    scenario = {
        "task": {"name": "quadratic", "centers": [1.0, 3.0, -2.0, 4.0], "samples": [1, 2, 3, 4]},
        "training": {"dtype": "float64", "optimizer": {"lr": 0.1}, "device": "cpu"},
        "devices": {
            "compute": {"name": "values", "step": [1, 1.5, 4, 9]},
            "network": {"down": "8Mbps", "up": "8Mbps"},
        },
        "server": {"method": {"name": method}},
        "stop": {"simulated_time": 600},
    }
    loaded = load_scenario_dict(scenario, tmp_path, CATALOG)
    assert loaded.scenario.server.schedule.name == schedule
    run = fedsim.run(scenario, tmp_path / "run")
    assert len(run.aggregations) > 10
    losses = run.metrics["loss"]
    assert losses.iloc[-1] < losses.iloc[0]
    timing = fedsim.run(scenario, tmp_path / "timing", timing_only=True)
    assert timing.dispatches.equals(run.dispatches)


def test_a_users_class_does_not_inherit_title_and_paper() -> None:
    """A class that derives from FedAvg is not FedAvg."""

    class Mine(FedAvg):
        pass

    class Published(Mine):
        title, paper = "Published", "Author, Paper"

    class Ticking(Compass):
        pass

    assert (Mine.title, Mine.paper) == ("Mine", "")
    assert (Published.title, Published.paper) == ("Published", "Author, Paper")
    assert Compass.paper
    assert Ticking.paper == ""
    assert FedAvg.title == "FedAvg"


def test_messages_and_descriptions_name_the_users_class(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedsim.methods.fedavg import FedAvg\n\n\nclass NeedSync(FedAvg):\n"
        '    """Mine."""\n\n    only_synchronous = "so it is"\n'
    )
    (tmp_path / "own.yaml").write_text(
        SCENARIO.replace(
            'method: {name: "mine.py:Mine"}', "method: 'mine.py:NeedSync', schedule: async"
        )
    )
    result = CliRunner().invoke(cli, ["scenario", "check", str(tmp_path / "own.yaml")])
    assert "NeedSync cannot run under the async schedule: so it is" in result.stderr
    described = CliRunner().invoke(cli, ["describe", f"{tmp_path}/mine.py:NeedSync"]).output
    assert "McMahan" not in described
    assert "McMahan" in CliRunner().invoke(cli, ["describe", "fedavg"]).output


def test_weights_of_an_average_are_named_correctly(tmp_path: Path) -> None:
    right = '{"model": server["model"] + updates.weighted_sum("delta", [1.0] * len(updates))}'
    wrong = '__import__("fedsim.methods.base").methods.base.averaging_weights(updates, "sample")'
    result = run_with(tmp_path, right, wrong)
    assert result.exit_code == 2, result.stderr
    assert "weights must be 'samples' or 'uniform', not 'sample'" in result.stderr
