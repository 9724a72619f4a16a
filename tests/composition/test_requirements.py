"""What parts need from each other is checked in one place, from what they declare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.api import read_scenario
from fedsim.composition.checking import check
from fedsim.composition.requirements import doubts, small_rounds, unmet_requirements
from fedsim.errors import UserError, UserErrors, raise_all
from fedsim.methods.base import Method
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.model import Scenario
from tests.learning.problems import make_context, make_training
from tests.methods.driver import quadratic

PLAIN = {"name": "sgd"}
MOMENTUM = {"name": "sgd", "momentum": 0.9}
DECAY = {"name": "sgd", "weight_decay": 0.1}
ADAM = {"name": "adam"}


def made(name: str, optimizer: dict[str, Any], **params: Any) -> Method:
    task = quadratic([[0.0, 1.0]], names={"u": 1, "v": 1})
    kind = CATALOG.parts("method")[name]
    context = make_context(task, make_training(optimizer=optimizer))
    return kind(kind.Params.model_validate(params), context)


def sections(schedule: str) -> Scenario:
    server = {"schedule": {"name": schedule}}
    task = {"name": "timing", "clients": 2}
    return read_scenario({"task": task, "server": server, "stop": {"rounds": 1}}).scenario


def unmet(method: Method, schedule: str) -> list[UserError]:
    scenario = sections(schedule)
    return unmet_requirements(method, scenario.server, 2)


@pytest.mark.parametrize(
    ("name", "params", "optimizer", "schedule", "places"),
    [
        ("fedavg", {}, ADAM, "async", []),
        ("scaffold", {}, MOMENTUM, "async", []),
        ("scaffold", {"uplink": 1}, PLAIN, "sync", []),
        ("scaffold", {"uplink": 1}, MOMENTUM, "sync", ["training.optimizer"]),
        ("scaffold", {"uplink": 1}, DECAY, "sync", ["training.optimizer"]),
        ("scaffold", {"uplink": 1}, ADAM, "async", ["server.schedule", "training.optimizer"]),
        ("scaffold_p", {"uplink": 1}, MOMENTUM, "sync", ["training.optimizer"]),
        # One rule for SCAFFOLD and Scaffold-P: any schedule, but for one vector up and for the work before round one.
        ("scaffold", {}, PLAIN, "buffered", []),
        ("scaffold_p", {"c0": "zero"}, MOMENTUM, "buffered", []),
        ("scaffold_p", {"c0": "zero", "uplink": 1}, PLAIN, "async", ["server.schedule"]),
        ("scaffold_p", {}, PLAIN, "async", ["server.schedule"]),
        ("fedsum", {}, DECAY, "sync", []),
        ("fedsum", {}, MOMENTUM, "sync", ["training.optimizer"]),
        ("fedsum_b", {}, ADAM, "sync", ["training.optimizer"]),
        ("fedsum_cr", {}, MOMENTUM, "sync", ["training.optimizer"]),
        ("fedavg_p", {}, ADAM, "async", []),
        ("fedavg_p", {"keep_v_on_drop": True}, ADAM, "async", ["server.schedule"]),
        ("fednova", {}, MOMENTUM, "sync", []),
        ("fednova", {}, ADAM, "sync", ["training.optimizer"]),
        ("mifa", {}, ADAM, "async", []),
        ("mifa", {"first_round": "all"}, ADAM, "async", ["server.schedule"]),
        ("fedawe", {}, ADAM, "tiered", ["server.schedule"]),
    ],
)
def test_needs(name: str, params: Any, optimizer: Any, schedule: str, places: list[str]) -> None:
    errors = unmet(made(name, optimizer, **params), schedule)
    assert [error.where for error in errors] == places
    if not errors:
        raise_all(errors)
        return
    with pytest.raises(UserError if len(errors) == 1 else UserErrors):
        raise_all(errors)


def test_messages_name_the_method_and_the_reason() -> None:
    (error,) = unmet(made("scaffold", MOMENTUM, uplink=1), "sync")
    assert error.message.startswith("SCAFFOLD needs plain SGD: with uplink: 1 ")
    (error,) = unmet(made("fednova", ADAM), "sync")
    assert error.message.startswith("FedNova does not work with adam: ")


@pytest.mark.parametrize(
    ("name", "schedule", "papers"),
    [
        ("fedavg", "sync", ""),
        ("fedprox", "async", "sync"),
        ("fedbuff", "buffered", ""),
        ("fedbuff", "async", "buffered"),
        ("fedasync", "async", ""),
        ("fedat", "sync", "tiered"),
        ("fedcompass", "compass", ""),
        ("wait", "window", ""),
        ("wait", "sync", "window"),
    ],
)
def test_a_schedule_that_the_paper_does_not_use_is_named(
    name: str, schedule: str, papers: str
) -> None:
    warnings = list(doubts(made(name, PLAIN), sections(schedule).server))
    assert [error.message.rpartition("its paper uses ")[2] for error in warnings] == (
        [papers] if papers else []
    )


def test_a_schedule_of_the_users_is_not_doubted(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedsim.scheduling.schedules.sync import Sync\nclass Mine(Sync):\n    name = 'mine'\n"
    )
    assert not list(doubts(made("fedavg", PLAIN), sections(f"{tmp_path}/mine.py:Mine").server))


def test_every_method_declares_schedules_that_exist() -> None:
    for method in CATALOG.parts("method").values():
        (schedule,) = method.paper_schedules
        assert method.companions.get("schedule", {"name": "sync"})["name"] == schedule


DEVICES: dict[str, Any] = {
    "compute": {"name": "values", "step": "1s"},
    "network": {"name": "static", "latency": 0, "down": "8Mbps", "up": "8Mbps"},
}


def timing(**sections: Any) -> dict[str, Any]:
    return {
        "task": {"name": "timing", "clients": 3},
        "devices": {**DEVICES, **sections.pop("devices", {})},
        "server": sections.pop("server", {}),
        "stop": {"rounds": 2},
        **sections,
    }


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (
            timing(server={"schedule": "compass", "selection": {"name": "uniform", "cohort": 2}}),
            "under the compass schedule all clients participate",
        ),
        (
            timing(
                server={"schedule": "tiered", "selection": {"name": "scripted", "rounds": [[0]]}}
            ),
            "the scripted selection fixes the clients of each round",
        ),
        (
            timing(server={"schedule": "async", "failure_detection": "never"}),
            "the async schedule waits forever for a client that has gone offline\n  give a timeout",
        ),
        (
            timing(server={"failure_detection": "never"}),
            "the sync schedule waits .*\n  give a deadl",
        ),
        (
            timing(server={"schedule": "window", "failure_detection": "never"}),
            "the window schedule waits forever",
        ),
        (
            timing(server={"selection": {"name": "uniform", "cohort": 4}}),
            "a cohort of 4 cannot be drawn from 3 clients",
        ),
        (
            timing(server={"schedule": {"name": "buffered", "concurrency": 4}}),
            "4 clients cannot be busy at once",
        ),
        (
            timing(server={"schedule": {"name": "buffered"}}, stop={"arrivals": 9}),
            "a version needs 10 updates, but the run ends after 9 arrivals",
        ),
        (
            timing(server={"schedule": {"min_updates": 3}}, stop={"dispatches": 2}),
            "a version needs 3 updates, but the run ends after 2 dispatches",
        ),
        (timing(server={"selection": "oort"}), "follows training losses or accuracies"),
        (
            timing(server={"schedule": {"min_cohort": 2}, "selection": {"cohort": 1}}),
            "a round never",
        ),
        (timing(server={"schedule": {"min_cohort": 2, "min_updates": 0}}), "lets a round begin"),
        (timing(devices={"network": "traced"}), "there is no network_series table to read"),
        (timing(devices={"availability": "trace"}), "there is no availability table to read"),
        (
            timing(devices={"availability": "trace", "network": "traced"}),
            "(?s)no availability table to read.*no network_series table to read",
        ),
    ],
)
def test_what_cannot_work_is_refused(scenario: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(read_scenario(scenario))


def test_with_replacement_a_cohort_may_exceed_the_clients() -> None:
    selection = {"name": "uniform_with_replacement", "cohort": 4}
    check(read_scenario(timing(server={"selection": selection})))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            {"accuracy": 80},
            "accuracy never reaches 80; .* lie between 0 and 1\n  write 0.8 for 80%",
        ),
        ({"accurcy": 0.8}, "no metric 'accurcy' to stop at\n  did you mean 'accuracy'"),
        ({"perplexity": 1.5}, "not measure 'perplexity'\n  add perplexity to evaluation.metrics"),
        (
            {"client_accuracy": 0.5},
            "not measure 'client_accuracy'\n  set evaluation.per_client: true",
        ),
        ({"objective_loss": 0.5}, "not measure 'objective_loss'\n  set evaluation.objective: true"),
        ({"top_5_accuracy": 0.9}, "add top_k_accuracy to evaluation.metrics"),
        ({"mse": 0.5}, "not measure 'mse'\n  this task measures: accuracy"),
    ],
)
def test_a_target_that_is_never_reached_is_refused(target: Any, message: str) -> None:
    task = {"dataset": "digits", "partition": {"name": "iid", "clients": 2}, "model": "linear"}
    scenario = {"task": task, "devices": DEVICES}
    check(read_scenario(scenario | {"stop": {"rounds": 1, "target": {"accuracy": 0.8}}}))
    with pytest.raises(UserError, match=message):
        check(read_scenario(scenario | {"stop": {"rounds": 1, "target": target}}))


def test_the_first_of_two_reasons_is_given() -> None:
    method = made("scaffold_p", PLAIN, keep_v_on_drop=True, uplink=1)
    assert method.only_synchronous.startswith("with keep_v_on_drop")


def test_a_reason_that_is_not_a_sentence_is_not_shown() -> None:
    method = made("fedavg", PLAIN)
    vars(method)["only_synchronous"] = True
    (error,) = unmet(method, "async")
    assert error.message.endswith("cannot run under the async schedule")


def test_methods_and_metrics_are_read_without_torch() -> None:
    code = (
        "import sys; from fedsim.parts.catalog import CATALOG; "
        "list(CATALOG.parts('method').items()); list(CATALOG.parts('metric').items()); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ({"name": "fedcompass"}, "share of the whole population"),
        ({"name": "fedat", "silent_tiers": "initial"}, "tiers that have not reported"),
        ({"name": "fedat"}, ""),
        ({"name": "fedbuff"}, ""),
    ],
)
def test_clients_that_are_seldom_online_and_keep_a_weight_are_doubted(
    method: dict[str, Any], reason: str
) -> None:
    """A tenth of the phones are online on average."""
    scenario = {
        "task": {"name": "timing", "clients": 40, "parameters": 10},
        "devices": {
            "availability": {"name": "trace", "trace": "builtin:phones_week"},
            "compute": {"name": "uniform", "low": "0.1s", "high": "0.2s"},
            "network": {"name": "static", "down": "20Mbps", "up": "5Mbps"},
        },
        "server": {"method": method},
        "stop": {"simulated_time": "1h"},
    }
    warnings = [str(each) for each in check(read_scenario(scenario)) if "are online" in str(each)]
    assert len(warnings) == bool(reason)
    assert all(reason in warning for warning in warnings)


@pytest.mark.parametrize(
    ("evaluation", "stop", "warned"),
    [
        (
            {"every": "2h"},
            {"simulated_time": "1h"},
            ["evaluation.every: only the initial and the final"],
        ),
        (
            {"every": "61min", "at_start": False},
            {"simulated_time": "1h"},
            ["evaluation.every: only the final"],
        ),
        (
            {"every_rounds": 6},
            {"rounds": 5},
            ["evaluation.every_rounds: only the initial and the final"],
        ),
        ({"every_rounds": 5}, {"rounds": 5}, []),
        ({"every": "2h"}, {"rounds": 5}, []),
        ({}, {"rounds": 1}, []),
    ],
)
def test_an_evaluation_that_never_comes_is_named(
    evaluation: dict[str, Any], stop: dict[str, Any], warned: list[str]
) -> None:
    scenario = {
        "task": {"name": "quadratic", "centers": [[0.0], [1.0]]},
        "devices": {
            "compute": {"name": "uniform", "low": "0.1s", "high": "0.2s"},
            "network": {"name": "static", "down": "20Mbps", "up": "5Mbps"},
        },
        "evaluation": evaluation,
        "stop": stop,
    }
    warnings = [str(each) for each in check(read_scenario(scenario)) if "evaluation" in str(each)]
    assert [one.removeprefix("scenario: ").partition(" model")[0] for one in warnings] == warned


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"is_test": np.zeros(20)}, "no test samples, so the run measures no metric"),
        ({"y": np.arange(20) % 2 + 1}, "class 0 of data set own has no samples"),
        ({}, ""),
    ],
)
def test_doubtful_data_are_reported(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", **{"x": np.ones((20, 3)), "y": np.arange(20) % 2, **arrays})
    scenario = {
        "task": {
            "dataset": {"name": "npz", "path": str(tmp_path / "own.npz")},
            "partition": {"name": "iid", "clients": 2, "test": "split"},
            "model": "logistic_regression",
        },
        "devices": {
            "compute": {"name": "uniform", "low": "0.1s", "high": "0.2s"},
            "network": {"name": "static", "down": "20Mbps", "up": "5Mbps"},
        },
        "stop": {"rounds": 2},
    }
    warnings = [str(each) for each in check(read_scenario(scenario))]
    assert len(warnings) == bool(message)
    assert all(message in warning for warning in warnings)
    assert not check(read_scenario(scenario), timing_only=True) or "class 0" in message
    scenario["evaluation"] = {"per_client": True}
    assert not check(read_scenario(scenario)) or "class 0" in message


@pytest.mark.parametrize(
    ("rounds", "schedule", "warned"),
    [
        (range(2100), {}, "2,100 of 2,100 rounds"),
        ([0, 1, 2, 2], {}, "3 of 3 rounds"),
        ([0, 1, 3, 3, 3], {}, "2 of 3 rounds"),
        ([0, 1, 1, 1, 2, 2, 2], {}, ""),
        ([0, 1, 2], {"min_updates": 0}, "3 of 3 rounds"),
        ([0, 1, 2], {"min_cohort": 2}, ""),
        ([0, 1, 2], {"name": "async"}, ""),
        ([], {}, ""),
    ],
)
def test_rounds_of_few_clients_are_named(
    rounds: list[int], schedule: dict[str, Any], warned: str
) -> None:
    scenario = {
        "task": {"name": "timing", "clients": 10},
        "server": {
            "schedule": {"name": "sync", **schedule},
            "selection": {"name": "uniform", "cohort": 6},
        },
        "stop": {"rounds": 1},
    }
    server, numbers = read_scenario(scenario).scenario.server, np.array(rounds, np.int64)
    warnings = list(small_rounds(server, numbers, recharging=0.099))
    assert [str(each).partition(" began")[0] for each in warnings] == (
        [f"server.schedule.min_cohort: {warned}"] if warned else []
    )
    assert not any("batteries" in str(each) for each in warnings)
    # A round that may be empty cannot wait for a cohort.
    advice = (
        "\n  raise it, with a min_updates of at least 1, so"
        if schedule == {"min_updates": 0}
        else "\n  raise it, so"
    )
    assert all(advice in str(each) for each in warnings)
    for each in small_rounds(server, numbers, recharging=0.1):
        assert "few clients were available; for 10.0% of their idle time, clients rec" in str(each)
        assert "devices.energy: battery_j, recharge_w" in str(each)


@pytest.mark.parametrize(
    ("method", "partition", "warned"),
    [
        ("fedper", {}, True),
        ("fedper", {"test": "split"}, False),
        ("fedavg", {}, False),
    ],
)
def test_personal_models_that_nothing_measures_are_named(
    method: str, partition: dict[str, Any], warned: bool
) -> None:
    scenario = {
        "task": {
            "dataset": "digits",
            "partition": {"name": "iid", "clients": 3, **partition},
            "model": {"name": "mlp", "hidden": [8]},
        },
        "devices": DEVICES,
        "server": {"method": method},
        "stop": {"rounds": 1},
    }
    warnings = [str(each) for each in check(read_scenario(scenario)) if "personal" in str(each)]
    assert len(warnings) == warned
    assert all("task.partition.test: FedPer trains a personal model" in each for each in warnings)
