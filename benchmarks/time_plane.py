"""The cost of a dispatch in timing-only runs, against a bare SimPy timeout measured in the same process.

    python benchmarks/time_plane.py [--folder FOLDER] [--only NAME ...] [--repeat N]

Bundles of synthetic phones are made once in FOLDER, and the time for that is printed. Each case is a run in a separate
process, from the import of fedsim to the report, with jitter of step times as real devices have it. Processor time is
split into start-up, simulation, and close (tables, checks, report). The limits are the project's own goals.
The buffered cases, with 50 clients at work in populations of different sizes, end as a table: idle clients should be
free; and a million clients of one server with those of 1,000 edge servers, 10,000 at work, in turn (``--repeat``).
``ten_million`` clients replay the weeks of a million phones, shifted by random times; it runs only if named.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import simpy

MOST_DEVICES = 1_000_000
LIMITS = {
    "million_week": "45,000 dispatches per second of the whole run, 70,000 of the simulation, 1.5 GB",
    "week_of_rounds": "under 60 s",
    "ten_million": "under 16 GB",
}
JITTER_CV = 0.1


class BareTimeouts:
    """SimPy timeouts of one process, timed in many short turns between pieces of the simulation.

    Both then have the same clock rate and the same load of the machine, so that their ratio varies less than
    either.
    """

    TURN = 10_000
    EVERY = 1000

    def __init__(self) -> None:
        self.count = 0
        self.processor_s = 0.0
        self.wall_s = 0.0
        self._calls = 0
        self._env = simpy.Environment()
        self._env.process(self._waiting())

    def _waiting(self) -> Any:
        while True:
            yield self._env.timeout(1)

    def on_progress(self) -> None:
        """Take a turn every few server updates, from the first on: rounds of many clients are few."""
        self._calls += 1
        if self._calls % self.EVERY != 1:
            return
        wall, processor = time.perf_counter(), time.process_time()
        self._env.run(until=self._env.now + self.TURN)
        self.processor_s += time.process_time() - processor
        self.wall_s += time.perf_counter() - wall
        self.count += self.TURN


def scenario(
    bundle: Path, clients: int, steps: int, server: dict[str, Any], stop: dict[str, Any]
) -> dict[str, Any]:
    """A timing-only scenario on a bundle."""
    return {
        "name": "time-plane",
        "task": {"name": "timing", "clients": clients, "parameters": 100_000},
        "training": {"local_steps": steps},
        "devices": {
            "trace": str(bundle),
            **(
                {"assign": "sample", "availability": {"shift": "any"}}
                if clients > MOST_DEVICES
                else {}
            ),
            "compute": {"jitter": {"cv": JITTER_CV}},
            "network": {"name": "static", "latency": "40ms"},
        },
        "server": server,
        "stop": stop,
    }


def cases() -> dict[str, tuple[int, int, dict[str, Any], dict[str, Any]]]:
    """Devices, local steps (of 40 ms on average), server section and stop section of every case."""

    def buffered(concurrency: int) -> dict[str, Any]:
        return {"schedule": {"name": "buffered", "buffer_size": 10, "concurrency": concurrency}}

    rounds = {
        "selection": {"name": "uniform", "cohort": 1000},
        "schedule": {"name": "sync", "deadline": "9min", "pause": "1min"},
    }
    cohorts, inner = (
        {"selection": {"name": "uniform", "cohort": count}, "schedule": rounds["schedule"]}
        for count in (10_000, 10)
    )
    backhaul = {"name": "static", "latency": "20ms", "down": "1Gbps", "up": "1Gbps"}

    def edges(server: dict[str, Any]) -> dict[str, Any]:
        return {"edges": {"count": 1000, "rounds": 10, "network": backhaul, **server}}

    at_work = {
        "flat_rounds": cohorts,
        "edge_rounds": edges(inner),
        "flat_small_rounds": inner,
        "flat_buffered": buffered(10_000),
        "edge_buffered": edges(buffered(10)),
    }
    return {
        "million_week": (1_000_000, 10_000, buffered(1000), {"simulated_time": "7d"}),
        "week_of_rounds": (100_000, 20, rounds, {"simulated_time": "7d"}),
        **{
            f"buffered_1e{power}": (10**power, 20, buffered(50), {"dispatches": 200_000})
            for power in (3, 4, 5, 6)
        },
        **{name: (10**6, 20, server, {"dispatches": 200_000}) for name, server in at_work.items()},
        "ten_million": (
            10_000_000,
            14_000,
            buffered(1000),
            {"dispatches": 1_000_000, "simulated_time": "7d"},
        ),
    }


def measure(name: str, folder: Path) -> dict[str, float]:
    """Run one case in this process."""
    clients, steps, server, stop = cases()[name]
    began_wall, began = time.perf_counter(), time.process_time()
    import fedsim
    from fedsim.composition.run import execute
    from fedsim.simulation.simulation import Simulation

    bare = BareTimeouts()
    limits: list[float] = []
    simulate = Simulation.run

    def timed(server: Simulation) -> None:
        limits.append(time.process_time())
        simulate(server)
        limits.append(time.process_time())

    Simulation.run = timed  # type: ignore[assignment, method-assign]
    bundle = folder / f"phones_{min(clients, MOST_DEVICES)}"
    loaded = fedsim.read_scenario(scenario(bundle, clients, steps, server, stop))
    with tempfile.TemporaryDirectory() as output:
        run = execute(loaded, Path(output) / "run", on_progress=lambda _: bare.on_progress())
        ended, ended_wall = time.process_time(), time.perf_counter()
    count = run.info["dispatches"]
    simulation_s = limits[1] - limits[0] - bare.processor_s
    whole_s = ended - began - bare.processor_s
    us = simulation_s / count * 1e6
    bare_us = bare.processor_s / bare.count * 1e6
    return {
        "dispatches": count,
        "start_up_processor_s": limits[0] - began,
        "simulation_processor_s": simulation_s,
        "close_processor_s": ended - limits[1],
        "whole_processor_s": whole_s,
        "whole_wall_s": ended_wall - began_wall - bare.wall_s,
        "whole_dispatches_per_processor_s": count / whole_s,
        "simulation_dispatches_per_processor_s": count / simulation_s,
        "us_per_dispatch": us,
        "bare_timeout_us": bare_us,
        "timeouts_per_dispatch": us / bare_us,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def print_flatness(results: dict[str, dict[str, float]]) -> None:
    """Print what a dispatch costs beside more and more idle clients, and how much more than beside the fewest."""
    few = {name: result for name, result in results.items() if name.startswith("buffered_")}
    if not few:
        return
    least = next(iter(few.values()))["us_per_dispatch"]
    print("50 clients at work, simulation alone (at most 1.5 times the smallest population)")
    for name, result in few.items():
        us = result["us_per_dispatch"]
        print(
            f"  {cases()[name][0]:>10,} devices {us:8.1f} us per dispatch {us / least:6.2f} times"
        )


def print_edges(results: dict[str, list[dict[str, float]]]) -> None:
    """Print how many dispatches per second of the simulation edge servers cost."""
    for kind in ("rounds", "buffered"):
        rates = [
            statistics.median(one["simulation_dispatches_per_processor_s"] for one in results[name])
            for name in (f"flat_{kind}", f"edge_{kind}")
            if results.get(name)
        ]
        if len(rates) > 1:
            flat, edge = rates
            print(
                f"1,000 edge servers, {kind}: {edge:,.0f} dispatches per second, {1 - edge / flat:.0%} fewer than "
                f"{flat:,.0f} (goal: at most 25%)"
            )


def main() -> None:
    """Measure all cases but the largest, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "fedsim-benchmarks"
    )
    parser.add_argument(
        "--only", nargs="*", choices=list(cases()), help="cases; all but ten_million by default"
    )
    parser.add_argument("--repeat", type=int, default=1, help="measure all so often, in turn")
    parser.add_argument("--measure", choices=list(cases()), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.folder)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, float]] = {}
    every: dict[str, list[dict[str, float]]] = defaultdict(list)
    names = options.only or [name for name in cases() if name != "ten_million"]
    for name in names * options.repeat:
        devices = min(cases()[name][0], MOST_DEVICES)
        bundle = options.folder / f"phones_{devices}"
        if not bundle.exists():
            command = [
                "traces",
                "synthesize",
                "phone_idle_charging_wifi",
                "--devices",
                str(devices),
            ]
            command += ["--days", "7", "--seed", "0", "-o", str(bundle)]
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "fedsim", *command], check=True, capture_output=True
            )
            peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(f"{bundle}: {time.perf_counter() - began:.1f} s, at most {peak_mb:,.0f} MB")
        command = [sys.executable, __file__, "--folder", str(options.folder), "--measure", name]
        result = results[name] = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        every[name].append(result)
        print(
            f"{name} ({LIMITS.get(name, 'at most 20 bare timeouts, flat from 10^3 to 10^6 devices')})"
        )
        for key, value in result.items():
            print(f"  {key:38s} {value:14,.2f}")
    print_flatness(results)
    print_edges(every)


if __name__ == "__main__":
    main()
