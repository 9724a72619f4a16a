"""Every method here on real models: the same bits deferred, on two threads and resumed; buffers of the model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.catalog import CATALOG
from fedsim.learning.learner import Learner
from tests.learning.problems import Timeline, make_learner, make_training, supervised_task

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


def label(variant: dict[str, Any]) -> str:
    return "-".join(str(value) for value in variant.values())


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


def learner_of(variant: dict[str, Any], task: Any, **options: Any) -> Learner:
    given = dict(variant)
    kind = CATALOG.parts("method")[given.pop("name")]
    threads = options.pop("threads", 1)
    training = make_training(optimizer={"name": "sgd", "lr": 0.05}, threads=threads)
    return make_learner(task, training, kind, kind.Params.model_validate(given), **options)


def results(learner: Learner) -> dict[str, torch.Tensor]:
    learner.close()
    state = {name: value.clone() for name, value in learner.server.items()}
    return state | {f"memory/{name}": rows for name, rows in learner.store.tensors().items()}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name].nan_to_num(7), value.nan_to_num(7)), name


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


def one_round(variant: dict[str, Any], steps: list[int], assigned: int = 3) -> Learner:
    """The first round of the given steps by clients 0, 1, ..., on a model with batch normalization."""
    timeline = Timeline()
    trains = [timeline.dispatch(client, assigned) for client in range(len(steps))]
    timeline.aggregate(
        *[replace(train, steps=done) for train, done in zip(trains, steps, strict=True)]
    )
    return timeline.play(learner_of(variant, supervised_task("batch_norm"), eager=True))


@pytest.mark.parametrize(
    "variant",
    [
        {"name": "mifa", "server_lr": 3.0},
        {"name": "fedvarp", "server_lr": 3.0},
        {"name": "fedau", "server_lr": 3.0},
        {"name": "fedawe", "server_lr": 3.0},
        {"name": "fednova", "weights": "uniform"},
        {"name": "fedlga"},
        {"name": "fedlga", "hessian": "identity"},
        {"name": "rescale", "weights": "uniform"},
        {"name": "generalized_fedavg", "every_rounds": 1, "amplification": 9.0},
        {"name": "wait", "server_lr": 3.0},
        {"name": "scaffold", "server_lr": 3.0},
        {"name": "scaffold", "server_lr": 3.0, "uplink": 1},
    ],
    ids=label,
)
def test_buffers_are_plainly_averaged(variant: dict[str, Any]) -> None:
    """Running statistics are those of FedAvg, however the method weighs, amplifies or corrects parameters."""
    steps = [3, 2, 3, 1]
    learner = one_round(variant, steps)
    fedavg = one_round({"name": "fedavg", "weights": "uniform"}, steps).server["model"]
    trainable = learner.station.task.layout.trainable
    model = learner.server["model"]
    torch.testing.assert_close(model[trainable:], fedavg[trainable:], rtol=1e-5, atol=1e-7)
    if variant["name"] != "scaffold":
        assert (model[:trainable] - fedavg[:trainable]).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["fedsum_b", "fedsum", "fedsum_cr"])
def test_buffers_of_the_fedsum_family(name: str) -> None:
    """One local step sees the same batches at the same model as FedAvg; y and h_i have no part in buffers."""
    learner = one_round({"name": name}, [1, 1, 1], assigned=1)
    fedavg = one_round({"name": "fedavg", "weights": "uniform"}, [1, 1, 1], assigned=1)
    trainable = learner.station.task.layout.trainable
    torch.testing.assert_close(
        learner.server["model"][trainable:],
        fedavg.server["model"][trainable:],
        rtol=1e-5,
        atol=1e-7,
    )
    assert not learner.server["merged"][trainable:].any()
    assert not learner.store["gradient"].get([0, 1, 2])[:, trainable:].any()
    assert learner.server["merged"][:trainable].any()


def test_control_variates_have_no_part_in_buffers() -> None:
    learner = one_round({"name": "scaffold"}, [3, 2])
    trainable = learner.station.task.layout.trainable
    assert not learner.server["control"][trainable:].any()
    assert not learner.store["control"].get([0, 1])[:, trainable:].any()


def test_full_batches_make_wait_full() -> None:
    """With a batch of at least every client's samples a step is the gradient of all of them: the order is no matter."""
    task = supervised_task("mlp", sizes=(20, 7, 33))
    timeline = Timeline()
    timeline.aggregate(*[timeline.dispatch(client, 2) for client in range(3)])
    kind = CATALOG.parts("method")["wait"]
    training = make_training(batch_size=64, threads=1, dtype="float64")
    learner = timeline.play(make_learner(task, training, kind, kind.Params()))
    learner.close()
    again = Timeline()
    for client in range(3):
        again.lose(again.dispatch(client, 2))
    again.aggregate(*[again.dispatch(client, 2) for client in range(3)])
    other = again.play(make_learner(task, training, kind, kind.Params()))
    other.close()
    torch.testing.assert_close(other.server["model"], learner.server["model"])
