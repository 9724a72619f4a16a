"""Whole scenarios on the quadratic task with every server state kept: both planes, no run folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import fedsim
from fedsim.composition.build import build
from fedsim.composition.planes import build_server
from fedsim.composition.world import World
from fedsim.learning.device import Execution
from fedsim.learning.workers import Station
from tests.scheduling.worlds import Recording
from tests.simulation.harness import Book

FloatArray = npt.NDArray[np.float64]


@dataclass
class Simulated:
    """What happened: the learner with all its states, and the books."""

    learner: Recording
    book: Book

    @property
    def x(self) -> FloatArray:
        """The model of every version in one dimension, (T + 1,)."""
        return np.stack([state["model"].numpy() for state in self.learner.states])[:, 0]

    @property
    def dispatches(self) -> pd.DataFrame:
        """A row a dispatch, in order."""
        rows = pd.DataFrame(self.book.rows)
        return rows.sort_values("dispatch_id", ignore_index=True)

    def memory(self, name: str) -> FloatArray:
        """What all clients hold in the end, (N, elements)."""
        return self.learner.store[name].get(np.arange(self.learner.station.task.clients)).numpy()


def station_of(world: World, **training: Any) -> Station:
    """Where an assembled scenario is learned, with these changes of its training section."""
    scenario = world.scenario
    assert world.task is not None
    changed = scenario.training.model_copy(update=training)
    return Station(
        world.task, world.method, changed, scenario.seed, Execution.of(scenario.training)
    )


def simulate(scenario: Mapping[str, Any]) -> Simulated:
    """Run a scenario, given as a YAML file would hold it."""
    loaded = fedsim.read_scenario(scenario)
    world = build(loaded)
    learner = Recording(station_of(world, verify="eager"))
    book = Book(world.population.power)
    server = build_server(world, learner, book)
    server.run()
    learner.close()
    return Simulated(learner, book)


def world(
    centers: Any,
    curvatures: Any = 1.0,
    initial: Any = 0.0,
    *,
    method: str | Mapping[str, Any],
    rounds: list[list[int]] | None = None,
    lr: float = 0.1,
    steps: int = 1,
    **changes: Any,
) -> dict[str, Any]:
    """A scenario: quadratic clients that take a second a step, no network, scripted rounds.

    Further keys are merged into the sections of those names (``server``, ``training``, ``devices``, ...).
    """
    clients = len(centers)
    scenario: dict[str, Any] = {
        "name": "world",
        "task": {
            "name": "quadratic",
            "centers": centers,
            "curvatures": curvatures,
            "initial": initial,
        },
        "training": {
            "optimizer": {"name": "sgd", "lr": lr},
            "local_steps": steps,
            "dtype": "float64",
            "device": "cpu",
            "threads": 1,
        },
        "devices": {
            "compute": {"name": "values", "step": [1.0] * clients},
            "network": {"name": "static", "latency": 0, "down": "1Gbps", "up": "1Gbps"},
        },
        "server": {"method": {"name": method} if isinstance(method, str) else dict(method)},
    }
    if rounds is not None:
        scenario["server"]["selection"] = {"name": "scripted", "rounds": rounds}
        scenario["stop"] = {"rounds": len(rounds)}
    for section, values in changes.items():
        scenario[section] = {**scenario.get(section, {}), **values}
    return scenario
