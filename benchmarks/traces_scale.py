"""Traces at scale: synthesizing a bundle, indexing it, and the cost of each look-up against a bare SimPy timeout.

    python benchmarks/traces_scale.py [--devices 1000000] [--days 7] [--preset phone_idle_charging_wifi] [--keep FOLDER]

Three successive processes, so that the peak memory of each is known: the first makes and writes the bundle, the second
reads, indexes and queries it, the third checks and describes it. Every row with a limit shows how much of it was used;
the exit code is 1 if a limit is exceeded. Clients are looked up in random order, the worst case for caches.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow
import simpy

from fedsim.randomness import Purpose, Stream
from fedsim.traces.availability import AvailabilityIndex, OnlineSampler
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.statistics import describe
from fedsim.traces.synthesis import Synthesis, synthesize
from fedsim.traces.validation import validate_bundle

NS = 1_000_000_000
LOOK_UPS = 200_000
DRAWS = 500_000
DRAWS_A_WEEK = 2_400_000
"""Dispatches of a week with 1,000 devices at work for some minutes each: the rate at which the sampler is called."""

# Seconds and MB for a million devices over a week; look-ups in bare SimPy timeouts of the same run.
LIMITS = {
    "synthesize (s)": 180.0,
    "synthesize and write, peak (MB)": 4000.0,
    "read and index (s)": 20.0,
    "read and index, peak (MB)": 2500.0,
    "index alone (MB)": 600.0,
    "draw one client (timeouts)": 6.0,
}

Row = tuple[str, float]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def timeout_us(events: int = 300_000) -> float:
    """A bare SimPy timeout in one process: the unit of the look-ups."""
    environment = simpy.Environment()

    def clock() -> Any:
        for _ in range(events):
            yield environment.timeout(1)

    environment.process(clock())
    return timed(environment.run)[0] / events * 1e6


def make(folder: Path, preset: str, devices: int, days: float) -> list[Row]:
    made, bundle = timed(
        lambda: synthesize(Synthesis(population=preset, devices=devices, days=days))
    )
    written, _ = timed(lambda: bundle.write(folder))
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    return [
        ("sessions (million)", bundle.tables["availability"].num_rows / 1e6),
        ("synthesize (s)", made),
        ("write (s)", written),
        ("on disk (MB)", size),
        ("synthesize and write, peak (MB)", peak_mb()),
    ]


def ask(folder: Path, devices: int, days: float) -> list[Row]:
    before_mb = resident_mb()
    unit_us = min(timeout_us() for _ in range(3))
    read, bundle = timed(lambda: TraceBundle.read(folder, tables=["availability"]))
    indexed, index = timed(lambda: AvailabilityIndex.from_bundle(bundle))
    peak = peak_mb()
    bundle.tables.clear()
    pyarrow.default_memory_pool().release_unused()
    rows: list[Row] = [
        ("bare SimPy timeout (us)", unit_us),
        ("read and index (s)", read + indexed),
        ("index from the bundle in memory (s)", indexed),
        ("read and index, peak (MB)", peak),
        ("index alone (MB)", resident_mb() - before_mb),
    ]
    span_ns = round(days * 86_400) * NS
    middle = span_ns // 2
    clients = np.random.default_rng(0).integers(0, devices, LOOK_UPS).tolist()
    index.finish_after(0, 0, 1)
    for name, function in (
        ("is_online", lambda client: index.is_online(client, middle)),
        ("online_until", lambda client: index.online_until(client, middle)),
        ("next_online", lambda client: index.next_online(client, middle)),
        ("finish_after (10 min)", lambda client: index.finish_after(client, middle, 600 * NS)),
    ):
        seconds, _ = timed(lambda function=function: [function(client) for client in clients])
        rows.append((f"{name} (timeouts)", seconds / LOOK_UPS * 1e6 / unit_us))
    seconds, _ = timed(lambda: index.online_clients(middle))
    rows.append(("first online_clients (ms)", 1e3 * seconds))
    minutes = 60
    seconds, _ = timed(
        lambda: [index.online_clients(middle + (i + 1) * 60 * NS) for i in range(minutes)]
    )
    rows.append(("online_clients a minute later (ms)", 1e3 * seconds / minutes))
    seconds, _ = timed(lambda: index.online_summary(60 * NS, span_ns))
    rows.append(("online_summary, every minute of the days (s)", seconds))
    seconds, _ = timed(lambda: index.online_between_ns(0, span_ns))
    rows.append(("online_between_ns, all clients (s)", seconds))
    rows.append(("draw one client (timeouts)", draw_us(index, span_ns) / unit_us))
    sampler = OnlineSampler(index, Stream(0, Purpose.SELECTION))
    busy = np.zeros(devices, np.bool_)
    seconds, _ = timed(lambda: [sampler.sample(1000, i * 600 * NS, busy, i) for i in range(200)])
    rows.append(("draw 1,000 clients every 10 min (ms)", 1e3 * seconds / 200))
    rows.append(("all look-ups, peak (MB)", peak_mb()))
    return rows


def draw_us(index: AvailabilityIndex, span_ns: int) -> float:
    """One client at a time, as a server does that keeps 1,000 at work, at the pace of a week's dispatches."""
    sampler = OnlineSampler(index, Stream(0, Purpose.SELECTION))
    busy = np.zeros(index.clients, np.bool_)
    step = 7 * 86_400 * NS // DRAWS_A_WEEK
    at_work: list[int] = []

    def run() -> None:
        for draw in range(DRAWS):
            [client] = sampler.sample(1, draw * step % span_ns, busy, draw)
            busy[client] = True
            at_work.append(client)
            if len(at_work) > 1000:
                busy[at_work[draw - 1000]] = False

    return timed(run)[0] / DRAWS * 1e6


def inspect(folder: Path) -> list[Row]:
    read, bundle = timed(lambda: TraceBundle.read(folder))
    checked, problems = timed(lambda: validate_bundle(bundle))
    assert not problems
    described, _ = timed(lambda: describe(bundle))
    return [("read all tables (s)", read), ("validate (s)", checked), ("describe (s)", described)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=1_000_000)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--preset", default="phone_idle_charging_wifi")
    parser.add_argument("--keep", type=Path, help="use (and keep) the bundle in this folder")
    parser.add_argument("--phase", choices=["make", "ask", "inspect"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        rows = {
            "make": lambda: make(options.keep, options.preset, options.devices, options.days),
            "ask": lambda: ask(options.keep, options.devices, options.days),
            "inspect": lambda: inspect(options.keep),
        }[options.phase]()
        print(json.dumps(rows))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary) / "bundle"
        phases = ["ask", "inspect"] if folder.exists() else ["make", "ask", "inspect"]
        passed = True
        print(f"{options.devices:,} devices, {options.days:g} days, {options.preset}\n")
        print(f"{'':<46}{'measured':>12}{'limit':>10}{'used':>8}")
        for phase in phases:
            command = [sys.executable, __file__, "--phase", phase, "--keep", str(folder)]
            command += ["--devices", str(options.devices), "--days", str(options.days)]
            command += ["--preset", options.preset]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            for name, value in json.loads(out):
                limit = LIMITS.get(name)
                used = f"{limit:>10,.0f}{value / limit:>8.0%}" if limit else ""
                passed &= limit is None or value <= limit
                print(f"{name:<46}{value:>12,.2f}{used}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
