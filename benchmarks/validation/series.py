"""Run the configurations of the validation for real, and compare them with their simulation.

``python -m benchmarks.validation.series run`` runs the missing configurations of series i (one file per run in
``results/``; 40 configurations, five repetitions of 40 s: two and a half hours; ``--only``, ``--repetitions`` and
``--seconds`` choose less). ``report`` simulates every configuration again and writes the numbers, figure and table of
``README.md`` here; without results of one's own it reads those in ``measured.jsonl.xz``. ``--series ii`` trains
with torch under CPU quotas instead, and calibrates on the first fifth.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from benchmarks.validation import training
from benchmarks.validation.configurations import (
    SECONDS,
    configurations,
    load,
    training_configurations,
)
from benchmarks.validation.deployment import Log, deploy
from benchmarks.validation.netns import inside, unavailable
from fedsim.calibration.estimates import estimate
from fedsim.calibration.log import numbered
from fedsim.calibration.scenario import known
from fedsim.scenario.loading import LoadedScenario

HERE = Path(__file__).parent
RESULTS = HERE / "results"
MODULE = "benchmarks.validation.series"
HIGHEST_LOAD = 0.7
REPETITIONS = 5


def result_path(name: str, repetition: int) -> Path:
    """File of one run."""
    return RESULTS / f"{name}.{repetition}.json"


def cpu_times() -> tuple[int, int]:
    """CPU time of the host since its start, and the idle part of it, in ticks."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(fields), fields[3] + fields[4]


def run_missing(only: str, repetitions: int, seconds: float, again: bool, series: str) -> None:
    """Run every configuration that has no result yet, each in its own process and namespaces."""
    RESULTS.mkdir(exist_ok=True)
    todo = [
        (name, repetition)
        for repetition in range(repetitions)
        for name, _ in (configurations if series == "i" else training_configurations)(seconds)
        if fnmatch.fnmatch(name, only) and not _is_done(name, repetition, again)
    ]
    for count, (name, repetition) in enumerate(todo, 1):
        process = os.fork()
        if process == 0:
            _run_and_exit(name, repetition, seconds)
        failed = os.waitpid(process, 0)[1]
        print(f"{count}/{len(todo)} {name} {repetition}{' FAILED' if failed else ''}", flush=True)


def _is_done(name: str, repetition: int, again: bool) -> bool:
    path = result_path(name, repetition)
    if not path.exists():
        return False
    return not again or json.loads(path.read_text())["conditions"]["host_load"] <= HIGHEST_LOAD


def _run_and_exit(name: str, repetition: int, seconds: float) -> NoReturn:
    status = 1
    try:
        signal.alarm(round(seconds) + 60)  # the signal ends a deployment that hangs
        run_one(name, repetition, seconds)
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def run_one(name: str, repetition: int, seconds: float) -> None:
    """One run for real, from inside a namespace."""
    scenario = {**dict(configurations(seconds)), **dict(training_configurations(seconds))}[name]
    loaded = load(scenario)
    total, idle = cpu_times()
    if name.startswith("ii-"):
        with training.quotas(loaded.scenario.task.params.clients) as groups:
            log, conditions = deploy(loaded, lambda number: training.trainer(groups[number]))
    else:
        log, conditions = deploy(loaded)
    total_after, idle_after = cpu_times()
    conditions |= {
        "host_load": 1 - (idle_after - idle) / max(total_after - total, 1),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "jitter_ms": control_jitter_ms(),
    }
    document = {"scenario": scenario, "conditions": conditions, **asdict(log)}
    if name.startswith("ii-"):
        document |= calibrated_on_first_fifth(scenario, loaded, log)
    path = result_path(name, repetition)
    path.with_suffix(".part").write_text(json.dumps(document))
    path.with_suffix(".part").rename(path)


def calibrated_on_first_fifth(
    scenario: dict[str, Any], loaded: LoadedScenario, log: Log
) -> dict[str, Any]:
    """The scenario to predict with, the one that was deployed, and where the fit ends.

    Step times are estimated from the updates that arrived in the first fifth of the run; links stay as they are. Steps
    have no jitter: the prediction is a point, and a second draw would only add to its error.
    """
    rows = pd.DataFrame(log.dispatches)
    fitted_until_s = rows["ended_s"].max() / 5
    first = rows[rows["arrived_s"] <= fitted_until_s].rename(
        columns={"dispatched_s": "start_s", "arrived_s": "end_s", "steps_done": "steps"}
    )
    first["client"] = first.pop("client_id").astype(str)
    names = sorted(first["client"].unique())
    clients, assumptions, _ = known(loaded, names, "client_id", scenario["name"])
    estimates = estimate(numbered(first, clients), clients, assumptions)
    steps = [f"{step_s:.9f}s" for step_s in estimates.step_s.mean]
    devices = {**scenario["devices"], "compute": {"name": "values", "step": steps}}
    return {
        "scenario": {**scenario, "devices": devices},
        "deployed": scenario,
        "fitted_until_s": fitted_until_s,
    }


def control_jitter_ms(sleeps: int = 200) -> float:
    """How late a sleep of 5 ms ends, 99th percentile: the delay of the host without any network."""
    late = []
    for _ in range(sleeps):
        due = time.monotonic_ns() + 5_000_000
        time.sleep(0.005)
        late.append((time.monotonic_ns() - due) / 1e6)
    return sorted(late)[int(sleeps * 0.99)]


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=["run", "run-inside", "report", "list"])
    parser.add_argument("--series", choices=["i", "ii"], default="i")
    parser.add_argument("--only", default="*", help="configurations whose name matches")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--seconds", type=float, help="length of a run; 40, or 58 for series ii")
    parser.add_argument(
        "--again", action="store_true", help="repeat runs at a host load above 70%%"
    )
    options = parser.parse_args(arguments)
    if options.do == "list":
        print("\n".join(name for name, _ in configurations()))
        return 0
    if options.do == "run-inside":
        run_missing(
            options.only,
            options.repetitions,
            options.seconds or SECONDS[options.series],
            options.again,
            options.series,
        )
        return 0
    if options.do == "run":
        reason = unavailable() or (training.unavailable() if options.series == "ii" else None)
        if reason:
            print(f"cannot run: {reason}", file=sys.stderr)
            return 1
        return inside(MODULE, ["run-inside", *arguments[1:]])
    from benchmarks.validation.report import write_report

    return write_report()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
