"""The calibration of a log: estimates, bundle, scenario, comparison and cross-validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsim.calibration.estimates import Assumptions, Estimates, estimate, horizon_s, to_bundle
from fedsim.calibration.log import Rounds, numbered, read_log
from fedsim.calibration.power import read_power
from fedsim.calibration.prediction import (
    Lateness,
    Prediction,
    fitting_rounds,
    predict,
    simulated_log,
)
from fedsim.calibration.scenario import (
    as_timing,
    between_rounds,
    calibrated,
    known,
    until_end_of_log,
)
from fedsim.scenario.loading import LoadedScenario, load_scenario_dict
from fedsim.scheduling.schedules.sync import Sync
from fedsim.tasks.kinds.flower import FlowerTask
from fedsim.traces.bundle import check_output
from fedsim.vocabulary.formatting import (
    format_bytes,
    format_count,
    format_counted,
    format_duration,
    format_interval,
    format_names,
    format_share,
)

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_QUANTITIES: Mapping[str, Callable[[pd.DataFrame], pd.Series]] = {
    "download (s)": lambda log: log["download_s"],
    "local steps (s)": lambda log: log["compute_s"],
    "upload (s)": lambda log: log["upload_s"],
    "dispatch to arrival (s)": lambda log: log["end_s"] - log["start_s"],
}
_MISSING = 0.01
"""Share of the log's dispatches whose absence from the cross-validation is flagged."""
_FEW = 0.8
"""Share of the log's dispatches below which a simulation is flagged."""
_SAME, _ROUNDING_S = 0.05, 1e-3
"""Relative and absolute difference of times between rounds that is not flagged."""
_SAME_SIZE = 0.1
"""Relative difference of the bytes of transfers that is not flagged."""
_FEW_ROUNDS, _MOST_CLIENTS = 10, 0.9
"""Rounds and share of the clients below which a fit is flagged as small."""
_LEAST_CHANGE, _LEAST_Z = 0.1, 4.0
"""Relative change of step times over a log, and its number of standard errors, from which a trend is flagged."""


@dataclass(frozen=True)
class Calibration:
    """The devices estimated from a log, and how well they predict the log.

    Attributes:
        log: the dispatches, with the numbers of the clients.
        estimates: estimates from the whole log.
        scenario: the scenario on the estimates, as plain data with absolute paths; None without a scenario.
        distributions: logged and simulated values by quantity; empty without a scenario.
        predictions: predictions of the rounds after the first fifth; empty without a scenario or rounds.
        lateness: which clients are late in these rounds; None if none can be, or without a scenario or rounds.
        power: watts by phase, see :func:`~fedsim.calibration.power.read_power`; empty without readings.
        flags: statements about what the log cannot show.
    """

    log: pd.DataFrame
    estimates: Estimates
    scenario: dict[str, Any] | None
    distributions: dict[str, tuple[list[float], list[float]]]
    predictions: list[Prediction]
    lateness: Lateness | None
    power: dict[str, float]
    flags: tuple[str, ...]


def calibrate(
    path: Path,
    bundle: Path,
    scenario: LoadedScenario | None = None,
    *,
    power: Sequence[Path] = (),
    overwrite: bool = False,
) -> Calibration:
    """Calibrate devices from a log and write them as a trace bundle.

    Args:
        path: the log: a table or a run folder.
        bundle: folder of the new bundle.
        scenario: the scenario of the logged run, to be simulated on the estimates.
        power: tables of power readings, see :func:`~fedsim.calibration.power.read_power`.
        overwrite: replace an existing bundle.
    """
    check_output(bundle, overwrite=overwrite)
    read = read_log(path)
    log, clients = read.dispatches, read.clients()
    flags: list[str] = []
    watts, power_flags = read_power(power, read) if power else ({}, [])
    if scenario is not None and issubclass(scenario.scenario.task.type, FlowerTask):
        scenario, log, app_flags = as_timing(scenario, log)
        flags += app_flags
    assumptions = Assumptions()
    stop: dict[str, Any] = {}
    if scenario is not None:
        stop = scenario.resolved()["stop"]
        scenario = until_end_of_log(scenario, horizon_s(log))
        clients, assumptions, guesses = known(scenario, clients, read.named_by, str(path))
        flags += guesses
    # From here on clients are numbers: a simulated log has no names.
    log = numbered(log, clients)
    estimates = estimate(log, clients, assumptions)
    flags += [*estimates.flags, *read.flags, *power_flags]
    is_synchronous = scenario is None or issubclass(scenario.scenario.server.schedule.type, Sync)
    flags += _doubts(log, estimates.rounds, is_synchronous=is_synchronous)
    if scenario is not None:
        flags += _differences(scenario, estimates, log)
    if assumptions.shares_links:
        flags.append(
            "The scenario's links are shared: the rates in a log include the effect of sharing, so the scenario's links"
            " are kept."
        )
    to_bundle(estimates, bundle.name, str(path), horizon_s(log)).write(bundle, overwrite=overwrite)
    if scenario is None:
        flags.append(
            "Without a scenario to simulate (--scenario), nothing is compared or predicted."
        )
        return Calibration(log, estimates, None, {}, [], None, watts, tuple(flags))
    data = calibrated(scenario, bundle, estimates)
    simulated = simulated_log(load_scenario_dict(data, bundle.parent))
    data = {**data, "name": f"{data['name']}-calibrated", "stop": stop}
    data["devices"]["energy"] |= {name: value for name, value in watts.items() if name != "idle_w"}
    if watts and data["devices"]["energy"]["classes"]:
        flags.append("The power readings do not replace the power of devices.energy.classes.")
    if len(simulated) < _FEW * len(log):
        flags.append(
            f"The simulation has only {format_count(len(simulated))} dispatches, but the log has"
            f" {format_count(len(log))}. Check devices.availability and stop: the scenario's clients may be offline"
            " more often than the logged ones."
        )
    distributions = {
        name: (quantity(log).dropna().tolist(), quantity(simulated).dropna().tolist())
        for name, quantity in _QUANTITIES.items()
    }
    distributions = {name: pair for name, pair in distributions.items() if all(pair)}
    predictions: list[Prediction] = []
    lateness: Lateness | None = None
    if fitted := fitting_rounds(log):
        rounds = sorted(log["round"].dropna().unique())[:fitted]
        first = estimate(log, clients, assumptions, rounds[-1])
        seen = int(first.step_s.seen.sum())
        if fitted < _FEW_ROUNDS or seen < _MOST_CLIENTS * len(clients):
            flags.append(
                f"The cross-validation is fitted to only {format_counted(fitted, 'round')} with completed dispatches of"
                f" {format_count(seen)} of {format_counted(len(clients), 'client')}: its bands are wide and"
                " assume that other clients are like these."
            )
        of_rounds = log.dropna(subset=["round"]).groupby("round")["client"]
        script = [sorted(map(int, clients.unique())) for _, clients in of_rounds]

        def scenario_of(folder: Path, drawn: Estimates, seed: int) -> LoadedScenario:
            replicate = calibrated(scenario, folder, drawn)
            replicate["seed"] = seed
            if issubclass(scenario.scenario.server.schedule.type, Sync):
                cohort = replicate["server"]["selection"].get("cohort")
                scripted = {"name": "scripted", "rounds": script, "cohort": cohort}
                replicate["server"]["selection"] = scripted
                # The duration of the log's last round is unknown, because no round follows it.
                replicate["stop"] = {"rounds": len(script)}
            return load_scenario_dict(replicate, bundle.parent)

        predictions, lateness, missing = predict(log, first, scenario_of)
        if missing > _MISSING and issubclass(scenario.scenario.server.schedule.type, Sync):
            flags.append(
                f"The simulations of the cross-validation lack {format_share(missing)} of the log's dispatches, because"
                " their clients are still busy or offline: predictions of rounds and of late clients may be off."
            )
    else:
        rounds_lack = "no column round" if log["round"].isna().all() else "fewer than 5 rounds"
        flags.append(f"The log has {rounds_lack}, so there is no cross-validation.")
    return Calibration(
        log, estimates, data, distributions, predictions, lateness, watts, tuple(flags)
    )


def _doubts(log: pd.DataFrame, rounds: Rounds, *, is_synchronous: bool) -> Iterator[str]:
    """Flags of overlapping rounds of one run, a pause of the server, and a trend of the step times."""
    if is_synchronous and rounds.overlaps and log["round"].dropna().is_monotonic_increasing:
        yield (
            f"In {format_counted(rounds.overlaps, 'round')}, the next one begins before the last update arrives, so"
            " they do not show the time between rounds. Give late updates the outcome late, or an asynchronous"
            " server its scenario."
        )
    if rounds.pause is not None:
        number, pause_s = rounds.pause
        yield (
            f"{format_duration(pause_s)} pass after round {number:.0f}, far more than after the others: this is not"
            " part of the time between rounds, but of the log's total time."
        )
    total_s = log["end_s"] - log["start_s"]
    step_s = log["compute_s"].fillna(total_s if log["compute_s"].isna().all() else np.nan)
    step_s /= log["steps"].fillna(1)
    seen = log.loc[step_s > 0, ["client", "start_s"]].assign(y=np.log(step_s[step_s > 0]))
    centered = seen[["start_s", "y"]] - seen.groupby("client")[["start_s", "y"]].transform("mean")
    x, y = centered["start_s"], centered["y"]
    freedom, square = len(seen) - seen["client"].nunique() - 1, float((x**2).sum())
    if freedom < 1 or not square:
        return
    slope = float((x * y).sum()) / square
    error = math.sqrt(float(((y - slope * x) ** 2).sum()) / freedom / square)
    change = math.expm1(slope * float(seen.groupby("client")["start_s"].agg(np.ptp).max()))
    if abs(change) >= _LEAST_CHANGE and abs(slope) > _LEAST_Z * error:
        yield (
            f"Step times {'grow' if change > 0 else 'shrink'} by {format_share(abs(change))} from the first to the"
            " last dispatch of a client, as those of devices that throttle their clock: the estimates are means, and"
            " a simulation has no such trend."
        )


def _differences(
    scenario: LoadedScenario, estimates: Estimates, log: pd.DataFrame
) -> Iterator[str]:
    """Flags if the log's server takes a different time between rounds, or its transfers have other sizes."""
    server, rounds = scenario.scenario.server, estimates.rounds
    if between_rounds(scenario, estimates):
        pause_s = server.schedule.params.pause
        planned_s = max(pause_s, server.aggregation_time)
        if abs(rounds.gap_s - planned_s) > max(_SAME * planned_s, _ROUNDING_S):
            low_s, high_s = np.quantile(rounds.gaps_s, [0.05, 0.95])
            between = format_interval(low_s, high_s, format_duration)
            fix = "The simulation takes them as server.aggregation_time."
            yield (
                f"{format_duration(rounds.gap_s)} pass between the last arrival of a round and the next round (90% of"
                f" the rounds: {between}), {format_duration(planned_s)} in the scenario."
                f" {'Correct server.schedule.pause.' if pause_s > rounds.gap_s else fix}"
            )
    unlike = []
    for way in ("down", "up"):
        logged = float(log[f"bytes_{way}"].median())
        planned = getattr(estimates.assumptions, f"bytes_{way}")
        if logged > 0 and abs(logged - planned) > _SAME_SIZE * max(logged, planned):
            unlike.append(f"{format_bytes(logged)} {way}, {format_bytes(planned)} in the scenario")
    if unlike:
        yield (
            f"The log's transfers have {format_names(unlike)}, so simulated transfers and rounds are not those of the"
            " log. Correct the model of the scenario, task.size or server.compression."
        )
