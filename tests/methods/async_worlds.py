"""Quadratic clients of different speed under any schedule, and what their local steps lead to."""

from __future__ import annotations

from typing import Any

from tests.scheduling.worlds import World, play

PLAIN = {"alpha": 1.0, "staleness": {"name": "constant"}}
# Client i pulls to its own center; two local steps with rate 0.1 shrink the distance by 0.9^2.
CENTRES = [1.0, 3.0, -2.0]
SHRINK = 0.9**2


def quadratics(step_s: list[float], method: dict[str, Any], **world: Any) -> World:
    """Clients with objectives (x - b_i)^2 / 2 that do two steps with rate 0.1."""
    return play(
        step_s,
        task={"centers": [[center] for center in CENTRES[: len(step_s)]], "curvatures": 1.0},
        lr=0.1,
        steps=2,
        method=method,
        **world,
    )


def local(x: float, client: int) -> float:
    """The model of a client after its two steps from x."""
    return CENTRES[client] + SHRINK * (x - CENTRES[client])


def trained(world: World) -> list[list[tuple[int, float, float, int]]]:
    """Of each version's updates: client, model it started from, model it came to, staleness."""
    by_id = {row["dispatch_id"]: row for row in world.book.rows}
    result = []
    for aggregate in world.book.aggregates:
        updates = []
        for item in aggregate.contributions:
            start = world.w[by_id[item.dispatch_id]["version"]]
            updates.append((item.client, start, local(start, item.client), item.staleness))
        result.append(updates)
    return result
