"""One case per kind of task, and its learner on threads and on several devices."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fedsim.learning.device import Execution
from fedsim.learning.workers import Station
from fedsim.methods.base import Method, ServerState, Updates, with_mixin
from fedsim.methods.compression import Compressed
from fedsim.methods.fedavg import FedAvg
from fedsim.parts.catalog import CATALOG
from fedsim.scenario.training import Augmentation, Training
from fedsim.tasks.base import Task
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.kinds.supervised import SupervisedTask
from fedsim.tasks.layout import Layout
from fedsim.tasks.models.characters import CharLstm
from fedsim.tasks.partition import Partition
from tests.learning.problems import (
    Remembering,
    Timeline,
    make_station,
    make_training,
    quadratic_task,
    supervised_task,
)
from tests.learning.timelines import buffered

CPU = torch.device("cpu")


def character_task() -> SupervisedTask:
    """Sequences of five characters of seven kinds, on eight clients."""
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 7, (200, 6)).astype(np.uint8)
    x, y = codes[:, :5], codes[:, 5].astype(np.int64)
    dataset = Dataset("characters", x[:160], y[:160], x[160:], y[160:], 7, "next_character")
    partition = Partition(np.arange(0, 161, 20), rng.permutation(160))
    params = CharLstm.Params(embedding=4, hidden=6, layers=1)
    return SupervisedTask(dataset, partition, CharLstm(params))


def noisy_quadratics() -> Task:
    return quadratic_task(
        centers=[[float(i), float(-i)] for i in range(8)],
        curvatures=0.7,
        samples=None,
        noise_std=0.3,
    )


def synchronous() -> Timeline:
    """Everybody once, as in a prologue, then rounds of some."""
    timeline = Timeline()
    for clients in ([0, 1, 2, 3, 4, 5, 6, 7], [0, 3, 5], [7, 3, 2]):
        timeline.aggregate(*[timeline.dispatch(client, 1 + client % 2) for client in clients])
    timeline.evaluate()
    return timeline


# Task, method, parameters, training, timeline.
Case = tuple[Callable[[], Task], str, dict[str, Any], dict[str, Any], Callable[[], Timeline]]
asynchronous = partial(buffered, 16)
mlp, conv, dropout = (partial(supervised_task, model) for model in ("mlp", "conv", "dropout"))
own_test = partial(supervised_task, "mlp", own_test=True)
moved = {"augmentation": Augmentation(crop_padding=1, flip=True)}
CASES: dict[str, Case] = {
    "stacked layers": (mlp, "fedavg", {}, {}, asynchronous),
    "loop": (conv, "fedavg", {}, moved, asynchronous),
    "dropout": (dropout, "fedavg", {}, {}, asynchronous),
    "vmap": (conv, "fedprox", {"mu": 0.1}, {"executor": "stacked"}, asynchronous),
    "recurrent": (character_task, "fedavg", {}, {}, asynchronous),
    "quadratic": (noisy_quadratics, "fedavg", {}, {}, asynchronous),
    "memories": (mlp, "scaffold", {}, {}, synchronous),
    "personal parts": (own_test, "fedalt", {}, {}, synchronous),
    "prologue": (own_test, "scaffold_p", {}, {}, synchronous),
    "compression": (mlp, "compressed", {}, {}, synchronous),
    "memories that follow": (mlp, "followed", {}, {}, synchronous),
}


def compressed_scaffold(*, error_feedback: bool) -> type[Method]:
    """SCAFFOLD with errors of uploads, or memories that follow them, and references of downloads."""
    up, down = (CATALOG.parts("compression")[name] for name in ("topk", "qsgd"))
    layout = Layout.of([("x", (1,))])
    ways = {
        "up": up(up.Params(share=0.1, error_feedback=error_feedback), layout),
        "down": down(down.Params(), layout),
    }
    return with_mixin(CATALOG.parts("method")["scaffold"], Compressed, ways=ways)


def method_of(name: str) -> type[Method]:
    defined_here: dict[str, type[Method]] = {
        "remembering": Remembering,
        "median": Median,
        "compressed": compressed_scaffold(error_feedback=True),
        "followed": compressed_scaffold(error_feedback=False),
    }
    return defined_here.get(name) or CATALOG.parts("method")[name]


def training_of(changes: dict[str, Any]) -> Training:
    return make_training(**({"threads": 1} | changes))


def station_of(
    make_task: Callable[[], Task], method: str, params: dict[str, Any], changes: dict[str, Any]
) -> Station:
    """What :func:`tests.learning.problems.make_learner` works with, for another process."""
    kind = method_of(method)
    return make_station(make_task(), training_of(changes), kind, kind.Params.model_validate(params))


def options_of(case: Case) -> dict[str, Any]:
    _, method, params, changes, _ = case
    kind = method_of(method)
    return {
        "method": kind,
        "params": kind.Params.model_validate(params),
        "training": training_of(changes),
    }


def on_devices(case: Case, count: int) -> dict[str, Any]:
    options = options_of(case)
    execution = replace(Execution.of(options["training"]), others=(CPU,) * (count - 1))
    return options | {"execution": execution}


def with_threads(case: Case, count: int) -> dict[str, Any]:
    options = options_of(case)
    return options | {"training": options["training"].model_copy(update={"threads": count})}


class Median(FedAvg):
    """A robust rule, which reads single updates."""

    name = "median"

    def aggregate(self, server: ServerState, updates: Updates) -> ServerState:
        rows = [updates.row("delta", index) for index in range(len(updates))]
        if not rows:
            return server
        return {"model": server["model"] + torch.stack(rows).median(0).values}
