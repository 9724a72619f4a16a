"""Timelines of the learner's tests, their execution, and what is compared of two of them."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsim.learning.learner import Learner
from fedsim.learning.workers import Group
from fedsim.methods.base import LocalUpdate
from fedsim.vocabulary.timeline import Train
from tests.learning.problems import Timeline, make_learner

Rows = list[tuple[int, dict[str, float]]]


def rounds(count: int, clients: list[int], steps: int = 3) -> Timeline:
    """Synchronous rounds with an evaluation after each."""
    timeline = Timeline()
    for _ in range(count):
        timeline.aggregate(*[timeline.dispatch(client, steps) for client in clients])
        timeline.evaluate()
    return timeline


def buffered(
    updates: int, in_flight: int = 6, buffer: int = 2, clients: int = 8, seed: int = 0
) -> Timeline:
    """An asynchronous server: every client that ends is replaced; some dispatches are lost."""
    rng = np.random.default_rng(seed)
    timeline = Timeline()
    idle = list(range(clients))

    def next_dispatch() -> Train:
        return timeline.dispatch(idle.pop(int(rng.integers(len(idle)))), int(rng.integers(1, 5)))

    flying = [next_dispatch() for _ in range(in_flight)]
    arrived: list[Train] = []
    for number in range(updates):
        train = flying.pop(int(rng.integers(len(flying))))
        idle.append(train.client)
        if rng.random() < 0.2:
            timeline.lose(train)
        else:
            arrived.append(train)
        if len(arrived) == buffer:
            timeline.aggregate(*arrived)
            arrived = []
        if number % 7 == 3:
            timeline.evaluate()
        flying.append(next_dispatch())
    for train in flying + arrived:
        timeline.lose(train)
    timeline.evaluate()
    return timeline


def execute(task: Any, timeline: Timeline, **options: Any) -> tuple[dict[str, Tensor], Rows]:
    """Final server state and all metrics."""
    rows: Rows = []
    learner = make_learner(
        task, on_metrics=lambda what, metrics: rows.append((what.version, dict(metrics))), **options
    )
    timeline.play(learner)
    learner.close()
    state = {name: value.clone() for name, value in learner.server.items()}
    return state | {f"memory/{k}": v for k, v in learner.store.tensors().items()}, rows


def assert_same(
    first: tuple[dict[str, Tensor], Rows], second: tuple[dict[str, Tensor], Rows]
) -> None:
    assert first[0].keys() == second[0].keys()
    for name, value in first[0].items():
        assert torch.equal(value, second[0][name]), name
    assert first[1] == second[1]


def count_groups(timeline: Timeline, learner: Learner) -> list[list[int]]:
    """The clients of each group that is trained."""
    groups: list[list[int]] = []
    train = learner.workers.train

    def recording(trained: Sequence[Group]) -> Iterator[LocalUpdate]:
        groups.extend(sorted(train.client for train in group.trains) for group in trained)
        return train(trained)

    learner.workers.train = recording  # type: ignore[method-assign]
    timeline.play(learner)
    learner.close()
    return groups


def checkpoints_of(
    task: Any, timeline: Timeline, **options: Any
) -> list[tuple[dict[str, Tensor], dict[str, Any]]]:
    """Copies of the state at every moment of rest."""
    taken: list[tuple[dict[str, Tensor], dict[str, Any]]] = []

    def take(learner: Learner) -> None:
        tensors, meta = learner.state()
        taken.append(
            ({name: value.clone() for name, value in tensors.items()}, json.loads(json.dumps(meta)))
        )

    learner = make_learner(task, on_rest=take, **options)
    timeline.play(learner)
    learner.close()
    return taken
