"""Edge servers and a sample of clients over time: when they were online, their dispatches and their batteries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.analysis.figures.base import (
    Columns,
    Figure,
    columns_of,
    names_of,
    population,
    section,
    thin,
)
from fedsim.devices.battery import Batteries
from fedsim.runs import Run
from fedsim.runs.clients import sampled_clients
from fedsim.scenario.model import Energy
from fedsim.units import NS_PER_S
from fedsim.vocabulary.arrays import Bools, Ints
from fedsim.vocabulary.formatting import format_count
from fedsim.vocabulary.outcomes import LOST_LABELS

MAX_BARS_SHOWN = 10_000
_MAX_STRETCHES, _MAX_ROUNDS, _LEAST_ROWS = 5000, 2000, 12

_COLUMNS: Columns = (
    ("client_id", "client", "count"),
    ("dispatch_id", "dispatch", "count"),
    ("version", "from version", "count"),
    ("dispatched_s", "dispatched", "time"),
    ("downloaded_s", "downloaded", "time"),
    ("computed_s", "computed", "time"),
    ("arrived_s", "arrived", "time"),
    ("ended_s", "ended", "time"),
    ("waited_s", "waited until", "time"),
    ("steps_done", "steps", "count"),
    ("outcome", "outcome", "text"),
)
_NUMBERS = ("client_id", "dispatch_id")
_CHARGE: Columns = (
    ("charge_before", "charge before", "share"),
    ("charge_after", "charge after", "share"),
)


def timeline(run: Run) -> Figure:
    """The dispatches of a sample of clients, phase by phase, and when these clients were online.

    Edge servers are rows, too, with their dispatches by the cloud; their numbers are -1, -2 and so on.
    """
    table = run.dispatches
    path = _path(run)
    most = MAX_BARS_SHOWN - (len(run.edge_dispatches) if run.has_edges else 0)
    clients = _shown_clients(table["client_id"].to_numpy(), path["client_id"].to_numpy(), most)
    dispatched = int(np.count_nonzero(np.bincount(table["client_id"])))
    rows = _rows(table, run.phases, clients)
    batteries = _batteries(run)
    if batteries is not None:
        # Other messages of a Flower app use charge, too.
        of_clients = run.work[run.work["client_id"].isin(clients)]
        rows = rows.join(_charges(of_clients, *batteries))
    edges, chosen = np.empty(0, np.int64), clients
    if run.has_edges:
        of_edges = run.edge_dispatches
        edges = np.sort(sampled_clients(of_edges["client_id"].to_numpy()))
        of_edges = _rows(of_edges, run.edge_phases, edges)
        of_edges = of_edges.assign(**{key: -1 - of_edges[key] for key in _NUMBERS})
        rows = pd.concat([of_edges, rows]).sort_values("dispatched_s", kind="stable")
        chosen = np.append(-1 - edges, clients)
    row_of_client = pd.Series(np.arange(len(chosen)), chosen)
    path = _in_rows(path, row_of_client)
    path_s = np.bincount(path["row"], path["to_s"] - path["from_s"], len(chosen))
    rows = _in_rows(rows, row_of_client)
    people = {**_people(rows, len(chosen)), "path_s": path_s.round(3)}
    # Of few clients with many dispatches each, every second or third is shown, and so on: the whole run of all rows.
    every = math.ceil(len(rows) / MAX_BARS_SHOWN)
    rows = rows[rows.groupby("client_id").cumcount() % every == 0]
    waiting_s = rows["waiting_s"].to_numpy()
    waited = np.where(waiting_s > 0, rows["arrived_s"].to_numpy() + waiting_s, np.nan)
    battery = None
    # The charge between dispatches that are left out is not known.
    if batteries is not None and every == 1:
        energy, of_client = batteries
        # Shares of the capacity; NaN without a battery.
        shares = [
            (each.floor, each.recharge_w / each.capacity_j)
            if np.isfinite(each.capacity_j)
            else (np.nan, np.nan)
            for each in energy.batteries
        ]
        by_row = np.where(chosen < 0, np.nan, np.array(shares)[of_client[chosen]].T)
        battery = dict(zip(("floor", "per_s"), by_row, strict=True))
    finding = "No client was ever dispatched."
    if len(clients):
        sample = f"{format_count(len(clients))} of the" if len(clients) < dispatched else "All"
        finding = f"{sample} {format_count(dispatched)} clients that were dispatched"
        if dispatched == 1:
            finding = "One client was dispatched"
        elif len(clients) < dispatched:
            finding += ", evenly spaced from the most to the least often dispatched"
        finding += "."
        if every > 1:
            finding += f" Of every {format_count(every)} dispatches of a row, one is shown."
        finding += " The first rows are edge servers." if len(edges) else ""
    rounds, until = run.aggregations["time_s"].to_numpy(), run.simulated_s
    columns = _COLUMNS if batteries is None else (*_COLUMNS, *_CHARGE)
    shown = rows.assign(waited_s=waited, outcome=rows["outcome"].astype(str))
    names: list[str] | None = names_of(run, clients)
    if len(edges):
        named = [f"edge {edge}" for edge in edges]
        names = named + (names or [f"client {client}" for client in clients])
        shown = shown.assign(
            **{key: shown[key].where(shown[key] >= 0, -1 - shown[key]) for key in _NUMBERS}
        )
    if names is not None:
        columns = (columns[0], ("name", "name", "text"), *columns[1:])
        shown = shown.assign(name=np.array(names)[shown["row"]])
    shown = shown.round({key: 3 for key, _, _ in columns if key.endswith("_s") or "charge" in key})
    return Figure(
        "timeline",
        finding,
        columns_of(shown, columns),
        {
            "order": rows["row"].to_numpy(),
            "clients": chosen,
            "names": names,
            "kinds": _kinds(run, chosen),
            "people": people,
            "path": _stretches(path, 3),
            "presence": _presence(run, row_of_client, until),
            "pauses": _pauses(run, rows["dispatch_id"].to_numpy()),
            "rounds": np.round(rounds[thin(len(rounds), _MAX_ROUNDS)], 3),
            "battery": battery,
            "until_s": until,
            "every": every,
        },
    )


def _path(run: Run) -> pd.DataFrame:
    """The critical path to the last server update, one row per stretch of one client; edge servers are -1, -2, ..."""
    if run.critical is None or not len(run.critical):
        return pd.DataFrame({"client_id": np.empty(0, np.int64), "from_s": [], "to_s": []})
    client = run.critical["client_id"]
    grouped = run.critical.groupby((client != client.shift()).cumsum())
    path = grouped.agg({"client_id": "first", "from_s": "first", "to_s": "last"})
    path = path[path["client_id"] >= 0]
    return path.assign(client_id=-1 - path["client_id"]) if run.has_edges else path


def _shown_clients(client_ids: Ints, on_path: Ints, most: int) -> Ints:
    """The sampled clients; if they have more than ``most`` dispatches, every second or fourth and so on, and the one
    that is most often on the critical path: the whole run of few clients instead of the beginning of many."""
    sampled = sampled_clients(client_ids)
    if not len(sampled):
        return sampled
    counts, step = np.bincount(client_ids), 1
    while counts[sampled[::step]].sum() > most and len(sampled) >= 2 * step * _LEAST_ROWS:
        step *= 2
    often = int(np.bincount(on_path[on_path >= 0], minlength=len(counts)).argmax())
    shown: Bools = (np.arange(len(sampled)) % step == 0) | (sampled == often)
    return sampled[shown]


def _rows(table: pd.DataFrame, phases: pd.DataFrame, clients: Ints) -> pd.DataFrame:
    table = table.assign(waiting_s=phases["waiting_s"], compute_s=phases["compute_s"])
    return table[table["client_id"].isin(clients)]


def _kinds(run: Run, chosen: Ints) -> list[str] | None:
    """Kind of each client's device; None if the trace names fewer than two."""
    if not run.has_clients:
        return None
    kinds = run.clients["kind"].reindex(chosen).fillna("unknown kind")
    kinds[chosen < 0] = "edge server"
    return list(kinds) if kinds.nunique() > 1 else None


def _people(rows: pd.DataFrame, count: int) -> dict[str, Any]:
    """Values per client for sorting the rows: updates, lost dispatches, late ones, and seconds per local step."""
    done, outcome = rows["computed_s"].notna(), rows["outcome"]
    counted = pd.DataFrame(
        {
            "updates": outcome == "aggregated",
            "lost": outcome.isin(LOST_LABELS),
            "late": outcome == "late",
            "steps": rows["steps_done"].where(done, 0),
            "seconds": rows["compute_s"].where(done, 0.0),
        }
    )
    people = counted.groupby(rows["row"]).sum().reindex(range(count), fill_value=0)
    step_s = people["seconds"] / people["steps"].where(people["steps"] > 0)
    return {
        **{name: people[name].to_numpy() for name in ("updates", "lost", "late")},
        "step_s": [float(f"{value:.4g}") for value in step_s],
    }


def _in_rows(table: pd.DataFrame, row_of_client: pd.Series[int]) -> pd.DataFrame:
    """The rows of a table whose client is shown, with its ``row``."""
    table = table[table["client_id"].isin(row_of_client.index)]
    return table.assign(row=row_of_client[table["client_id"]].to_numpy())


def _stretches(table: pd.DataFrame, decimals: int) -> dict[str, Any]:
    """Row, start and end of stretches of time."""
    return {name: table[name].to_numpy().round(decimals) for name in ("row", "from_s", "to_s")}


def _presence(run: Run, row_of_client: pd.Series[int], until_s: float) -> dict[str, Any] | None:
    """Online intervals, by row; short gaps are closed if there are too many intervals."""
    if run.presence is None:
        return None
    table = _in_rows(run.presence[run.presence["from_s"] < until_s], row_of_client)
    if run.edges is not None:
        up = -1 - run.edges["client_id"][run.edges["online_fraction"] == 1]
        always = pd.DataFrame({"client_id": np.sort(up), "from_s": 0.0, "to_s": until_s})
        table = pd.concat([table, _in_rows(always, row_of_client)], ignore_index=True)
    gap_s = 0.0
    while len(table) > _MAX_STRETCHES:
        gap_s = 2 * gap_s or until_s / 5000
        since_s = table["from_s"] - table["to_s"].shift()
        number = ((table["row"] != table["row"].shift()) | (since_s > gap_s)).cumsum()
        table = table.groupby(number).agg({"row": "first", "from_s": "first", "to_s": "last"})
    return {**_stretches(table, 1), "gap_s": gap_s}


def _pauses(run: Run, dispatch_ids: Ints) -> dict[str, Any] | None:
    """The pauses of dispatches, by row; only the longest if there are too many."""
    if run.pauses is None:
        return None
    row = pd.Index(dispatch_ids).get_indexer(pd.Index(run.pauses["dispatch_id"]))
    table = run.pauses.assign(row=row, length_s=run.pauses["to_s"] - run.pauses["from_s"])
    table = table[table["row"] >= 0]
    longest = table.nlargest(_MAX_STRETCHES, "length_s")
    shortest_s = float(longest["length_s"].min()) if len(longest) < len(table) else 0.0
    return {**_stretches(longest.sort_index(), 3), "shortest_s": shortest_s}


def _batteries(run: Run) -> tuple[Energy, npt.NDArray[np.uint8]] | None:
    """The scenario's section with batteries, and the class of each client's device, (clients,); None without batteries,
    or if they differ and the kinds of the devices are not known yet."""
    energy = Energy.model_validate(section(run, "devices", "energy"))
    if not energy.has_batteries:
        return None
    if not run.has_clients:
        return (
            None
            if len(set(energy.batteries)) > 1
            else (energy, np.zeros(population(run), np.uint8))
        )
    kinds = pd.Index(list(energy.classes)).get_indexer(pd.Index(run.clients["kind"]))
    return energy, (kinds + 1).astype(np.uint8)


def _charges(rows: pd.DataFrame, energy: Energy, of_client: npt.NDArray[np.uint8]) -> pd.DataFrame:
    """Charge as a share of the capacity before and after each dispatch, replayed from the energy of the dispatches; NaN
    without a battery."""
    batteries = Batteries(energy, of_client)
    clients = rows["client_id"].to_numpy()
    begin_ns, end_ns = (
        np.rint(rows[f"{name}_s"].to_numpy() * NS_PER_S).astype(np.int64)
        for name in ("dispatched", "ended")
    )
    # A client has one dispatch at a time, so their order is that of their starts.
    charge = batteries.replay(clients, begin_ns, end_ns, rows["energy_j"].to_numpy())
    capacity_j = np.array(batteries.capacity_j)[of_client[clients]]
    with np.errstate(invalid="ignore"):
        shares = {
            "charge_before": charge.before_j / capacity_j,
            "charge_after": charge.after_j / capacity_j,
        }
    return pd.DataFrame(shares, rows.index)
