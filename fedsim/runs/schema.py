"""The tables of a run folder: their columns, types, units and meaning.

Absent times are NaN, absent whole numbers are null. Units and descriptions travel in the files, in the
metadata of each field (``unit``, ``description``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.runs.phases import DISPATCH_PARTS
from fedsim.vocabulary.outcomes import CAUSE_LABELS, OUTCOME_LABELS

LABEL_TYPE = pa.dictionary(pa.int8(), pa.string())
LABELS: Mapping[str, tuple[str, ...]] = {"outcome": OUTCOME_LABELS, "cause": CAUSE_LABELS}
"""The words of each column of labels, in the order of their codes."""


@dataclass(frozen=True)
class Table:
    """One table of the run folder.

    Attributes:
        name: file name without its suffix.
        schema: columns, with ``unit`` and ``description`` in each field's metadata.
        sort_by: columns that order the finished file.
    """

    name: str
    schema: pa.Schema
    sort_by: tuple[str, ...]


def _field(kind: pa.DataType, name: str, description: str, unit: str = "") -> pa.Field:
    return pa.field(name, kind, metadata={"unit": unit, "description": description})


_label, _text = partial(_field, LABEL_TYPE), partial(_field, pa.string())
_whole, _number = partial(_field, pa.int64()), partial(_field, pa.float64())
_seconds = partial(_number, unit="s")


def _table(name: str, description: str, sort_by: tuple[str, ...], *fields: pa.Field) -> Table:
    return Table(name, pa.schema(list(fields), metadata={"description": description}), sort_by)


DISPATCHES = _table(
    "dispatches",
    "One row per dispatch: work handed to one client.",
    ("dispatch_id",),
    _whole("dispatch_id", "number of the dispatch, in order of dispatching"),
    _whole("client_id", "client that worked"),
    _whole("version", "model version it started from", "versions"),
    _whole("round", "round, or version at dispatch if asynchronous", "rounds"),
    _seconds("dispatched_s", "simulated time at which it was handed out"),
    _seconds("downloaded_s", "end of the download; NaN if never"),
    _seconds("computed_s", "end of the local steps; NaN if never"),
    _seconds("arrived_s", "arrival of the update; NaN if never"),
    _whole("steps_assigned", "local steps assigned", "steps"),
    _whole("steps_done", "local steps done by its end", "steps"),
    _label("outcome", f"one of {', '.join(OUTCOME_LABELS)}"),
    _whole("staleness", "versions made between dispatch and arrival", "versions"),
    _whole("aggregated_version", "version it entered; null if none", "versions"),
    _whole("bytes_down", "bytes sent to the client before it ended", "B"),
    _whole("bytes_up", "bytes sent by the client before it ended", "B"),
    _number("energy_j", "energy the device spent on it", "J"),
    _field(pa.int32(), "sequence", "earlier dispatches of this client"),
    _field(pa.int32(), "group", "mark set by the schedule, such as a tier"),
    _seconds("ended_s", "arrival, drop, cut, or end of the run"),
    _seconds("download_s", "time spent on the download, without pauses"),
    _seconds(
        "compute_s",
        "time spent on local steps, without pauses; also those done ahead, during transfers, if the method does that",
    ),
    _seconds("upload_s", "time spent on the upload, without pauses"),
    _label("cause", f"why it was dropped: one of {', '.join(CAUSE_LABELS)}; null if it was not"),
)

AGGREGATIONS = _table(
    "aggregations",
    "One row per server update.",
    ("version",),
    _whole("version", "version it made; consecutive from 1", "versions"),
    _seconds("time_s", "simulated time"),
    _whole("round", "round it closed", "rounds"),
    _whole("contributors", "updates that entered"),
    _number("staleness_mean", "mean staleness; NaN if it was empty", "versions"),
    _whole("staleness_max", "largest staleness; null if it was empty", "versions"),
    _whole(
        "delay_max",
        "server updates since the client absent for longest last contributed (FedSUM's tau_t)",
        "versions",
    ),
    _field(pa.list_(pa.int64()), "contributor_ids", "dispatch ids in order of arrival"),
    _field(pa.list_(pa.int64()), "multiplicities", "times each was drawn; null if all once"),
    _field(pa.map_(pa.string(), pa.float64()), "attributes", "numbers recorded by the schedule"),
)

EDGE = _field(pa.int32(), "edge", "edge server; only in runs with edge servers")
OPTIONAL = (
    EDGE,
    _text("region", "region of its grid; only with several in devices.carbon"),
    _number("gco2e", "emissions of its work; only with devices.carbon", "g"),
    _number("cost", "cost of its work; only with devices.cost"),
)
"""The last columns of ``dispatches`` and ``clients`` in runs that have them."""
SPENT = ("gco2e", "cost")
"""Those that are sums over a client's dispatches."""

EDGE_DISPATCHES = _table(
    "edge_dispatches",
    "One row per dispatch of the cloud to an edge server: as dispatches, but client_id is the edge server, steps are "
    "its rounds, and versions are those of the cloud.",
    DISPATCHES.sort_by,
    *DISPATCHES.schema,
)

EDGE_AGGREGATIONS = _table(
    "edge_aggregations",
    "One row per version of an edge server: as aggregations.",
    ("edge", "version"),
    EDGE,
    *(field for field in AGGREGATIONS.schema if field.name != "delay_max"),
)

METRICS_FIXED = [
    _seconds("time_s", "simulated time of the evaluated version"),
    _whole("version", "evaluated version", "versions"),
    _whole("round", "round at the evaluation", "rounds"),
]

METRICS = _table(
    "metrics",
    "One row per evaluation, in order of time; one column per metric.",
    (),
    *METRICS_FIXED,
    _field(pa.map_(pa.string(), pa.float64()), "values", "the metrics, by name"),
)
"""As streamed; the finished file and :attr:`Run.metrics` have one float64 column per metric instead of ``values``."""

CLIENTS = _table(
    "clients",
    "One row per client; sums over its dispatches and, of a Flower app, its other messages.",
    ("client_id",),
    _whole("client_id", "client"),
    _whole("samples", "training samples it holds", "samples"),
    _seconds("step_s", "nominal seconds per local step"),
    _number("down_bps", "nominal download rate", "bit/s"),
    _number("up_bps", "nominal upload rate", "bit/s"),
    _number("online_fraction", "share of the run it was online and eligible, recharging included"),
    _whole("dispatches", "times it was dispatched"),
    _whole("aggregated", "times its update was aggregated"),
    _whole("steps", "local steps done", "steps"),
    _whole("bytes_down", "bytes received", "B"),
    _whole("bytes_up", "bytes sent", "B"),
    _number("energy_j", "energy spent", "J"),
    _seconds("download_s", "time spent in downloads"),
    _seconds("compute_s", "time spent in local steps and in no transfer"),
    _seconds("upload_s", "time spent in uploads"),
    _seconds("waiting_s", "its update waited to be aggregated, online or not"),
    _seconds("idle_s", "online without work or a waiting update, recharging included"),
    _seconds("offline_s", "offline without work or a waiting update"),
    _number("last_accuracy", "its last measured accuracy; NaN if none"),
    _text("name", "its name in the data set; null if it has none"),
    _text(
        "device",
        "its device in the first trace bundle of compute, availability and network; null if none has one",
    ),
    _text("kind", "kind of its device, such as phone; null if unknown"),
    _number("last_mae", "its last mean absolute error; NaN if none"),
    _number("part", "share of the model that it trains, as its rate; 1 is all of it"),
    _seconds("paused_s", "offline in a dispatch, not working"),
    _seconds("recharging_s", "idle while its battery was below the floor"),
)

EDGES = _table(
    "edges",
    "One row per edge server; sums over its dispatches by the cloud, whose steps are rounds.",
    ("client_id",),
    _whole("client_id", "edge server"),
    _number("samples", "training samples there, in the mean over the run", "samples"),
    *(field for field in CLIENTS.schema if field.name not in ("client_id", "samples")),
    _whole("members", "clients that are ever there"),
)

ONLINE = _table(
    "online",
    "Clients online and eligible over simulated time, those that recharge included.",
    ("time_s",),
    _seconds("time_s", "simulated time"),
    _whole("online", "clients online"),
)

PRESENCE = _table(
    "presence",
    "When a sample of the clients that were dispatched was online and eligible, recharging included: one row per "
    "stretch of time.",
    ("client_id", "from_s"),
    _whole("client_id", "client"),
    _seconds("from_s", "simulated time at which it came online"),
    _seconds("to_s", "simulated time at which it left, or the end of the run"),
)

PAUSES = _table(
    "pauses",
    "When clients were offline in the middle of a dispatch and did not work: one row per pause.",
    ("dispatch_id", "from_s"),
    _whole("dispatch_id", "dispatch that paused; -1 for another message of a Flower app"),
    _seconds("from_s", "simulated time at which the pause began"),
    _seconds("to_s", "simulated time at which it, or the dispatch, ended"),
)

CRITICAL = _table(
    "critical",
    "The critical path to the last server update: what each second was spent on; one row per interval, without gaps.",
    ("from_s",),
    _seconds("from_s", "simulated time at which the interval begins"),
    _seconds("to_s", "simulated time at which it ends, and the next begins"),
    _label(
        "cause",
        "download, compute, upload or paused (a dispatch that had to end), deadline, detection (of a failure), "
        "aggregation, pause (between rounds), nobody_online, too_few_online, or selection (it held clients back)",
    ),
    _whole("dispatch_id", "dispatch whose end was awaited; -1 if none"),
    _whole("client_id", "its client; -1 if none"),
)

PARTITION = _table(
    "partition",
    "How the labels are spread over the clients.",
    ("client_id", "label"),
    _whole("client_id", "client"),
    _whole("label", "label"),
    _whole("count", "training samples of this label", "samples"),
)

MESSAGE_OUTCOMES = ("replied", "failed", "late", "refused", "dropped", "expired", "unfinished")
MESSAGES = _table(
    "messages",
    "One row per message of a Flower app to a node; its training messages are dispatches, too.",
    ("message_id",),
    _whole("message_id", "number of the message, in order of sending"),
    _text("kind", "its type, and its stage of secure aggregation"),
    _whole("client_id", "client to which it was sent"),
    _whole("dispatch_id", "its dispatch; null if it has none"),
    _seconds("sent_s", "simulated time at which the ServerApp sent it"),
    _seconds("dispatched_s", "begin of its download; NaN if never"),
    _seconds("delivered_s", "end of its download; NaN if never"),
    _seconds("computed_s", "end of its work; NaN if never"),
    _seconds("replied_s", "arrival of its reply; NaN if never"),
    _seconds("ended_s", "reply, drop, or end of the run; NaN if never begun"),
    _seconds("download_s", "time spent on the download, without pauses"),
    _seconds("compute_s", "time spent on its work, without pauses"),
    _seconds("upload_s", "time spent on the reply, without pauses"),
    _whole("bytes_down", "bytes sent to the client before it ended", "B"),
    _whole("bytes_up", "bytes sent by the client before it ended", "B"),
    _number("energy_j", "energy that the device spent on it", "J"),
    _text(
        "outcome",
        f"one of {', '.join(MESSAGE_OUTCOMES)}; failed: the ClientApp raised an error; late: the ServerApp had given "
        "up; refused: the node was offline when it was sent; dropped: no reply came; expired: it waited beyond its "
        "time to live",
    ),
    _text("sent_hash", "CRC-32 of its content, by which runs can be compared"),
    _text("reply_hash", "CRC-32 of its reply; null if its ClientApp did not run"),
)

MESSAGE_INSTANTS: Mapping[str, str] = {
    "dispatched_s": "dispatched_s",
    "delivered_s": "downloaded_s",
    "computed_s": "computed_s",
    "ended_s": "ended_s",
}
"""The instants of a message at its node, and the columns of ``dispatches`` that they are in for training."""


def with_columns(table: Table, names: Iterable[str]) -> Table:
    """A table with those of its optional columns that are among ``names``."""
    schema = table.schema
    for field in OPTIONAL:
        schema = schema.append(field) if field.name in names else schema
    return Table(table.name, schema, table.sort_by)


STREAMED = (DISPATCHES, AGGREGATIONS, METRICS)
"""Tables written while the run is in progress, as ``<name>.arrows``."""

STREAMED_OF_EDGES = (EDGE_DISPATCHES, EDGE_AGGREGATIONS)
"""The same, in runs with edge servers."""

TABLES = (
    *STREAMED,
    *STREAMED_OF_EDGES,
    EDGES,
    CLIENTS,
    ONLINE,
    PRESENCE,
    PAUSES,
    CRITICAL,
    PARTITION,
    MESSAGES,
)
"""Every table that a run folder may contain, as ``<name>.parquet``."""

MOST = 2**53
"""The largest number in a table of a run; whole numbers are exact up to it."""
_SUMMED = ("bytes_down", "bytes_up", "steps", "steps_assigned", "steps_done")
_SIGNED = ("group", "gco2e", "cost")
_ALWAYS = ("client_id", "time_s", "from_s", "to_s", "contributor_ids", "attributes")
"""Columns that have a value in each row, besides those of whole numbers that are not :func:`nullable`."""
_MOST_EDGES = 10_000
"""Edge servers of a run with fewer clients, between which these may move."""
_KEYED = (DISPATCHES, AGGREGATIONS, EDGE_DISPATCHES, EDGES, CLIENTS, MESSAGES)
"""Tables whose first column identifies a row."""
_TIMED = (AGGREGATIONS, METRICS, ONLINE)
"""Tables whose rows are in order of ``time_s``."""
_ORDERED = (
    ("from_s", "to_s"),
    ("dispatched_s", "arrived_s"),
    ("dispatched_s", "ended_s"),
    ("steps_done", "steps_assigned"),
)
"""Pairs of columns; the second is never less than the first."""
_VERSIONS = ("version", "aggregated_version", "staleness", "staleness_max", "delay_max")
"""Columns that the number of versions made bounds."""


COUNTED = {
    DISPATCHES: "dispatches",
    AGGREGATIONS: "versions_made",
    CLIENTS: "clients",
    MESSAGES: "messages",
}
"""Tables with as many rows as an entry of a complete ``run.json`` says."""
LASTING_S = tuple(f"{part}_s" for part in (*DISPATCH_PARTS, "idle", "offline"))
"""Columns of a client's seconds, which add up to the run's."""


def wrong_last(metrics: pd.DataFrame, info: Mapping[str, Any]) -> str | None:
    """The problem if metrics of a complete run end with other values than its ``run.json`` says."""
    for name, last in (info.get("metrics", {}) if info.get("status") == "complete" else {}).items():
        values = metrics[name].to_numpy() if name in metrics else np.zeros(0)
        finite = values[np.isfinite(values)]
        is_lost = not len(values) or not np.isfinite(values[-1])
        if not (is_lost if last is None else len(finite) and finite[-1] == last):
            return f"the metric '{name}' does not end with {last}, as run.json says"
    return None


def nullable(table: Table) -> set[str]:
    """Columns of whole numbers that may be null."""
    of_dispatches = {"staleness", "aggregated_version", "staleness_max"}
    return {"dispatch_id"} if table is MESSAGES else of_dispatches


def impossible(table: Table, data: pa.Table, info: Mapping[str, Any]) -> str | None:
    """What no run with this ``run.json`` has in the columns of a table; None if there is no such value."""
    rows, clients, present = data.num_rows, info.get("clients", MOST), {*data.column_names}
    is_complete = info.get("status") == "complete"
    if is_complete and table in COUNTED and info.get(COUNTED[table], rows) != rows:
        return f"has {rows} rows, but run.json has {COUNTED[table]}: {info[COUNTED[table]]}"
    # Sums of whole numbers stay within 64 bits, and ids of clients are rows of the table of clients.
    most: dict[str, float] = dict.fromkeys(_SUMMED, min(MOST, 2**62 // max(rows, 1)))
    most |= {"client_id": clients - 1, "down_bps": math.inf, "up_bps": math.inf}
    most |= {"edge": max(clients, _MOST_EDGES) - 1, "online_fraction": 1}
    if EDGE.name not in (*data.column_names, *table.name.split("_")):
        most |= dict.fromkeys(_VERSIONS, info.get("versions_made", MOST))
    if table is AGGREGATIONS:
        most["round"] = info.get("rounds", MOST)
    may_lack = nullable(table) | {"multiplicities"}
    if (
        table in (DISPATCHES, EDGE_DISPATCHES)
        and "outcome" in present
        and data["outcome"].null_count
    ):
        return "the column 'outcome' lacks values"
    for name, column in zip(data.column_names, data.columns, strict=True):
        values = pc.list_flatten(column) if pa.types.is_list(column.type) else column
        is_float, is_whole = (
            kind(values.type) for kind in (pa.types.is_floating, pa.types.is_integer)
        )
        has_all = name in _ALWAYS or (is_whole and name not in may_lack)
        if has_all and pc.any(pc.is_null(column, nan_is_null=is_float)).as_py():
            return f"the column '{name}' lacks values"
        if is_float or is_whole:
            is_no_id = table in (PAUSES, CRITICAL) and name.endswith("_id")
            low, high = -MOST if name in _SIGNED else -int(is_no_id), most.get(name, MOST)
            found = pc.min_max(values).as_py().values()  # NaN is neither, but for want of others.
            if any(each is not None and (each < low or each > high) for each in found):
                return f"the column '{name}' has values outside {low} to {high}"
    for first, second in _ORDERED:
        if {first, second} <= present and pc.any(pc.less(data[second], data[first])).as_py():
            return f"has rows whose {second} is less than their {first}"
    if table in _TIMED and (np.diff(data["time_s"].to_numpy()) < 0).any():
        return "the column 'time_s' runs backward"
    if table is CLIENTS and is_complete:
        over_s = sum(data[name].to_numpy() for name in LASTING_S)
        if not np.allclose(over_s, info.get("simulated_s", 0), 1e-9, 1e-6):
            return "has clients whose seconds do not add up to the simulated_s of run.json"
        for name in SPENT & info.keys() & present:
            if not np.isclose(pc.sum(data[name], min_count=0).as_py(), info[name], 1e-9):
                return f"has another sum of {name} than run.json"
    keys = data.column(0).to_numpy()
    if table in _KEYED and not (np.diff(keys) > 0).all() and len(pd.unique(keys)) < rows:
        return f"the column '{data.column_names[0]}' has a value twice"
    return None
