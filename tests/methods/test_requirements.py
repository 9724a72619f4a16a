"""What methods need from schedule and optimizer is checked in one place, from what they declare."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from fedsim.errors import UserError, UserErrors
from fedsim.methods import registry
from fedsim.methods.base import Method
from fedsim.methods.requirements import check_requirements, unmet_requirements
from fedsim.scheduling.schedules import registry as schedules
from tests.learning.problems import make_context, make_training
from tests.methods.driver import quadratic

PLAIN = {"name": "sgd"}
MOMENTUM = {"name": "sgd", "momentum": 0.9}
DECAY = {"name": "sgd", "weight_decay": 0.1}
ADAM = {"name": "adam"}


def made(name: str, optimizer: dict[str, Any], **params: Any) -> Method:
    task = quadratic([[0.0, 1.0]], names={"u": 1, "v": 1})
    kind = registry()[name]
    context = make_context(task, make_training(optimizer=optimizer))
    return kind(kind.Params.model_validate(params), context)


@pytest.mark.parametrize(
    ("name", "params", "optimizer", "schedule", "unmet"),
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
def test_needs(name: str, params: Any, optimizer: Any, schedule: str, unmet: list[str]) -> None:
    method, kind = made(name, optimizer, **params), schedules()[schedule]
    errors = unmet_requirements(method, kind)
    assert [error.where for error in errors] == unmet
    if not errors:
        check_requirements(method, kind)
        return
    with pytest.raises(UserError if len(errors) == 1 else UserErrors):
        check_requirements(method, kind)


def test_messages_name_the_method_and_the_reason() -> None:
    (error,) = unmet_requirements(made("scaffold", MOMENTUM, uplink=1), schedules()["sync"])
    assert error.message.startswith("SCAFFOLD needs plain SGD: with uplink: 1 ")
    (error,) = unmet_requirements(made("fednova", ADAM), schedules()["sync"])
    assert error.message.startswith("FedNova does not work with adam: ")


def test_the_first_of_two_reasons_is_given() -> None:
    method = made("scaffold_p", PLAIN, keep_v_on_drop=True, uplink=1)
    assert method.only_synchronous.startswith("with keep_v_on_drop")


def test_methods_and_metrics_are_read_without_torch() -> None:
    code = (
        "import sys; import fedsim.methods, fedsim.learning.metrics as metrics; "
        "fedsim.methods.registry(); metrics.registry(); import fedsim.methods.requirements; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_british_name_of_a_parameter_is_still_read() -> None:
    params = registry()["fedcompass"].Params.model_validate({"normalised": True})
    assert params.model_dump()["normalized"] is True
