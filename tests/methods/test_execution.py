"""The contract that every method keeps, as one harness: the same bits whenever, wherever and in whatever groups."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.learning.device import Execution
from fedsim.learning.learner import Learner
from fedsim.learning.workers import Station
from fedsim.learning.workers.remote import RemoteWorkers
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.training import RayWorkers
from tests.learning.imitation_ray import imitated
from tests.learning.problems import Timeline, make_training, supervised_task
from tests.methods.executed import label, learner_of, one_round

CPU = torch.device("cpu")
VARIANTS: list[dict[str, Any]] = [
    *({"name": name} for name in CATALOG.parts("method")),
    {"name": "fedsum_cr", "correction": "lr_sum"},
    {"name": "scaffold", "uplink": 1},
    {"name": "scaffold_p", "uplink": 1, "keep_v_on_drop": True},
    {"name": "fedau", "cutoff": 2},
    {"name": "fedawe", "clip_norm": 0.5},
    {"name": "mtgc"},
    {"name": "fedlga", "hessian": "per_tensor", "clip": True, "k2_empty": "last"},
    {"name": "fedlga", "grad_source": "last_grad", "sign": -1, "lam": 0.1},
    {"name": "generalized_fedavg", "every_rounds": 3, "amplification": 2.0},
    {"name": "wait", "local": "frozen"},
]


def rounds(count: int = 5, clients: int = 8) -> Timeline:
    """Everybody, as in a prologue; then random participants, partial work, lost work of which some was done, an empty
    round; an evaluation after every other round."""
    rng = np.random.default_rng(5)
    timeline = Timeline()
    timeline.aggregate(*[timeline.dispatch(client, 4) for client in range(clients)])
    for number in range(count):
        members = rng.choice(clients, int(rng.integers(2, 5)), replace=False).tolist()
        trains = [timeline.dispatch(client, 4) for client in members]
        if number == 3:
            for train in trains:
                timeline.lose(train)
            trains = []
        elif number % 3 == 1:
            timeline.lose(trains.pop())
        elif number % 3 == 2:
            timeline.calls.append(("submit", replace(trains.pop(), used=False)))
        done = rng.integers(1, 5, len(trains)).tolist()
        timeline.aggregate(
            *[replace(train, steps=steps) for train, steps in zip(trains, done, strict=True)]
        )
        if number % 2:
            timeline.evaluate()
    return timeline


def results(learner: Learner) -> dict[str, torch.Tensor]:
    learner.close()
    state = {name: value.clone() for name, value in learner.server.items()}
    return state | {f"memory/{name}": rows for name, rows in learner.store.tensors().items()}


def assert_same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(actual[name].nan_to_num(7), value.nan_to_num(7)), name


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_the_same_bits_however_it_is_executed(variant: dict[str, Any]) -> None:
    """Eagerly; deferred in small waves on two threads, on two devices, in processes, and resumed on the way."""
    task, timeline = supervised_task("mlp", own_test=True), rounds()
    expected = results(timeline.play(learner_of(variant, task, eager=True)))
    assert torch.isfinite(expected["model"]).all()
    personal = any(name.startswith("memory/personal.rows") for name in expected)
    start = learner_of(variant, task).server["model"]
    assert personal or not torch.equal(expected["model"], start)
    assert_same(
        results(timeline.play(learner_of(variant, task, max_pending=3, threads=2))), expected
    )
    execution = replace(Execution.of(make_training(threads=1)), others=(CPU,))
    assert_same(results(timeline.play(learner_of(variant, task, execution=execution))), expected)
    with imitated():
        station = partial(_station, variant)
        workers = RemoteWorkers(station, RayWorkers(name="ray", count=2), 1, CPU)
        assert_same(results(timeline.play(learner_of(variant, task, workers=workers))), expected)
    half = timeline.play(learner_of(variant, task), until=len(timeline.calls) // 2)
    half.flush()
    tensors, meta = half.state()
    resumed = learner_of(variant, task, checkpoint=(tensors, json.loads(json.dumps(meta))))
    assert_same(results(timeline.play(resumed)), expected)


def _station(variant: dict[str, Any]) -> Station:
    return learner_of(variant, supervised_task("mlp", own_test=True)).station


def test_control_variates_have_no_part_in_buffers() -> None:
    learner = one_round({"name": "scaffold"}, [3, 2])
    trainable = learner.station.task.layout.trainable
    assert not learner.server["control"][trainable:].any()
    assert not learner.store["control"].get([0, 1])[:, trainable:].any()
