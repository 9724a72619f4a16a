"""Coverage of ``fedsim forecast``: how often the real time lies in its interval of 90%.

    python -m benchmarks.forecast [--trials 200] [--same-devices | --anew | --deployments]

Ten populations of devices; in each trial, a random half of a population is the trace from which is forecast, and the
other half, with another seed, is the reality. The devices of a bundled trace are divided in half, and so are synthetic
ones. Time alone is simulated, until a number of updates has arrived or of rounds has ended. With ``--same-devices``,
only the seeds of the forecast differ, whose intervals are too narrow for other devices.

The trials of a population divide the same devices; with ``--anew``, each trial draws a population of its own.

With ``--deployments``, the reality is that of the logged deployments of ``benchmarks/validation`` whose clients trained
with torch: a bundle is calibrated from the first fifth of a log, and the time until half of its rounds (versions, for
other schedules than sync) and until half of its updates is forecast.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from benchmarks.validation.configurations import load
from benchmarks.validation.report import measured
from fedsim import bundled
from fedsim.calibration.estimates import estimate, to_bundle
from fedsim.calibration.log import numbered, read_log
from fedsim.calibration.scenario import calibrated, known
from fedsim.composition.build import build
from fedsim.composition.planes import build_server
from fedsim.composition.shared import Shared
from fedsim.decisions.forecast import RUNS, band, devices_of, replicate
from fedsim.scenario.loading import LoadedScenario, load_scenario_dict
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.combine import DEVICE_TABLES, SHARED_TABLES, _copies
from fedsim.traces.synthesis import Synthesis, synthesize

Floats = npt.NDArray[np.float64]

_TRACE = Path(tempfile.gettempdir()).resolve()
"""Stands for the folder of a bundle in memory."""
_HALF = 50
"""Devices of a half, of which each is a client."""


KINDS = ("phone_idle_charging_wifi", "phone_mostly_on", "desktop")


def populations() -> list[tuple[str, TraceBundle]]:
    """Ten bundles of at least 100 devices with speeds and links."""
    found = [
        (name, TraceBundle.read(bundled.resolved(f"builtin:{name}")))
        for name in ("phones_week", "phones_mostly_on_week")
    ]
    for number in range(10 - len(found)):
        kind = KINDS[number % len(KINDS)]
        found.append((f"{kind}, seed {100 + number}", made(kind, 100 + number)))
    return found


def made(kind: str, seed: int) -> TraceBundle:
    """A synthetic population."""
    return synthesize(Synthesis(population=kind, devices=2 * _HALF, seed=seed))


def part(bundle: TraceBundle, rows: npt.NDArray[np.int64]) -> TraceBundle:
    """The devices in these rows."""
    devices = bundle.devices.take(pa.array(rows))
    ids = bundle.device_ids.take(pa.array(rows))
    tables = {"devices": devices} | _copies(bundle, DEVICE_TABLES, rows, ids)
    shared = {name: bundle.tables[name] for name in SHARED_TABLES if name in bundle.tables}
    return TraceBundle(bundle.manifest, tables | shared)


class _Nothing:
    """A recorder that keeps nothing."""

    def append_dispatch(self, ended: Any) -> None:
        """Nothing is kept."""

    append_aggregation = append_dispatch


def scenario_of(target: dict[str, int]) -> LoadedScenario:
    """The scenario with this target, for 60 days at most."""
    return load_scenario_dict(
        {
            "task": {"name": "timing", "clients": _HALF, "parameters": 250_000},
            "training": {"local_steps": 20},
            "devices": {"trace": str(_TRACE), "compute": {"name": "trace", "jitter": {"cv": 0.1}}},
            "server": {
                "selection": {"name": "uniform", "cohort": 8},
                "schedule": {"name": "sync", "deadline": "1h", "pause": "10min"},
            },
            "stop": {"simulated_time": "60d", **target},
        },
        "/",
    )


def time_s(loaded: LoadedScenario, bundle: TraceBundle, seed: int) -> float:
    """Simulated seconds until the target; infinite if it is missed."""
    scenario, stop = loaded.scenario, loaded.scenario.stop
    changed = replace(loaded, scenario=scenario.model_copy(update={"seed": seed}))
    shared = Shared()
    shared._traces[_TRACE] = bundle
    simulation = build_server(build(changed, shared, timing_only=True), None, _Nothing())
    simulation.run()
    server = simulation.server
    reached = server.round >= (stop.rounds or 0) and simulation.arrived >= (stop.arrivals or 0)
    return server.now_ns / 1e9 if reached else math.inf


def trial(
    loaded: LoadedScenario, bundle: TraceBundle, number: int, same: bool
) -> tuple[bool, float]:
    """Whether the reality lies in the interval, and the interval's relative width."""
    halves = np.random.default_rng(number).permutation(bundle.device_count)[: 2 * _HALF]
    given, real = part(bundle, np.sort(halves[:_HALF])), part(bundle, np.sort(halves[_HALF:]))
    seeds = range(1000 * number + 1, 1000 * number + 1 + RUNS)
    times = [time_s(loaded, devices_of(given, _HALF, seed, same=same), seed) for seed in seeds]
    median, low, high = band(np.array(times))
    return low <= time_s(loaded, real, 1000 * number) <= high, (high - low) / median


def deployment_trial(document: dict[str, Any], folder: Path) -> list[bool]:
    """Whether the times until half of the versions and half of the updates of a log lie in their intervals."""
    scenario, rows = load(document["deployed"]), pd.DataFrame(document["dispatches"])
    folder.mkdir()
    rows[rows["ended_s"] <= document["fitted_until_s"]].to_csv(folder / "log.csv", index=False)
    read, name = read_log(folder / "log.csv"), document["deployed"]["name"]
    clients, assumptions, _ = known(scenario, read.clients(), read.named_by, name)
    estimates = estimate(numbered(read.dispatches, clients), clients, assumptions)
    to_bundle(estimates, name, "log", 3600.0).write(folder / "bundle", overwrite=True)
    data = calibrated(scenario, folder / "bundle", estimates)
    arrived = np.sort(rows["arrived_s"].dropna().to_numpy())
    versions = np.array(document["versions_s"])
    inside = []
    for real, key in ((versions, "rounds"), (arrived, "arrivals")):
        count = len(real) // 2
        loaded = load({**data, "stop": {key: count, "simulated_time": "10min"}})
        times = []
        for seed in range(1, RUNS + 1):
            run = replicate(loaded, seed, len(clients), folder / f"{key}", Shared())
            simulation = build_server(build(run, timing_only=True), None, _Nothing())
            simulation.run()
            times.append(simulation.server.now_ns / 1e9)
        _, low, high = band(np.array(times))
        inside.append(bool(low <= real[count - 1] <= high))
    return inside


def deployments() -> None:
    """Print the coverage on the logged deployments."""
    print("| deployment | versions | updates |")
    print("|---|---|---|")
    hits: list[list[bool]] = []
    for name, documents in measured().items():
        if "deployed" not in documents[0]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            done = [
                deployment_trial(document, Path(folder) / str(number))
                for number, document in enumerate(documents)
            ]
        hits += done
        cells = (f"{sum(each[column] for each in done)} of {len(done)}" for column in (0, 1))
        print(f"| {name.removeprefix('ii-')} | {' | '.join(cells)} |", flush=True)
    shares = np.mean(hits, axis=0)
    print(f"\ncoverage: versions {shares[0]:.1%}, updates {shares[1]:.1%} of {len(hits)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200, help="trials per population")
    parser.add_argument("--populations", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first population")
    parser.add_argument("--same-devices", action="store_true")
    parser.add_argument("--anew", action="store_true", help="a population for each trial")
    parser.add_argument("--deployments", action="store_true")
    arguments = parser.parse_args()
    if arguments.deployments:
        deployments()
        return
    print("| population | target | coverage | width |")
    print("|---|---|---|---|")
    every: list[bool] = []
    chosen: Sequence[tuple[int, tuple[str, TraceBundle | None]]]
    chosen = list(enumerate(populations()))[arguments.first :][: arguments.populations]
    if arguments.anew:
        chosen = [(1, (kind, None)) for kind in KINDS]
    for place, (name, bundle) in chosen:
        target = {"arrivals": 100} if place % 2 else {"rounds": 12}
        loaded = scenario_of(target)
        done = [
            trial(loaded, bundle or made(name, 5000 + number), number, arguments.same_devices)
            for number in range(arguments.trials)
        ]
        hits, width = [hit for hit, _ in done], float(np.median([width for _, width in done]))
        every += hits
        words = " ".join(f"{count} {key}" for key, count in target.items())
        print(f"| {name} | {words} | {np.mean(hits):.0%} | {width:.0%} |", flush=True)
    print(f"\ncoverage: {np.mean(every):.1%} of {len(every)}")


if __name__ == "__main__":
    main()
