"""A run as a Chrome trace: the JSON that https://ui.perfetto.dev and chrome://tracing open.

One track a client holds slices for download, compute, upload and waiting (from the arrival of an update to its
aggregation) and an instant for each outcome; the server's track holds its updates. Counters show clients online,
clients at work, and the metrics. Simulated time zero is the trace's time zero.

Format: Trace Event Format (Google, 2016); ``ts`` and ``dur`` are microseconds, written to the nanosecond.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.runs import Run
from fedsim.runs.phases import phases

SERVER, CLIENTS = 1, 2
"""Process numbers of the tracks."""
_PHASES = ("download", "compute", "upload")
_MARKS = ("dispatched_s", "downloaded_s", "computed_s", "arrived_s")
_ARGUMENTS = ("dispatch_id", "version", "steps_assigned", "steps_done", "bytes_down", "bytes_up")

Nanoseconds = npt.NDArray[np.int64]
Event = dict[str, Any]


def write_perfetto(run: Run, path: Path) -> None:
    """Write the trace of a run.

    Args:
        run: the run.
        path: the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ms",\n"otherData": ')
        file.write(json.dumps({"run": run.name, "seed": str(run.info.get("seed"))}))
        file.write(',\n"traceEvents": [\n')
        for number, event in enumerate(_events(run)):
            file.write(",\n" if number else "")
            file.write(_text(event))
        file.write("\n]}\n")


def _events(run: Run) -> Iterator[Event]:
    yield from _names(run)
    yield from _slices(run)
    yield from _updates(run)
    yield from _counters(run)


def _names(run: Run) -> Iterator[Event]:
    def name(kind: str, process: int, track: int, arguments: dict[str, Any]) -> Event:
        return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": arguments}

    yield name("process_name", SERVER, 0, {"name": "server"})
    yield name("process_name", CLIENTS, 0, {"name": "clients"})
    yield name("process_sort_index", SERVER, 0, {"sort_index": 0})
    yield name("process_sort_index", CLIENTS, 0, {"sort_index": 1})
    yield name("thread_name", SERVER, 1, {"name": "updates"})
    for client in np.unique(run.dispatches["client_id"]).tolist():
        yield name("thread_name", CLIENTS, client + 1, {"name": f"client {client}"})
        yield name("thread_sort_index", CLIENTS, client + 1, {"sort_index": client})


def _slices(run: Run) -> Iterator[Event]:
    table = run.dispatches
    ended = table["ended_s"].to_numpy()
    marks = [table[name].to_numpy() for name in _MARKS]
    # Track 0 is no good: viewers take it for the process itself.
    tracks = (table["client_id"].to_numpy() + 1).tolist()
    arguments = [
        dict(zip(_ARGUMENTS, row, strict=True))
        for row in zip(*(table[name].tolist() for name in _ARGUMENTS), strict=True)
    ]
    spans = [
        (name, begin, np.where(np.isnan(end), ended, end))
        for name, (begin, end) in zip(_PHASES, itertools.pairwise(marks), strict=True)
    ]
    waited = phases(table, run.aggregations, run.simulated_s).waiting_s
    spans.append(("waiting", np.where(waited > 0, marks[3], np.nan), marks[3] + waited))
    for name, begin, end in spans:
        rows = np.flatnonzero(~np.isnan(begin))
        starts, ends = _ns(begin[rows]), _ns(end[rows])
        for row, start, finish in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
            yield {
                "ph": "X",
                "name": name,
                "cat": "dispatch",
                "pid": CLIENTS,
                "tid": tracks[row],
                "ts": start,
                "dur": finish - start,
                "args": arguments[row],
            }
    outcomes = table["outcome"].astype(str).tolist()
    for row, at in enumerate(_ns(ended).tolist()):
        yield {
            "ph": "i",
            "name": outcomes[row],
            "cat": "outcome",
            "pid": CLIENTS,
            "tid": tracks[row],
            "ts": at,
            "s": "t",
            "args": {"dispatch_id": arguments[row]["dispatch_id"]},
        }


def _updates(run: Run) -> Iterator[Event]:
    table = run.aggregations
    rows = zip(
        _ns(table["time_s"].to_numpy()).tolist(),
        table["version"].tolist(),
        table["round"].tolist(),
        table["contributors"].tolist(),
        strict=True,
    )
    for at, version, round_, contributors in rows:
        yield {
            "ph": "i",
            "name": f"version {version}",
            "cat": "update",
            "pid": SERVER,
            "tid": 1,
            "ts": at,
            "s": "t",
            "args": {"round": round_, "contributors": contributors},
        }


def _counters(run: Run) -> Iterator[Event]:
    def counter(process: int, name: str, at: int, value: float) -> Event:
        return {"ph": "C", "name": name, "pid": process, "ts": at, "args": {"value": value}}

    begun = _ns(run.dispatches["dispatched_s"].to_numpy())
    ended = _ns(run.dispatches["ended_s"].to_numpy())
    times, place = np.unique(np.concatenate([begun, ended]), return_inverse=True)
    changes = np.bincount(place, np.repeat([1.0, -1.0], len(begun)), minlength=len(times))
    for at, value in zip(times.tolist(), np.cumsum(changes).tolist(), strict=True):
        yield counter(CLIENTS, "clients at work", at, int(value))
    if run.online is not None:
        present = zip(
            _ns(run.online["time_s"].to_numpy()).tolist(),
            run.online["online"].tolist(),
            strict=True,
        )
        for at, value in present:
            yield counter(CLIENTS, "clients online", at, value)
    metrics = run.metrics
    measured_at = _ns(metrics["time_s"].to_numpy()).tolist()
    for name in metrics.columns[3:]:
        for at, value in zip(measured_at, metrics[name].tolist(), strict=True):
            if value == value:
                yield counter(SERVER, str(name), at, value)


def _ns(seconds: npt.NDArray[np.float64]) -> Nanoseconds:
    return np.round(seconds * 1e9).astype(np.int64)


def _text(event: Event) -> str:
    """One event; its times go from whole nanoseconds to microseconds with three decimals, which is exact."""
    times = {
        key: f"{event[key] // 1000}.{event[key] % 1000:03d}"
        for key in ("ts", "dur")
        if key in event
    }
    rest = json.dumps({key: value for key, value in event.items() if key not in times})
    return rest[:-1] + "".join(f', "{key}": {value}' for key, value in times.items()) + "}"
