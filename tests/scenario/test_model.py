"""The sections of a scenario and their defaults."""

from pathlib import Path
from typing import Any

import pytest

from fedsim.scenario.model import share_done
from tests.scenario.minimal import MINIMAL, load

pytestmark = pytest.mark.usefixtures("catalog")


def test_every_default_is_written_out(tmp_path: Path) -> None:
    resolved = load(tmp_path, MINIMAL).resolved()
    method = {"name": "fedavg", "alpha": 0.5, "wait": None, "file": None, "lambda": 3}
    assert resolved["server"]["method"] == method
    assert resolved["server"]["schedule"] == {"name": "sync"}
    assert resolved["server"]["selection"] == {"name": "uniform"}
    assert resolved["devices"]["availability"] == {"name": "always"}
    assert resolved["devices"]["network"]["name"] == "static"
    assert resolved["training"]["optimizer"]["lr"] == 0.05
    assert resolved["task"]["name"] == "supervised"


def test_a_trace_makes_availability_follow_it(tmp_path: Path) -> None:
    def availability(text: str) -> str:
        return load(tmp_path, MINIMAL + text).scenario.devices.availability.name

    assert availability("") == "always"
    assert availability("devices: {trace: week}\n") == "trace"
    assert availability("devices: {trace: week, availability: {name: always}}\n") == "always"


def test_parts_may_leave_out_the_name_that_is_their_default(tmp_path: Path) -> None:
    text = MINIMAL + "devices: {compute: {alpha: 2}}\ntraining: {optimizer: {lr: 1e-3}}\n"
    scenario = load(tmp_path, text).scenario
    assert scenario.devices.compute.name == "trace"
    assert scenario.devices.compute.params.alpha == 2.0
    assert scenario.training.optimizer.name == "sgd"
    assert scenario.training.optimizer.params.lr == 0.001


def test_a_method_brings_its_schedule_unless_one_is_given(tmp_path: Path) -> None:
    text = MINIMAL + "server: {method: {name: fedbuff}}\n"
    schedule = load(tmp_path, text).scenario.server.schedule
    assert (schedule.name, schedule.params.alpha) == ("buffered", 3.0)
    given = load(tmp_path, text, "server.schedule.name=sync").scenario.server.schedule
    assert given.name == "sync"


def test_a_section_whose_keys_are_commented_out_is_absent(tmp_path: Path) -> None:
    text = MINIMAL + "training:\n  # local_steps: 3\ndevices:\nserver:\n"
    assert load(tmp_path, text).scenario == load(tmp_path, MINIMAL).scenario


def test_a_target_may_be_a_percentage(tmp_path: Path) -> None:
    text = MINIMAL.replace("{rounds: 3}", "{rounds: 3, target: {accuracy: 58.3%, macro_f1: 0.9}}")
    option = "stop.target.loss=0.2"
    stop = load(tmp_path, text, option, "stop.target.r2=70%").resolved()["stop"]
    assert stop["target"] == {"accuracy": 0.583, "macro_f1": 0.9, "loss": 0.2, "r2": 0.7}


def test_the_share_is_that_of_the_limit_that_is_nearest() -> None:
    stop = {"simulated_time": 100.0, "rounds": 10, "dispatches": None}
    done: dict[str, Any] = {"simulated_s": 20.0, "rounds": 5, "dispatches": 70, "arrivals": 60}
    assert share_done(stop, **done) == 0.5
    assert share_done({"rounds": 4}, **done) == 1.0
