"""Learners of methods, and second moments as the papers define them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fedsim.learning.learner import Learner
from fedsim.parts.catalog import CATALOG
from tests.learning.problems import Timeline, make_learner, make_training, supervised_task
from tests.methods.descent import FloatArray


def label(variant: dict[str, Any]) -> str:
    return "-".join(str(value) for value in variant.values())


def learner_of(variant: dict[str, Any], task: Any, **options: Any) -> Learner:
    given = dict(variant)
    kind = CATALOG.parts("method")[given.pop("name")]
    threads = options.pop("threads", 1)
    training = make_training(optimizer={"name": "sgd", "lr": 0.05}, threads=threads)
    return make_learner(task, training, kind, kind.Params.model_validate(given), **options)


def one_round(variant: dict[str, Any], steps: list[int], assigned: int = 3) -> Learner:
    """The first round of the given steps by clients 0, 1, ..., on a model with batch normalization."""
    timeline = Timeline()
    trains = [timeline.dispatch(client, assigned) for client in range(len(steps))]
    timeline.aggregate(
        *[replace(train, steps=done) for train, done in zip(trains, steps, strict=True)]
    )
    return timeline.play(learner_of(variant, supervised_task("batch_norm"), eager=True))


SECOND_MOMENTS: dict[str, Callable[[FloatArray, FloatArray, float], FloatArray]] = {
    "fedadagrad": lambda v, d, beta2: v + d**2,
    "fedadam": lambda v, d, beta2: beta2 * v + (1 - beta2) * d**2,
    "fedyogi": lambda v, d, beta2: v - (1 - beta2) * d**2 * np.sign(v - d**2),
}
