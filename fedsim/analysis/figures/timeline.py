"""The timeline of a sample of clients."""

from __future__ import annotations

import numpy as np

from fedsim.analysis.figures.base import Columns, Figure, columns_of
from fedsim.formatting import format_count, format_duration
from fedsim.runs import Run
from fedsim.runs.phases import aggregation_times, phases

MAX_CLIENTS_SHOWN = 40
MAX_BARS_SHOWN = 6000

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
    ("aggregated_s", "aggregated", "time"),
    ("steps_done", "steps", "count"),
    ("outcome", "outcome", "text"),
)


def timeline(run: Run) -> Figure:
    """The dispatches of a sample of clients, phase by phase."""
    table = run.dispatches
    counts = table["client_id"].value_counts(sort=False)
    ranked = counts.sort_index().sort_values(kind="stable", ascending=False)
    chosen: list[int] = []
    if len(ranked):
        picks = np.unique(
            np.linspace(0, len(ranked) - 1, MAX_CLIENTS_SHOWN).round().astype(np.int64)
        )
        chosen = [int(client) for client in ranked.index[picks]]
    rows = table[table["client_id"].isin(chosen)]
    cut = len(rows) > MAX_BARS_SHOWN
    if cut:
        rows = rows.iloc[:MAX_BARS_SHOWN]
    aggregated = aggregation_times(rows, run.aggregations)
    waiting_s = phases(table, run.aggregations, run.simulated_s)["waiting_s"].to_numpy()[rows.index]
    waited = np.where(waiting_s > 0, rows["arrived_s"].to_numpy() + waiting_s, np.nan)
    until = float(rows["ended_s"].max()) if cut else run.simulated_s
    order = {client: row for row, client in enumerate(chosen)}
    finding = (
        f"{len(chosen)} of the {format_count(len(ranked))} clients that were dispatched, from the busiest "
        "to the least busy" + (f"; the first {format_duration(until)} are shown." if cut else ".")
        if chosen
        else "No client was ever dispatched."
    )

    shown = rows.assign(
        waited_s=waited, aggregated_s=aggregated, outcome=rows["outcome"].astype(str)
    ).round({key: 3 for key, _, kind in _COLUMNS if kind == "time"})
    return Figure(
        "timeline",
        finding,
        columns_of(shown, _COLUMNS),
        {
            "order": [order[client] for client in rows["client_id"]],
            "clients": chosen,
            "until_s": until,
        },
    )
