"""Runs of a schedule without a network, and the versions it made."""

from __future__ import annotations

from typing import Any

from tests.scheduling.worlds import NO_NETWORK
from tests.simulation.harness import Book, simulate

ALWAYS = [(0.0, 1e6)]


def run(step_s: list[float], schedule: dict[str, Any], **world: Any) -> Book:
    """10 steps without a network."""
    return simulate(step_s=step_s, schedule=schedule, **{"steps": 10, **NO_NETWORK, **world})


def versions(book: Book) -> list[tuple[float, list[int], list[int]]]:
    """Time, clients and staleness of each version."""
    return [
        (
            aggregate.time_s,
            [item.client for item in aggregate.contributions],
            [item.staleness for item in aggregate.contributions],
        )
        for aggregate in book.aggregates
    ]


def apart(times: list[int]) -> list[float]:
    """Up to six times, changed a little, so that few multiples of them coincide."""
    return [
        time + offset * 1e-5
        for time, offset in zip(times, (1, 7.3, 3.1, 9.7, 5.9, 2.3), strict=False)
    ]
