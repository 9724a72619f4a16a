"""Every method here on real models: the same bits deferred, on two threads and resumed; buffers of the model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.learning.learner import Learner
from tests.learning.problems import Timeline, supervised_task
from tests.methods.executed import label, learner_of, one_round

VARIANTS: list[dict[str, Any]] = [
    {"name": "fedsum_b"},
    {"name": "fedsum", "server_lr": 3.0},
    {"name": "fedsum_cr"},
    {"name": "fedsum_cr", "correction": "lr_sum"},
    {"name": "scaffold"},
    {"name": "scaffold", "uplink": 1},
    {"name": "mifa"},
    {"name": "fedvarp"},
    {"name": "fedau", "cutoff": 2},
    {"name": "fedawe", "clip_norm": 0.5},
    {"name": "fednova"},
    {"name": "fedlga", "hessian": "per_tensor", "clip": True, "k2_empty": "last"},
    {"name": "fedlga", "grad_source": "last_grad", "sign": -1, "lam": 0.1},
    {"name": "rescale"},
    {"name": "generalized_fedavg", "every_rounds": 3, "amplification": 2.0},
    {"name": "wait", "local": "frozen"},
]


def rounds(count: int = 7, clients: int = 8) -> Timeline:
    """Random participants, partial work, lost work, an empty round; an evaluation after every other round."""
    rng = np.random.default_rng(5)
    timeline = Timeline()
    for number in range(count):
        members = rng.choice(clients, int(rng.integers(2, 5)), replace=False).tolist()
        trains = [timeline.dispatch(client, 4) for client in members]
        if number == 3:
            for train in trains:
                timeline.lose(train)
            trains = []
        elif number % 3 == 1:
            timeline.lose(trains.pop())
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
    """Eager, deferred in waves of any size, on two threads, and resumed from a checkpoint on the way."""
    task, timeline = supervised_task("batch_norm"), rounds()
    eager = learner_of(variant, task, eager=True)
    expected = results(timeline.play(eager))
    assert torch.isfinite(expected["model"]).all()
    start = learner_of(variant, task).server["model"]
    assert not torch.equal(expected["model"], start)
    assert_same(results(timeline.play(learner_of(variant, task))), expected)
    assert_same(results(timeline.play(learner_of(variant, task, max_pending=3))), expected)
    assert_same(results(timeline.play(learner_of(variant, task, threads=2))), expected)
    half = timeline.play(learner_of(variant, task), until=len(timeline.calls) // 2)
    half.flush()
    tensors, meta = half.state()
    resumed = learner_of(variant, task, checkpoint=(tensors, json.loads(json.dumps(meta))))
    assert_same(results(timeline.play(resumed)), expected)


def test_control_variates_have_no_part_in_buffers() -> None:
    learner = one_round({"name": "scaffold"}, [3, 2])
    trainable = learner.station.task.layout.trainable
    assert not learner.server["control"][trainable:].any()
    assert not learner.store["control"].get([0, 1])[:, trainable:].any()
