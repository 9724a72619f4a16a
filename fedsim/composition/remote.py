"""Builds the learning plane of a run in other processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.composition.assembled import Assembly
from fedsim.composition.assembly import build_method, build_station
from fedsim.composition.shared import Datasets
from fedsim.composition.submodels import parts_of
from fedsim.composition.world import build_task
from fedsim.learning.workers import Station
from fedsim.learning.workers.remote import RemoteWorkers
from fedsim.scenario.loading import load_scenario_dict
from fedsim.scenario.training import RayWorkers, Training
from fedsim.tasks.base import IntArray


@dataclass(frozen=True)
class Recipe:
    """Plain data from which another process builds the task, kernel and method.

    Attributes:
        scenario: resolved, with absolute paths; with the training section of that process.
        world_seed: seed of the data split.
        cycle_s: length of one availability cycle of the devices in seconds.
        level: number of the part of the model that each client trains, (N,); None if all train the whole model.
    """

    scenario: dict[str, Any]
    world_seed: int
    cycle_s: float
    level: IntArray | None

    def __call__(self) -> Station:
        """Build task, kernel and method in this process.

        Raises:
            UserError: data or files are missing on this machine.
        """
        # Resolved paths are absolute, so no folder is needed.
        loaded = load_scenario_dict(self.scenario, Path("/"))
        scenario, training = loaded.scenario, loaded.scenario.training
        world = scenario.model_copy(update={"seed": self.world_seed})
        task = build_task(world, loaded.folder, Datasets())
        parts = None if self.level is None else parts_of(scenario, task, self.level)
        method = build_method(scenario, task, self.cycle_s, parts)
        return build_station(scenario, task, method, training)


def remote_workers(assembly: Assembly, training: Training) -> RemoteWorkers | None:
    """The workers in other processes that a run requests; None if it requests none.

    Args:
        assembly: the run.
        training: the training section of the run.
    """
    workers, execution = training.workers, assembly.execution
    if not isinstance(workers, RayWorkers) or execution is None:
        return None
    threads = training.threads or 1
    scenario = assembly.loaded.resolved()
    scenario["training"] |= {
        "device": execution.device.type,
        "threads": threads,
        "workers": {"name": "threads"},
    }
    seed = assembly.world.scenario.seed
    parts = assembly.world.parts
    cycle_s = assembly.method.context.availability_cycle_s
    recipe = Recipe(scenario, seed, cycle_s, None if parts is None else parts.level)
    # On CUDA each process has one device and one thread.
    on_cuda = execution.device.type == "cuda"
    return RemoteWorkers(recipe, workers, 1 if on_cuda else threads, execution.device)
