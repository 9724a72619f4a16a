"""Arrival groups of FedCompass on drawn step times, compared with the table of its card (section 9.4). Timing only.

python benchmarks/fedcompass_groups.py [--seeds 20]
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.composition.build import build
from fedsim.composition.planes import build_server
from fedsim.scenario.loading import load_scenario_dict
from fedsim.scheduling.schedules.compass import Compass
from fedsim.simulation.updates import Ended
from fedsim.units import NS_PER_S
from fedsim.vocabulary.timeline import Aggregate

MIN_STEPS, MAX_STEPS = 40, 200
LENGTH_S = 20_000.0
"""A hundred rounds of a client with mean speed."""
SPEEDS: dict[str, dict[str, Any]] = {
    "normal": {"name": "normal", "mean": 1.0, "cv": 0.3},
    "exp": {"name": "exponential", "mean": 1.0},
}


class Counting(Compass):
    """The Compass schedule, which records how many groups are open and when that changes."""

    def start(self) -> None:
        """Begin with no group."""
        self.times: list[int] = [0]
        self.counts: list[int] = [0]
        super().start()

    def on_arrival(self, dispatch: Any) -> None:
        """Record the groups that are open after an arrival."""
        super().on_arrival(dispatch)
        self._note()

    def _finish(self, group: Any) -> None:
        super()._finish(group)
        self._note()

    def _note(self) -> None:
        self.times.append(self.server.now_ns)
        self.counts.append(len(self.open))

    def shares(self) -> tuple[float, dict[int, float]]:
        """Mean number of open groups in the second half, and the share of time with each number."""
        end = LENGTH_S * NS_PER_S
        edges = np.clip(np.array([*self.times, end], dtype=np.float64), end / 2, end)
        spans = np.diff(edges) / (end / 2)
        counts = np.array(self.counts)
        shares = {int(count): float(spans[counts == count].sum()) for count in np.unique(counts)}
        return float((spans * counts).sum()), shares


class Late:
    """Counts updates, late ones and versions."""

    def __init__(self) -> None:
        self.updates = self.late = self.versions = 0

    def append_dispatch(self, ended: Ended) -> None:
        """Ignored."""

    def append_aggregation(self, aggregate: Aggregate) -> None:
        """Count its updates."""
        group = aggregate.attributes["group"]
        self.versions += 1
        self.updates += len(aggregate.contributions)
        self.late += sum(item.group != group for item in aggregate.contributions)


def simulate(
    clients: int,
    speed: dict[str, Any],
    seed: int,
    *,
    jitter: float,
    factor: float,
    redraw: float = 0.0,
) -> tuple[Counting, Late, float]:
    """One run; the schedule, the counts, and the ratio of the slowest to the fastest client."""
    scenario = {
        "seed": seed,
        "task": {"name": "timing", "clients": clients, "parameters": 1},
        "devices": {
            "compute": {
                **speed,
                "redraw": redraw,
                "jitter": {"name": "normal", "cv": jitter},
            },
            "network": {"down": "1Gbps", "up": "1Gbps", "latency": 0},
        },
        "server": {
            "schedule": {
                "name": f"{Path(__file__).resolve()}:Counting",
                "min_steps": MIN_STEPS,
                "max_steps": MAX_STEPS,
                "latest_factor": factor,
            }
        },
        "stop": {"simulated_time": LENGTH_S},
    }
    counts = Late()
    with tempfile.TemporaryDirectory() as folder:
        world = build(load_scenario_dict(scenario, folder), timing_only=True)
        server = build_server(world, None, counts)
        server.run()
    step_s = world.population.compute.step_s
    schedule: Any = server.server.schedule
    return schedule, counts, float(step_s.max() / step_s.min())


def groups(seeds: int) -> None:
    """Live groups against the bound of the paper's appendix B."""
    print("noise  speeds  m   runs above   time above   live groups   bound")
    for jitter in (0.0, 0.05):
        for name, speed in SPEEDS.items():
            for clients in (5, 10):
                above, runs, live, bounds = [], 0, [], []
                for seed in range(seeds):
                    schedule, _, ratio = simulate(clients, speed, seed, jitter=jitter, factor=1.2)
                    mean, shares = schedule.shares()
                    bound = max(1, math.ceil(math.log(ratio, MAX_STEPS / MIN_STEPS) - 1e-12))
                    share = sum(time for count, time in shares.items() if count > bound)
                    above.append(share)
                    runs += share > 0
                    live.append(mean)
                    bounds.append(bound)
                print(
                    f"{jitter:5}  {name:6}  {clients:2}  {runs:3} of {seeds}    {np.mean(above):8.3f}     "
                    f"{np.mean(live):8.2f}    {np.mean(bounds):6.2f}"
                )


def lateness(seeds: int) -> None:
    """Late updates, and updates per version, by the latest-time factor."""
    print("redraw  speeds  lambda   late     updates per version")
    for redraw in (0.0, 0.1):
        for name, speed in SPEEDS.items():
            for factor in (1.0, 1.2, 1.5, 2.0):
                late = updates = versions = 0
                for seed in range(seeds):
                    _, counts, _ = simulate(
                        5, speed, seed, jitter=0.05, factor=factor, redraw=redraw
                    )
                    late += counts.late
                    updates += counts.updates
                    versions += counts.versions
                print(
                    f"{redraw:6}  {name:6}  {factor:6}   {late / updates:6.2%}   {updates / versions:8.2f}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    groups(seeds)
    lateness(max(1, seeds // 2))


if __name__ == "__main__":
    main()
