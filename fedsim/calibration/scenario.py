"""The scenario of a log: what it says about the clients, and itself on the devices estimated from the log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fedsim.calibration.estimates import Assumptions, Estimates
from fedsim.calibration.log import rounds_of
from fedsim.calibration.prediction import simulated_log
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
from fedsim.vocabulary.formatting import format_counted, format_duration, format_names

_KINDS = {
    "client_id": "client numbers",
    "client_name": "names in the data set",
    "device_id": "device ids",
}
"""What the names in these columns of a log are."""
_NAMED = 5
"""Number of clients that a message names."""


def known(
    scenario: LoadedScenario, clients: list[str], named_by: str, where: str
) -> tuple[list[str], Assumptions, list[str]]:
    """The names in a log of its scenario's clients, in order, facts about them, and flags of what is guessed.

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
        isinstance(network, SharedNetwork),
    )
    return clients, assumptions, flags


def calibrated(scenario: LoadedScenario, bundle: Path, estimates: Estimates) -> dict[str, Any]:
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
    if estimates.knows_links and not estimates.assumptions.shares_links:
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
    if between_rounds(scenario, estimates):
        data["server"]["aggregation_time"] = estimates.rounds.gap_s
    return data


def between_rounds(scenario: LoadedScenario, estimates: Estimates) -> bool:
    """Whether the log shows how long the server of a synchronous scenario takes between rounds."""
    return issubclass(scenario.scenario.server.schedule.type, Sync) and not math.isnan(
        estimates.rounds.gap_s
    )


def paired(
    clients: list[str], named_by: str, count: int, names: Mapping[str, Any], where: str
) -> tuple[list[str], list[str]]:
    """The name of each of the scenario's clients as the log names it, and a flag if the pairing is a guess.

    The log may name clients by their numbers, their names in the data set, or their devices in the trace. Its column
    decides between them. In the column ``client`` all are possible, so names that would mean different clients are
    refused. If the scenario does not have most of the names, they are paired in order.

    Args:
        clients: the names in the log, in order.
        named_by: the column of the log that names the clients.
        count: number of the scenario's clients.
        names: names that the scenario has, as from :meth:`~fedsim.composition.world.World.names`.
        where: the log, for messages.
    """
    kinds = {"client_id": [str(number) for number in range(count)]}
    for kind, key in (("client_name", "name"), ("device_id", "device")):
        if key in names:
            kinds[kind] = pa.array(names[key]).to_pylist()
    meant = "device_id" if named_by == "device" else named_by
    if meant in ("client_name", "device_id") and meant in kinds:
        kinds = {meant: kinds[meant]}
    number_of = {kind: {name: row for row, name in enumerate(all_)} for kind, all_ in kinds.items()}
    fitting = [kind for kind in kinds if number_of[kind].keys() >= set(clients)]
    # Devices that several clients share do not identify a client.
    identifying = [kind for kind in fitting if len(number_of[kind]) == count]
    if named_by == "client":
        pairings = {tuple(number_of[kind][name] for name in clients) for kind in identifying}
        if len(pairings) > 1:
            meanings = [f"{kind} if they are {_KINDS[kind]}" for kind in identifying]
            raise UserError(
                f"the clients {format_names(clients, _NAMED)} may be"
                f" {' or '.join(_KINDS[kind] for kind in identifying)}, which mean different clients",
                where=where,
                hint=f"rename the column client to {', or to '.join(meanings)}",
            )
    if identifying:
        return kinds[identifying[0]], []
    if fitting:
        raise UserError(
            "device ids do not identify the clients, because several clients of the scenario are on one device",
            where=where,
            hint=f"name the clients by their numbers (0 to {count - 1}) in a column client_id",
        )
    likeliest = max(kinds, key=lambda kind: len(number_of[kind].keys() & set(clients)))
    unknown = [name for name in clients if name not in number_of[likeliest]]
    if len(unknown) < len(clients) / 2:
        kind = _KINDS[likeliest]
        raise UserError(
            f"{format_names(unknown, _NAMED)}: not among the scenario's {kind}, but most clients of the log are",
            where=where,
            hint=f"its {kind} are {format_names(kinds[likeliest], _NAMED)}",
        )
    unseen = [f"unseen-{number}" for number in range(count - len(clients))]
    flag = (
        f"The log's clients have names that the scenario does not ({format_names(unknown, _NAMED)}): they are paired"
        " with its clients 0, 1, ... in the order of their names. Name them by their numbers (column client_id) if"
        " samples or steps differ between clients."
    )
    return clients + unseen, [flag]


def as_timing(
    scenario: LoadedScenario, log: pd.DataFrame
) -> tuple[LoadedScenario | None, pd.DataFrame, list[str]]:
    """A scenario of timing on the devices of a Flower app.

    Args:
        scenario: its device file.
        log: the log of its training messages.

    Returns:
        The scenario (None if the log has no rounds), the log whose steps are those of the scenario, and flags.
    """
    done = log[log["end_s"].notna()]
    steps = done["steps"].dropna()
    flags = []
    if len(steps) and steps.nunique() > 1:
        flags.append(
            f"The messages have {steps.min():.0f} to {steps.max():.0f} units of work, so a local step in the"
            " calibration is the whole work of a message."
        )
        log = log.assign(steps=1.0)
    if log["round"].nunique() < 2:
        flags.append(
            "The Flower app's log has no rounds, and its ServerApp's behavior is unknown: nothing is"
            " simulated, and the scenario's latency is not used."
        )
        return None, log, flags
    deadline_s = rounds_of(log).timeout_s
    if deadline_s is not None:
        flags.append(
            f"Rounds with late replies last {format_duration(deadline_s)}, which counts as the ServerApp's timeout."
        )
    every = scenario.resolved()
    devices = dict(every["devices"])
    # The calibration replaces these step times; the log gives the units of work.
    devices["compute"] = {"name": "values", "step": "1s"}
    sizes = {way: done[f"bytes_{way}"].median() for way in ("down", "up")}
    size = max(sizes.values())
    rounds = log.dropna(subset=["round"]).groupby("round").size()
    task = {"name": "timing", "clients": scenario.scenario.task.params.clients}
    more: dict[str, Any] = {}
    if all(each > 0 for each in sizes.values()):
        task |= {"size": f"{size:.0f}B"}
        more["compression"] = {way: {"factor": sizes[way] / size} for way in ("up", "down")}
    data = {
        "name": every["name"],
        "seed": every["seed"],
        "task": task,
        "training": {"local_steps": int(steps.iloc[0]) if steps.nunique() == 1 else 1},
        "devices": devices,
        "server": {
            "selection": {"name": "uniform", "cohort": int(rounds.median())},
            "schedule": {"name": "sync", "deadline": deadline_s},
            "failure_detection": every["server"]["failure_detection"],
            **more,
        },
        "stop": {"rounds": len(rounds)},
    }
    return load_scenario_dict(data, scenario.folder), log, flags


def until_end_of_log(scenario: LoadedScenario, lasts_s: float) -> LoadedScenario:
    """A scenario that ends with its log instead of at a target, because time alone is simulated.

    The clock of a log begins with its first dispatch, that of a scenario perhaps while all clients are offline.
    """
    if not scenario.scenario.stop.target:
        return scenario
    first_s = simulated_log(scenario.changed(["stop={dispatches: 1}"]))["start_s"].min()
    end_s = lasts_s + (0.0 if math.isnan(first_s) else first_s)
    return scenario.changed(["stop.target={}", f"stop.simulated_time={end_s}s"])
