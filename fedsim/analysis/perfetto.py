"""A run as a Chrome trace: JSON for https://ui.perfetto.dev and chrome://tracing.

Each client has a track with one slice per dispatch, named after its outcome, from the dispatch to the aggregation or
the loss of the update. The slice contains the phases download, compute, upload and waiting; if the client was offline
and did not work, a phase is interrupted by a slice named "paused". The server's tracks hold its model versions, each
from the update that made it to the next, and the critical path to the last one. Counters show clients online, clients
working, and the metrics. Edge servers have tracks as clients have, with the dispatches of the cloud. Simulated time
zero is the trace's time zero.

Format: Trace Event Format (Google, 2016); ``ts`` and ``dur`` are microseconds, written to the nanosecond.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsim.runs import Run
from fedsim.runs.critical import CAUSES
from fedsim.runs.phases import INSTANTS, WORK_PHASES, work_changes
from fedsim.vocabulary.arrays import Floats, Ints

SERVER, CLIENTS, EDGES = 1, 3, 4
"""Process numbers of the tracks; viewers take 2 for the Linux kernel."""
VERSIONS, CRITICAL, FIRST_CLIENT = 2, 3, 10_000_000
"""Track numbers. Viewers treat track 0, and a track with the number of its process, as the process itself, and show
the number after the name. The large numbers of clients' tracks end with the client's number."""
_PHASE_ARGUMENT = {"download": "bytes_down", "compute": "steps_done", "upload": "bytes_up"}
_ARGUMENTS = (
    "dispatch_id",
    "round",
    "version",
    "aggregated_version",
    "staleness",
    "steps_assigned",
    "steps_done",
    "bytes_down",
    "bytes_up",
    "energy_j",
    "cause",
)

Nanoseconds = Ints
Event = dict[str, Any]


def write_perfetto(run: Run, path: Path) -> None:
    """Write the trace of a run to a file."""
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ms",\n"otherData": ')
        file.write(json.dumps({"run": run.name, "seed": str(run.info.get("seed"))}))
        file.write(',\n"traceEvents": [\n')
        events = [_names(run), _dispatches(CLIENTS, run.dispatches, run.phases, _pauses(run))]
        if run.has_edges:
            events.append(_dispatches(EDGES, run.edge_dispatches, run.edge_phases, {}))
        events += [_versions(run), _critical(run), _counters(run)]
        for number, event in enumerate(itertools.chain.from_iterable(events)):
            file.write(",\n" if number else "")
            # Several times as fast as json.dump, which encodes piece by piece.
            file.write(json.dumps(event, separators=(",", ":"), allow_nan=False))
        file.write("\n]}\n")


def _names(run: Run) -> Iterator[Event]:
    def name(kind: str, process: int, track: int, arguments: dict[str, Any]) -> Event:
        return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": arguments}

    yield name("process_name", SERVER, VERSIONS, {"name": "server"})
    yield name("process_name", CLIENTS, FIRST_CLIENT, {"name": "clients"})
    yield name("process_sort_index", SERVER, VERSIONS, {"sort_index": 0})
    yield name("process_sort_index", CLIENTS, FIRST_CLIENT, {"sort_index": 1})
    yield name("thread_name", SERVER, VERSIONS, {"name": "model versions"})
    yield name("thread_name", SERVER, CRITICAL, {"name": "critical path"})
    groups = [(CLIENTS, "client", run.dispatches)]
    if run.has_edges:
        yield name("process_name", EDGES, FIRST_CLIENT, {"name": "edge servers"})
        yield name("process_sort_index", EDGES, FIRST_CLIENT, {"sort_index": 1})
        groups.append((EDGES, "edge server", run.edge_dispatches))
    for process, noun, table in groups:
        for client in np.unique(table["client_id"]).tolist():
            track = FIRST_CLIENT + client
            yield name("thread_name", process, track, {"name": f"{noun} {client}"})
            yield name("thread_sort_index", process, track, {"sort_index": client})


def _dispatches(
    process: int,
    table: pd.DataFrame,
    spent: pd.DataFrame,
    pauses: dict[int, list[tuple[int, int]]],
) -> Iterator[Event]:
    ended = table["ended_s"].to_numpy()
    waited = spent["waiting_s"].to_numpy()
    marks = [table[f"{name}_s"].to_numpy() for name in INSTANTS]
    spans = [
        (name, begin, np.where(np.isnan(end), ended, end))
        for name, begin, end in zip(WORK_PHASES, marks, marks[1:], strict=False)
    ]
    spans.append(("waiting", np.where(waited > 0, marks[3], np.nan), marks[3] + waited))
    whole = _ns(marks[0]).tolist(), _ns(np.fmax(ended, marks[3] + waited)).tolist()
    inner = [(name, _ns(begin).tolist(), _ns(end).tolist()) for name, begin, end in spans]
    tracks = (FIRST_CLIENT + table["client_id"].to_numpy()).tolist()
    outcomes = table["outcome"].astype(str).tolist()
    ids = table["dispatch_id"].tolist()
    for row, arguments in enumerate(_rows(table, _ARGUMENTS)):
        track = process, tracks[row]
        # A slice comes before the slices inside it, so that viewers nest those that begin together.
        yield _slice("dispatch", outcomes[row], track, (whole[0][row], whole[1][row]), arguments)
        for name, begins, ends in inner:
            if begins[row] >= 0:
                key = _PHASE_ARGUMENT.get(name)
                argument = {key: arguments[key]} if key is not None else {}
                since = begins[row]
                for pause in pauses.get(ids[row], ()):
                    if begins[row] <= pause[0] and pause[1] <= ends[row]:
                        if since < pause[0]:
                            yield _slice("phase", name, track, (since, pause[0]), argument)
                        yield _slice("phase", "paused", track, pause, {})
                        since = pause[1]
                if since < ends[row] or since == begins[row]:
                    yield _slice("phase", name, track, (since, ends[row]), argument)


def _pauses(run: Run) -> dict[int, list[tuple[int, int]]]:
    """The pauses of each dispatch that has any, as spans of nanoseconds."""
    pauses: dict[int, list[tuple[int, int]]] = {}
    if run.pauses is not None:
        spans = (_ns(run.pauses[name].to_numpy()).tolist() for name in ("from_s", "to_s"))
        for dispatch_id, begin, end in zip(run.pauses["dispatch_id"].tolist(), *spans, strict=True):
            pauses.setdefault(dispatch_id, []).append((begin, end))
    return pauses


def _versions(run: Run) -> Iterator[Event]:
    table = run.aggregations
    times = _ns(table["time_s"].to_numpy()).tolist()
    until = max(round(run.simulated_s * 1e9), *times, 0)
    facts = _rows(table, ("round", "contributors", "staleness_mean", "staleness_max"))
    track = SERVER, VERSIONS
    yield _slice("version", "version 0", track, (0, times[0] if times else until), {})
    for version, arguments, begin, end in zip(
        table["version"].tolist(), facts, times, [*times, until][1:], strict=True
    ):
        yield _slice("version", f"version {version}", track, (begin, end), arguments)


def _critical(run: Run) -> Iterator[Event]:
    """What the server waited for, as slices without gaps."""
    if run.critical is None:
        return
    table = run.critical
    spans = zip(*(_ns(table[name].to_numpy()).tolist() for name in ("from_s", "to_s")), strict=True)
    columns = (table[name].tolist() for name in ("cause", "dispatch_id", "client_id"))
    for span, cause, dispatch_id, client in zip(spans, *columns, strict=True):
        whose = "edge server" if run.has_edges else "client"
        arguments = {"dispatch_id": dispatch_id, whose: client} if dispatch_id >= 0 else {}
        yield _slice("critical", CAUSES[cause], (SERVER, CRITICAL), span, arguments)


def _counters(run: Run) -> Iterator[Event]:
    def counter(process: int, name: str, at: int, value: float) -> Event:
        # Viewers show the name of the counter and that of the value together.
        return {"ph": "C", "name": name, "pid": process, "ts": at / 1000, "args": {"": value}}

    begun, ended = map(_ns, work_changes(run.work, run.pauses))
    times, position = np.unique(np.concatenate([begun, ended]), return_inverse=True)
    changes = np.bincount(position, np.repeat([1.0, -1.0], len(begun)), minlength=len(times))
    for at, value in zip(times.tolist(), np.cumsum(changes).tolist(), strict=True):
        yield counter(CLIENTS, "clients working", at, int(value))
    if run.online is not None:
        online = run.online[run.online["online"].diff() != 0]
        seen_at = _ns(online["time_s"].to_numpy()).tolist()
        for at, value in zip(seen_at, online["online"].tolist(), strict=True):
            yield counter(CLIENTS, "clients online", at, value)
    metrics = run.metrics
    measured_at = _ns(metrics["time_s"].to_numpy()).tolist()
    for name in metrics.columns[3:]:
        # A viewer writes 0.95 as 950m.
        metric = run.metric_definition(name)
        percent = metric.unit == "share"
        label = f"{metric.label} (%)" if percent else metric.label
        for at, value in zip(measured_at, metrics[name].tolist(), strict=True):
            if math.isfinite(value):
                yield counter(SERVER, label, at, 100.0 * value if percent else value)


def _slice(
    kind: str, name: str, track: tuple[int, int], span: tuple[int, int], arguments: dict[str, Any]
) -> Event:
    """A slice over nanoseconds ``span`` of a track (process, number)."""
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "pid": track[0],
        "tid": track[1],
        "ts": span[0] / 1000,
        "dur": (span[1] - span[0]) / 1000,
        "args": arguments,
    }


def _rows(table: pd.DataFrame, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The columns of each row; absent values, which JSON cannot hold, are left out."""
    values = [table[name].astype(object).where(table[name].notna(), None) for name in columns]
    for row in zip(*(column.tolist() for column in values), strict=True):
        yield {name: value for name, value in zip(columns, row, strict=True) if value is not None}


def _ns(seconds: Floats) -> Nanoseconds:
    """Whole nanoseconds; -1 for absent ones."""
    return np.round(np.nan_to_num(seconds * 1e9, nan=-1.0)).astype(np.int64)
