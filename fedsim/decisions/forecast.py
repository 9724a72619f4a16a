"""How long a scenario will take: a prediction interval from runs that differ in all that is not known.

Each run has a seed of its own. Devices that replay a trace are drawn anew, because the real ones are not those of the
trace but of the same population (:func:`fedsim.traces.combine.redrawn`); those of a calibrated bundle are the real
ones, and their estimates are drawn within their errors. If the real run is one more of these runs, it lies between the
k-th smallest and the k-th largest of n times with probability 1 - 2 k / (n + 1), whatever their distribution.
"""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.targets import Target
from fedsim.analysis.figures.base import Column, Figure, drawn_as_lines, sentence
from fedsim.analysis.headline import Tile
from fedsim.analysis.pages import rendered, write_page
from fedsim.composition.build import build_task
from fedsim.composition.shared import Shared
from fedsim.decisions.goal import Goal
from fedsim.decisions.runs import Progress, Runs
from fedsim.errors import UserError
from fedsim.files.checksums import file_sha256, text_sha256
from fedsim.runs.records import FORECAST, complete_runs
from fedsim.runs.run import Run
from fedsim.runs.tables import csv_text
from fedsim.scenario.comparing import text
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.overrides import Override
from fedsim.sweeps.folder import claimed
from fedsim.traces.bundle import MANIFEST_NAME, TraceBundle
from fedsim.traces.combine import perturbed, redrawn
from fedsim.vocabulary.arrays import Bools, Floats
from fedsim.vocabulary.formatting import (
    format_count,
    format_duration,
    format_interval,
    format_level,
    format_probability,
)

PAGE, TABLE = "forecast.html", "forecast.csv"
CONFIDENCE = 0.9
RUNS = 19
"""The fewest runs whose smallest and largest time enclose 90%."""
_CALIBRATED = "calibrate"
_DIGITS = 8
_LATE = 0.75
"""Share of a run after which a metric that no longer improves counts as flat."""


def band(times_s: Floats, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """The median of times, and the ends of the interval in which one more time lies with this probability.

    An end is an order statistic, between two of them if necessary; the lower end is NaN, and the upper end infinite,
    if there are too few times.

    Args:
        times_s: times; infinite for those that are later than any that was simulated.
        confidence: probability of the interval.
    """
    ordered, count = np.sort(times_s), len(times_s)
    if not count:
        return math.nan, math.nan, math.inf

    def at(share: float) -> float:
        place = share * (count + 1)
        below = math.floor(place + 1e-9)
        if below < 1:
            return math.nan
        if below >= count:
            return float(ordered[-1]) if place <= count + 1e-9 else math.inf
        rest = place - below
        low, high = float(ordered[below - 1]), float(ordered[below])
        return low if rest < 1e-9 else high if math.isinf(high) else low + rest * (high - low)

    tail = (1 - confidence) / 2
    return at(0.5), at(tail), at(1 - tail)


@dataclass(frozen=True)
class Forecast:
    """A forecast.

    Attributes:
        path: its folder.
        target: the target in words.
        times_s: simulated seconds to the target by run; infinite for a run that missed it.
        flat: whether a run missed the target and its metric no longer improved: it will probably never reach it.
        ends_s: when each run ended.
        confidence: probability of the interval.
    """

    path: Path
    target: str
    times_s: Floats
    flat: Bools
    ends_s: Floats
    confidence: float = CONFIDENCE

    @property
    def probability(self) -> float:
        """The probability that the target is reached before the runs end (Jeffreys' estimate)."""
        return (int(np.isfinite(self.times_s).sum()) + 0.5) / (len(self.times_s) + 1)

    @property
    def interval(self) -> tuple[float, float, float]:
        """Median, low and high of the time, given that the target is reached; as :func:`band`."""
        return band(self.times_s[np.isfinite(self.times_s)], self.confidence)

    @property
    def sentence(self) -> str:
        """The forecast in words."""
        reached, runs = int(np.isfinite(self.times_s).sum()), len(self.times_s)
        level = format_level(self.confidence, "share")
        until = format_duration(float(self.ends_s[np.isinf(self.times_s)].min(initial=math.inf)))
        if not reached:
            flat = f", {self.flat.sum()} of them flat" if self.flat.any() else ""
            return f"{self.target} is not reached within {until} by any of {runs} runs{flat}"
        median, low, high = self.interval
        if math.isnan(low) or math.isinf(high):
            times = f"about {format_duration(median)} ({reached} runs are too few for an interval of {level})"
        else:
            times = f"{format_interval(low, high, format_duration)} ({level}), median {format_duration(median)}"
        if reached == runs:
            return f"{self.target} after {times}"
        late = int((np.isinf(self.times_s) & ~self.flat).sum())
        kinds = f"late {late}, probably never {int(self.flat.sum())}"
        share = format_probability(self.probability)
        return (
            f"{self.target} within {until} in {reached} of {format_count(runs)} runs; probability {share}; {kinds}; "
            f"if reached, after {times}"
        )

    @property
    def table(self) -> pd.DataFrame:
        """One row per run: ``time_s`` (NaN if it missed the target), ``ended_s``, ``flat``."""
        times_s = np.where(np.isfinite(self.times_s), self.times_s, np.nan)
        return pd.DataFrame({"time_s": times_s, "ended_s": self.ends_s, "flat": self.flat})

    def __repr__(self) -> str:
        return f"<Forecast {str(self.path)!r}: {self.sentence}>"


def forecast(
    loaded: LoadedScenario,
    folder: Path,
    target: Target,
    *,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    same_devices: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
    **settings: Any,
) -> Forecast:
    """Forecast when a scenario reaches a target; runs that are in the folder are read.

    The arguments are those of :func:`fedsim.forecast`, read.
    """
    goal = Goal(target)
    with claimed(folder, FORECAST):
        earlier = _earlier(folder)
        first = loaded.scenario.seed + 1
        clients = build_task(loaded).clients
        shared = Shared()
        scenarios = [
            goal.applied(replicate(loaded, seed, clients, folder / "devices", shared, same_devices))
            for seed in range(first, first + runs)
        ]
        drawn = folder.glob(f"devices/{'?' * _DIGITS}-*/{MANIFEST_NAME}")
        record: dict[str, Any] = {
            "asked": {
                "scenario": loaded.resolved(),
                "target": [target.metric, target.value],
                "runs": runs,
                "confidence": confidence,
                "same_devices": same_devices,
            },
            "files": {name: earlier["files"][name] for name in {TABLE} & earlier["files"].keys()},
            "complete": complete_runs(folder, earlier),
        }
        record["files"] |= {str(path.relative_to(folder)): file_sha256(path) for path in drawn}
        FORECAST.write(folder, record)
        performer = Runs(folder / "runs", timing_only=goal.timing_only, **settings)
        done = performer.perform(scenarios, lambda share: on_progress(Progress(share, "")))
        complete = []
        for each in done:
            if isinstance(each, str):
                raise UserError(f"a run of the forecast failed: {each}", where=folder)
            complete.append(each)
        measured = [goal.measure(run) for run in complete]
        result = Forecast(
            folder,
            goal.words(complete[0].metric_definitions),
            np.array([each.costs["time"] if each.reached else math.inf for each in measured]),
            np.array(
                [
                    not m.reached and _is_flat(run, target)
                    for run, m in zip(complete, measured, strict=True)
                ]
            ),
            np.array([run.simulated_s for run in complete]),
            confidence,
        )
        record["complete"] = performer.complete
        FORECAST.write_listed(folder, record, {TABLE: csv_text(result.table)})
        write_page(folder / PAGE, _page(result, f"Forecast: {loaded.scenario.name}"))
        return result


def _earlier(folder: Path) -> dict[str, Any]:
    """The record of the earlier forecast in a folder; refuse devices that are not its own, such as those of another of
    its runs."""
    record: dict[str, Any] = {"files": {}}
    with contextlib.suppress(FileNotFoundError):
        record = FORECAST.read(folder)
        for name in record["files"]:
            if name.endswith(MANIFEST_NAME) and (folder / name).exists():
                FORECAST.require_intact(folder, record, name)
    return record


def _page(forecast: Forecast, title: str) -> str:
    times_s, (median, low, high) = forecast.times_s, forecast.interval
    at = np.array([0.0, low, median, *times_s, high, *forecast.ends_s])
    at = np.unique(at[np.isfinite(at)])
    share = (times_s <= at[:, None]).mean(axis=1)
    level = format_level(forecast.confidence, "share")
    known = math.isfinite(low) and math.isfinite(high)
    shades = [{"label": f"{level} interval", "from": low, "to": high}] if known else []
    columns = (
        Column("time_s", "simulated time", "time", at),
        Column("share", "reached by then", "share", share),
        Column("ends", "a run", "share", np.where(np.isin(at, times_s), share, np.nan)),
        Column("median", "median", "share", np.where(at == median, share, np.nan)),
    )
    table = forecast.table
    outcome = np.select(
        [table["time_s"].notna(), table["flat"]], ["reached", "probably never"], "late"
    )
    runs = (
        Column("run", "Run", "count", np.arange(1, len(table) + 1)),
        Column("outcome", "Target", "text", outcome.tolist()),
        Column("time_s", "Time to the target", "time", table["time_s"].to_numpy()),
        Column("ended_s", "Ended after", "time", table["ended_s"].to_numpy()),
    )
    written = format_interval(low, high, format_duration) if known else "too few runs"
    counts = {name: int((outcome == name).sum()) for name in ("reached", "late", "probably never")}
    dots = {"points": True, "bare": True}
    lines = [
        {"key": "share", "color": "g0", "step": True},
        {**dots, "key": "ends", "color": "g0", "symbol": "circle"},
    ]
    of_those = "of the runs that reach the target"
    middle = Tile("Median", "not reached by half")
    if 2 * counts["reached"] >= len(table):
        middle = Tile("Median", format_duration(median), of_those)
        lines.append({**dots, "key": "median", "color": "g1", "symbol": "rect", "large": True})
    tiles = [
        middle,
        Tile(f"{level} interval", written, of_those),
        Tile(
            "Probability of reaching it",
            format_probability(forecast.probability),
            f"before the runs end; Jeffreys’ estimate from {counts['reached']} of {len(table)} runs",
        ),
        Tile("Runs", str(len(table)), ", ".join(f"{n} {name}" for name, n in counts.items())),
    ]
    figures = {
        "reached": Figure(
            "reached",
            f"{counts['reached']} of {len(table)} runs reached the target.",
            columns,
            drawn_as_lines(*lines, unit="share of runs", ylim=(0, 1), shades=shades),
        ),
        "runs": Figure("runs", "Runs", runs),
    }
    answer, *rest = map(sentence, forecast.sentence.split("; "))
    return rendered("forecast.html.j2", figures, title=title, answer=answer, rest=rest, tiles=tiles)


def _is_flat(run: Run, target: Target) -> bool:
    if target.metric not in run.metrics:
        return False
    definition, values = run.metric_definition(target.metric), run.metrics[target.metric]
    early = values[run.metrics["time_s"] <= _LATE * run.simulated_s]
    return definition.best(early) == definition.best(values)


def replicate(
    loaded: LoadedScenario,
    seed: int,
    clients: int,
    folder: Path,
    shared: Shared,
    same_devices: bool = False,
) -> LoadedScenario:
    """The scenario with another seed, and with bundles of other devices, which are written into ``folder``."""
    changes, devices = [Override("seed", seed, "forecast")], loaded.scenario.devices
    traces = {"devices.trace": (devices.trace, devices.assign)}
    for part in ("availability", "compute", "network"):
        params = getattr(devices, part).params
        assign = getattr(params, "assign", None) or devices.assign
        traces[f"devices.{part}.trace"] = getattr(params, "trace", None), assign
    for key, (path, assign) in traces.items():
        if path is None:
            continue
        source = shared.trace(path)
        same, every = same_devices or assign == "by_name", assign == "sample"
        drawn = devices_of(source, clients, seed, same=same, every=every)
        if drawn is source:
            continue
        origin = text_sha256(text([str(path), source.manifest.sha256, clients, same, every]))
        target = folder / f"{origin[:_DIGITS]}-{seed}"
        if not (target / MANIFEST_NAME).exists():
            shutil.rmtree(target, ignore_errors=True)
            drawn.write(target)
        changes.append(Override(key, str(target.resolve()), "forecast"))
    return loaded.changed(changes)


def devices_of(
    bundle: TraceBundle, clients: int, seed: int, *, same: bool = False, every: bool = False
) -> TraceBundle:
    """The devices of one run.

    Args:
        bundle: the trace.
        clients: number of clients.
        seed: seed of the run.
        same: whether the real devices are those of the trace; those of a calibrated one are.
        every: whether the clients are drawn from all devices, not the first ones.
    """
    if same or bundle.manifest.importer == _CALIBRATED:
        has_errors = any(bundle.has(*where) for where in _ERRORS)
        return perturbed(bundle, seed) if has_errors else bundle
    return redrawn(bundle, max(bundle.device_count, clients) if every else clients, seed)


_ERRORS = (("compute", "step_fixed_error"), ("network", "bandwidth_error"))
