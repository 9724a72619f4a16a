"""Runs a row of the array in memory, and keeps what the invariants need."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from fedsim.api import read_scenario
from fedsim.composition.build import build, check
from fedsim.composition.planes import build_learner, build_server, build_station
from fedsim.composition.shared import Shared
from fedsim.composition.world import World
from fedsim.devices import grid
from fedsim.learning.learner import Learner
from fedsim.learning.workers.distributed import Ranks
from fedsim.methods.base import Cohort, LocalUpdate, Method, ServerState, Updates
from fedsim.parts.catalog import CATALOG
from fedsim.processes.launch import Launch
from fedsim.simulation.updates import dispatch_columns
from fedsim.tasks.modules import checks
from fedsim.vocabulary.timeline import Train
from tests.simulation.harness import Book

Content = Mapping[str, Any]
Calls = list[tuple[str, tuple[Any, ...]]]


@dataclass
class Local:
    """A group that was trained: facts, what was received, sent and kept, and the models after training."""

    cohort: Cohort
    vectors: Mapping[str, Tensor]
    models: list[Tensor]


@dataclass
class Step:
    """An aggregation: the facts and the rows that it got, the state before and after."""

    facts: Mapping[str, Any]
    rows: Mapping[str, Tensor]
    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]


class Plane:
    """A learning plane that notes the calls of the time plane."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.calls: Calls = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self.learner, name)

        def noted(*args: Any) -> Any:
            self.calls.append((name, args))
            return call(*args)

        return noted


@dataclass
class Finished:
    """A run that has ended, in memory."""

    content: Content
    world: World
    learner: Learner
    calls: Calls
    rows: Book
    metrics: list[tuple[Any, Mapping[str, float]]]
    inner: list[Local]
    outer: list[Local]
    steps: list[Step]
    cloud_steps: list[Step]

    @property
    def method(self) -> Method:
        return self.world.method

    @property
    def section(self) -> Mapping[str, Any]:
        """The section of the servers that dispatch to the clients."""
        return {**self.content["server"], **(self.content["server"].get("edges") or {})}

    @property
    def trains(self) -> dict[tuple[int, int], Train]:
        """Every update that was submitted, by client and number of its earlier dispatches."""
        trains = [args[0] for name, args in self.calls if name == "submit"]
        return {(one.client, one.sequence): one for one in trains if isinstance(one, Train)}

    @property
    def tolerance(self) -> float:
        return 1e-11 if self.content["training"]["dtype"] == "float64" else 2e-4

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        return dispatch_columns(self.world.population.power, self.rows.ended)


SHARED = Shared()


def _once(function: Callable[..., Any], known: dict[Any, Any]) -> Callable[..., Any]:
    """A function of modules that calls another once for modules of the same shape."""

    def call(module: Any, *args: Any) -> Any:
        values = [(name, value.shape, value.dtype) for name, value in module.state_dict().items()]
        frozen = args[3] if function.__name__ == "count_flops" else ()
        key = (str(module), str(values), *sorted(frozen))
        if key not in known:
            known[key] = function(module, *args)
        return known[key]

    return call


def quick() -> contextlib.ExitStack:
    """Within this context, modules of the same shape are checked, their operations counted, and files of the grid read,
    only once."""
    stack, series = contextlib.ExitStack(), dict[str, Any]()
    read = grid._read

    def read_once(*given: Any) -> Any:
        key = repr(given)
        if key not in series:
            series[key] = read(*given)
        return series[key]

    stack.enter_context(patch.object(grid, "_read", read_once))
    for name in ("check_module", "count_flops"):
        stack.enter_context(patch.object(checks, name, _once(getattr(checks, name), {})))
    return stack


def prepared(content: Content) -> World:
    """The parts of a scenario that is not refused."""
    loaded = read_scenario(content, ())
    world = build(loaded, SHARED, threads=1)
    check(world)
    if world.task.may_lack_kernel(world.training):
        with loaded.locating_errors():
            build_station(world)
    return world


def run(content: Content) -> Finished:
    """Run a scenario in memory."""
    world = prepared(content)
    rows = Book(world.population.power)
    run = Finished(content, world, None, [], rows, [], [], [], [], [])
    with _watched(run):
        run.learner = build_learner(world, on_metrics=lambda *got: run.metrics.append(got))
        plane = Plane(run.learner)
        try:
            build_server(world, plane, rows).run()
            run.learner.close()
        finally:
            run.learner.stop()
    run.calls = plane.calls
    return run


@contextmanager
def _watched(run: Finished) -> Iterator[None]:
    """Note every group that is trained, and every aggregation."""
    method = run.method
    bundled = CATALOG.parts("method")[method.name]
    local_update = bundled.local_update

    def watched_inner(self: Method, cohort: Cohort, trainer: Any) -> LocalUpdate:
        models: list[Tensor] = []
        kept = _cloned(cohort)
        update = local_update(self, cohort, _Trainer(trainer, models))
        run.inner.append(Local(kept, _clones(update.vectors), models))
        return update

    def watched_outer(cohort: Cohort, trainer: Any) -> LocalUpdate:
        update = complete(cohort, trainer)
        run.outer.append(Local(cohort, _clones(update.vectors), []))
        return update

    with patch.object(bundled, "local_update", watched_inner):
        complete = method.local_update
        method.local_update = watched_outer
        _watch_steps(method, run.steps)
        if run.world.edges is not None:
            _watch_steps(run.world.edges.cloud, run.cloud_steps)
        yield


def _watch_steps(method: Method, steps: list[Step]) -> None:
    aggregate = method.aggregate

    def watched(server: ServerState, updates: Updates) -> ServerState:
        names = [vector.name for vector in method.upload()]
        prologue = method.prologue()
        if prologue is not None and updates.version == 1:
            names = [vector.name for vector in prologue.upload]
        rows = {
            name: torch.stack([updates.row(name, i).clone() for i in range(len(updates))])
            for name in names
            if len(updates)
        }
        facts = {name: getattr(updates, name) for name in _FACTS}
        after = aggregate(server, updates)
        steps.append(Step(facts, rows, _clones(server), _clones(after)))
        return after

    method.aggregate = watched


_FACTS = (
    "version",
    "round",
    "time_s",
    "attributes",
    "clients",
    "samples",
    "steps",
    "steps_assigned",
    "staleness",
    "groups",
    "multiplicity",
    "versions",
    "learning_rates",
)


class _Trainer:
    """A trainer that notes the models after training."""

    def __init__(self, trainer: Any, models: list[Tensor]) -> None:
        self._trainer = trainer
        self._models = models

    def run(self, *args: Any, **options: Any) -> Any:
        trained = self._trainer.run(*args, **options)
        self._models.append(trained.model.clone())
        return trained

    def optimizer_state(self, cohort: Cohort) -> Tensor:
        return self._trainer.optimizer_state(cohort)


def _clones(vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: vectors[name].detach().clone() for name in vectors}


def _cloned(cohort: Cohort) -> Cohort:
    down, memory = _clones(cohort.down), _clones(cohort.memory)
    return dataclasses.replace(cohort, down=down, memory=memory)


# -- the same timeline, executed in another way ------------------------------------------------------------------------


def again(finished: Finished, execution: str) -> tuple[Learner, list[Any]]:
    """Execute the timeline of a finished run in another way; returns the learner and the metrics."""
    content = copy.deepcopy(dict(finished.content))
    training = content["training"]
    ranks = None
    if execution == "eager":
        training["verify"] = "eager"
    elif execution == "two_threads":
        training["threads"] = 2
    elif execution == "distributed":
        ranks = Ranks(Launch())
    metrics: list[Any] = []
    checkpoint = None
    if execution == "resumed":
        half = build_learner(prepared(content))
        _play(half, finished.calls[: len(finished.calls) // 2])
        half.flush()
        tensors, meta = half.state()
        checkpoint = _clones(tensors), json.loads(json.dumps(meta))
        half.stop()
    learner = build_learner(
        prepared(content),
        ranks,
        checkpoint=checkpoint,
        on_metrics=lambda *got: metrics.append(got),
    )
    try:
        _play(learner, finished.calls)
        learner.close()
    finally:
        learner.stop()
    return learner, metrics


def _play(learner: Learner, calls: Calls) -> None:
    for name, args in calls:
        getattr(learner, name)(*args)


def left(learner: Learner) -> dict[str, Tensor]:
    """Everything that a run has learned: models and state of all servers, and memories of the clients."""
    tensors = {f"cloud/{name}": value for name, value in learner._top.current.items()}
    for edge, models in learner._side._models.items():
        tensors |= {f"server/{edge}/{name}": value for name, value in models.current.items()}
    store = learner.store
    for name in store._stores:
        keys = store.keys(name)
        tensors[f"memory/{name}/keys"] = torch.tensor(keys)
        if keys:
            tensors[f"memory/{name}"] = store[name].get(keys)
    return tensors


def written(content: Content, folder: Path) -> Any:
    """Run a scenario into a folder, without its report."""
    from fedsim.analysis.run import Run
    from fedsim.composition.run import execute

    with patch.object(Run, "report", lambda *_, **__: None), patch("os.fsync", lambda _: None):
        return execute(read_scenario(content, ()), folder, shared=SHARED, threads=1)
