"""What a dispatch costs in timing-only runs, against a bare SimPy timeout measured in the same process.

    python benchmarks/time_plane.py [--folder FOLDER] [--only NAME ...]

Bundles of 10^3 to 10^6 synthetic phones are made once in FOLDER. Each case runs in a process of its own, writes a
whole run folder, and prints wall and processor time; the limits are those the project set itself.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import simpy

DAY_S = 86_400
LIMITS = {
    "million_buffered": "at least 60,000 dispatches a second, under 4 GB, start-up under 20 s",
    "week_of_rounds": "under 60 s",
}


class BareTimeouts:
    """SimPy timeouts of one process, timed in many short turns between pieces of the simulation.

    Both then meet the same clock rate and the same neighbours on the machine, so that their ratio is steadier than
    either.
    """

    TURN = 10_000
    EVERY = 400

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
        """Every so many server updates take a turn."""
        self._calls += 1
        if self._calls % self.EVERY:
            return
        wall, processor = time.perf_counter(), time.process_time()
        self._env.run(until=self._env.now + self.TURN)
        self.processor_s += time.process_time() - processor
        self.wall_s += time.perf_counter() - wall
        self.count += self.TURN


def scenario(
    bundle: Path, clients: int, server: dict[str, Any], stop: dict[str, Any], jitter: float = 0.0
) -> dict[str, Any]:
    """A timing-only scenario on a bundle; ``jitter`` is the coefficient of variation of step times."""
    return {
        "name": "time-plane",
        "task": {"name": "timing", "clients": clients, "parameters": 100_000},
        "training": {"local_steps": 20},
        "devices": {
            "trace": str(bundle),
            "compute": {"jitter": {"cv": jitter}},
            "network": {"name": "static", "latency": "40ms"},
        },
        "server": server,
        "stop": stop,
    }


def cases() -> dict[str, tuple[int, dict[str, Any], dict[str, Any]]]:
    """Devices, server section and stop section of every case."""

    def buffered(concurrency: int) -> dict[str, Any]:
        return {"schedule": {"name": "buffered", "buffer_size": 10, "concurrency": concurrency}}

    rounds = {
        "selection": {"name": "uniform", "cohort": 1000},
        "schedule": {"name": "sync", "deadline": "9min", "pause": "1min"},
    }
    return {
        "million_buffered": (1_000_000, buffered(1000), {"dispatches": 1_000_000}),
        "week_of_rounds": (100_000, rounds, {"simulated_time": "7d"}),
        **{
            f"buffered_1e{power}": (10**power, buffered(50), {"dispatches": 200_000})
            for power in (3, 4, 5, 6)
        },
    }


def _jitter(name: str) -> float:
    """The two large cases vary step times as real devices do; the plain cost is that of the defaults."""
    return 0.1 if name in LIMITS else 0.0


def measure(name: str, folder: Path) -> dict[str, float]:
    """Run one case in this process."""
    clients, server, stop = cases()[name]
    bundle = folder / f"phones_{clients}"
    began_wall, began = time.perf_counter(), time.process_time()
    import fedsim
    from fedsim.composition.assembly import assemble, build_server
    from fedsim.composition.execution import rare_garbage_collection
    from fedsim.runs.folder import RunFolder
    from fedsim.runs.writer import RunWriter

    assembly = assemble(
        fedsim.read_scenario(scenario(bundle, clients, server, stop, jitter=_jitter(name)))
    )
    with tempfile.TemporaryDirectory() as output:
        folder = RunFolder(Path(output) / "run")
        folder.path.mkdir()
        writer = RunWriter(folder, clients=clients)
        bare = BareTimeouts()
        simulated = build_server(assembly, None, writer, bare.on_progress)
        started_wall, started = time.perf_counter(), time.process_time()
        with rare_garbage_collection():
            simulated.run()
        wall_s = time.perf_counter() - started_wall - bare.wall_s
        processor_s = time.process_time() - started - bare.processor_s
        writer.close()
    count = simulated.dispatched
    bare_us = bare.processor_s / bare.count * 1e6
    return {
        "dispatches": count,
        "start_up_wall_s": started_wall - began_wall,
        "start_up_processor_s": started - began,
        "wall_s": wall_s,
        "processor_s": processor_s,
        "dispatches_per_wall_s": count / wall_s,
        "dispatches_per_processor_s": count / processor_s,
        "us_per_dispatch": processor_s / count * 1e6,
        "bare_timeout_us": bare_us,
        "timeouts_per_dispatch": processor_s / count * 1e6 / bare_us,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Measure all cases, or those asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "fedsim-benchmarks"
    )
    parser.add_argument("--only", nargs="*", choices=list(cases()), help="cases; all by default")
    parser.add_argument("--measure", choices=list(cases()), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.folder)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.only or cases():
        clients = cases()[name][0]
        bundle = options.folder / f"phones_{clients}"
        if not bundle.exists():
            command = [
                "traces",
                "synthesize",
                "phone_idle_charging_wifi",
                "--devices",
                str(clients),
            ]
            command += ["--days", "7", "--seed", "0", "-o", str(bundle)]
            subprocess.run(
                [sys.executable, "-m", "fedsim.cli", *command], check=True, capture_output=True
            )
        command = [sys.executable, __file__, "--folder", str(options.folder), "--measure", name]
        result = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        print(
            f"{name} ({LIMITS.get(name, 'at most 20 bare timeouts, flat from 10^3 to 10^6 devices')})"
        )
        for key, value in result.items():
            print(f"  {key:28s} {value:14,.2f}")


if __name__ == "__main__":
    main()
