"""The calibration of a log: estimates, bundle, scenario, comparison and cross-validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsim.calibration.doubts import doubts
from fedsim.calibration.estimates import Assumptions, Estimates, estimate, horizon_s, to_bundle
from fedsim.calibration.flower import as_timing
from fedsim.calibration.log import numbered, read_log
from fedsim.calibration.naming import paired
from fedsim.calibration.power import read_power
from fedsim.calibration.prediction import (
    Lateness,
    Prediction,
    fitting_rounds,
    predict,
    simulated_log,
)
from fedsim.calibration.transfers import section
from fedsim.composition.build import build
from fedsim.devices.availability.trace import Always
from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.network.columns import LinkParams
from fedsim.network.shared import SharedNetwork
from fedsim.network.transport import Transport
from fedsim.network.transports.fluid import Fluid
from fedsim.parts.parameters import Parameters
from fedsim.scenario.loading import LoadedScenario, load_scenario_dict
from fedsim.scheduling.schedules.sync import Sync
from fedsim.tasks.kinds.flower import FlowerTask
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
    read = read_log(path)
    log, clients = read.dispatches, read.clients()
    flags: list[str] = []
    watts, power_flags = read_power(power, read) if power else ({}, [])
    if scenario is not None and issubclass(scenario.scenario.task.type, FlowerTask):
        scenario, log, app_flags = as_timing(scenario, log)
        flags += app_flags
    assumptions = Assumptions(Fluid(Parameters()))
    shares_links = False
    stop: dict[str, Any] = {}
    if scenario is not None:
        stop = scenario.resolved()["stop"]
        scenario = _for_the_log(scenario, horizon_s(log))
        facts = known(scenario, clients, read.named_by, str(path))
        clients, assumptions, shares_links = facts.clients, facts.assumptions, facts.shares_links
        flags += facts.flags
    # From here on clients are numbers: a simulated log has no names.
    log = numbered(log, clients)
    estimates = estimate(log, clients, assumptions)
    flags += [*estimates.flags, *read.flags, *power_flags]
    is_synchronous = scenario is None or issubclass(scenario.scenario.server.schedule.type, Sync)
    flags += doubts(log, estimates.rounds, is_synchronous=is_synchronous)
    if scenario is not None:
        flags += _server_flags(scenario, estimates)
        flags += _size_flags(log, assumptions)
    if shares_links:
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
    data = calibrated(scenario, bundle, estimates, shares_links)
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
        script = _script(log)

        def scenario_of(folder: Path, drawn: Estimates, seed: int) -> LoadedScenario:
            replicate = calibrated(scenario, folder, drawn, shares_links)
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


def _for_the_log(scenario: LoadedScenario, lasts_s: float) -> LoadedScenario:
    """A scenario that ends with its log instead of at a target, because time alone is simulated.

    The clock of a log begins with its first dispatch, that of a scenario perhaps while all clients are offline.
    """
    if not scenario.scenario.stop.target:
        return scenario
    first_s = simulated_log(scenario.changed(["stop={dispatches: 1}"]))["start_s"].min()
    end_s = lasts_s + (0.0 if math.isnan(first_s) else first_s)
    return scenario.changed(["stop.target={}", f"stop.simulated_time={end_s}s"])


@dataclass(frozen=True)
class Known:
    """Facts from the scenario of a log.

    Attributes:
        clients: the log's names of the scenario's clients, in its order.
        assumptions: facts that the log may lack.
        shares_links: whether the clients share links.
        flags: statements about guesses.
    """

    clients: list[str]
    assumptions: Assumptions
    shares_links: bool
    flags: list[str]


def known(scenario: LoadedScenario, clients: list[str], named_by: str, where: str) -> Known:
    """What the scenario of a log says about the log's clients.

    Args:
        scenario: the scenario of the logged run.
        clients: the names of the clients in the log, in order.
        named_by: the column of the log that names them.
        where: the log, for messages.
    """
    world = build(scenario, timing_only=True)
    population, network = world.population, world.population.network
    count = population.clients
    if len(clients) > count:
        raise UserError(
            f"the log has {format_counted(len(clients), 'client')}, the scenario {count}",
            where=where,
            hint="give the scenario of the run that made the log",
        )
    clients, flags = paired(clients, named_by, count, world.names(), where)
    down, up = world.traffic_bytes()
    kinds = world.devices.names.get("kind")
    links = scenario.scenario.devices.network.params
    # A network of the user's may have no transport: its links carry the bytes at their rates.
    transport: Transport = (
        links.transport.create() if isinstance(links, LinkParams) else Fluid(Parameters())
    )
    latency_s = network.latencies_ns(Direction.DOWN) / 1e9
    transfers_s = np.array(
        [
            network.nominal_wire_s(client, Direction.DOWN, down)
            + network.nominal_wire_s(client, Direction.UP, up)
            for client in range(count)
        ]
    )
    assumptions = Assumptions(
        transport,
        latency_s,
        transfers_s + 2 * latency_s,
        float(down),
        float(up),
        world.devices.work.steps.astype(float),
        None if kinds is None else kinds.to_pylist(),
        world.devices.memory_in_trace(),
        issubclass(scenario.scenario.devices.availability.type, Always),
    )
    return Known(clients, assumptions, isinstance(network, SharedNetwork), flags)


def calibrated(
    scenario: LoadedScenario, bundle: Path, estimates: Estimates, shares_links: bool
) -> dict[str, Any]:
    """The scenario with its devices replaced by the estimates, as plain data."""
    data: dict[str, Any] = scenario.resolved()
    devices = data["devices"]
    # The bundle has one device per client; other traces keep their pairing.
    trace = {"trace": str(bundle.resolve()), "assign": "in_order"}
    devices["compute"] = {
        "name": "trace",
        **trace,
        "jitter": {"name": "lognormal", "cv": estimates.step_s.cv},
    }
    if estimates.online and issubclass(scenario.scenario.devices.availability.type, Always):
        devices["availability"] |= {"name": "trace", **trace}
    if estimates.knows_links and not shares_links:
        devices["network"] = {
            "name": "static",
            **trace,
            "latency": "bundle",
            "down": "bundle",
            "up": "bundle",
            "variation": "bundle" if any(rate.cv for rate in estimates.rates_bps) else 0.0,
            "transport": section(estimates.transport),
            "loss": devices["network"].get("loss", 0.0),
        }
    if _between_rounds(scenario, estimates):
        data["server"]["aggregation_time"] = estimates.rounds.gap_s
    return data


def _between_rounds(scenario: LoadedScenario, estimates: Estimates) -> bool:
    """Whether the log shows how long the server of a synchronous scenario takes between rounds."""
    return issubclass(scenario.scenario.server.schedule.type, Sync) and not math.isnan(
        estimates.rounds.gap_s
    )


def _server_flags(scenario: LoadedScenario, estimates: Estimates) -> list[str]:
    """A flag if the log's server takes a different time between rounds from the scenario's."""
    server = scenario.scenario.server
    if not _between_rounds(scenario, estimates):
        return []
    rounds, pause_s = estimates.rounds, server.schedule.params.pause
    planned_s = max(pause_s, server.aggregation_time)
    if abs(rounds.gap_s - planned_s) <= max(_SAME * planned_s, _ROUNDING_S):
        return []
    low_s, high_s = np.quantile(rounds.gaps_s, [0.05, 0.95])
    between = format_interval(low_s, high_s, format_duration)
    fact = (
        f"{format_duration(rounds.gap_s)} pass between the last arrival of a round and the next round (90% of the"
        f" rounds: {between}), {format_duration(planned_s)} in the scenario."
    )
    if pause_s > rounds.gap_s:
        return [f"{fact} Correct server.schedule.pause."]
    return [f"{fact} The simulation takes them as server.aggregation_time."]


def _size_flags(log: pd.DataFrame, assumptions: Assumptions) -> list[str]:
    """A flag if the log's transfers have sizes other than the scenario's."""
    pairs = [
        (way, float(log[f"bytes_{way}"].median()), float(getattr(assumptions, f"bytes_{way}")))
        for way in ("down", "up")
    ]
    unlike = [
        f"{format_bytes(logged)} {way}, {format_bytes(planned)} in the scenario"
        for way, logged, planned in pairs
        if logged > 0 and abs(logged - planned) > _SAME_SIZE * max(logged, planned)
    ]
    if not unlike:
        return []
    return [
        f"The log's transfers have {format_names(unlike)}, so simulated transfers and rounds are not those of the log."
        " Correct the model of the scenario, task.size or server.compression."
    ]


def _script(log: pd.DataFrame) -> list[list[int]]:
    """The clients of each round of the log."""
    rounds = log.dropna(subset=["round"]).groupby("round")["client"]
    return [sorted(map(int, clients.unique())) for _, clients in rounds]
