"""Comparisons made of facts, without runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.analysis.comparison import Comparison, Target
from fedsim.analysis.comparison.facts import RunFacts
from tests.analysis.comparison.test_groups import facts, server

GOAL = Target("accuracy", 0.8)


def of(*runs: RunFacts, goals: tuple[Target, ...] = (), **arguments: Any) -> Comparison:
    return Comparison((runs, (), None), targets=goals, **arguments)


def run(
    method: str, seed: int = 0, accuracy: tuple[float, ...] = (0.1, 0.9), **more: Any
) -> RunFacts:
    times = tuple(10.0 * (index + seed) for index in range(len(accuracy)))
    return facts({**server(method), **more}, seed, f"{method}{seed}", times, accuracy)


def racers(
    every_s: float = 1,
    *,
    updates: Sequence[int] = (),
    alpha: int = 0,
    **ends: Sequence[float | None],
) -> list[RunFacts]:
    """Runs by variant and seed that reach :data:`GOAL` at these times, None if never, each with an evaluation
    ``every_s`` before; the models of each variant then contain this number of client updates."""
    runs = []
    for number, (name, times) in enumerate(ends.items()):
        for seed, end_s in enumerate(times):
            last_s = end_s or 600.0
            values = (0.1, 0.2, 0.9 if end_s else 0.5)
            scenario = {**server(name), "task": {"alpha": alpha}}
            path = f"{name}{alpha}-{seed}"
            runs.append(facts(scenario, seed, path, (0.0, last_s - every_s, last_s), values))
            if updates:
                runs[-1].progress["client_updates"] = np.array([0.0, 0, updates[number]])
    return runs
