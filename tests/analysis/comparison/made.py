"""Comparisons made of facts, without runs."""

from __future__ import annotations

from typing import Any

from fedsim.analysis.comparison import Comparison, Target
from fedsim.analysis.comparison.facts import RunFacts
from tests.analysis.comparison.test_groups import facts, server


def of(*runs: RunFacts, goals: tuple[Target, ...] = (), **arguments: Any) -> Comparison:
    return Comparison((runs, (), None), targets=goals, **arguments)


def run(
    method: str, seed: int = 0, accuracy: tuple[float, ...] = (0.1, 0.9), **more: Any
) -> RunFacts:
    times = tuple(10.0 * (index + seed) for index in range(len(accuracy)))
    return facts({**server(method), **more}, seed, f"{method}{seed}", times, accuracy)
