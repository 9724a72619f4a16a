"""The life of a sample of clients."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.analysis.figures.base import (
    Column,
    Figure,
)
from fedsim.formatting import format_count, format_duration
from fedsim.runs import Run
from fedsim.runs.phases import aggregation_times, phases

MAX_CLIENTS_SHOWN = 40
MAX_BARS_SHOWN = 6000


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
    waiting_s = phases(table, run.aggregations, run.simulated_s).waiting_s[rows.index]
    waited = np.where(waiting_s > 0, rows["arrived_s"].to_numpy() + waiting_s, np.nan)
    until = float(rows["ended_s"].max()) if cut else run.simulated_s
    order = {client: place for place, client in enumerate(chosen)}
    finding = (
        f"{len(chosen)} of the {format_count(len(ranked))} clients that were dispatched, from the busiest "
        "to the least busy" + (f"; the first {format_duration(until)} are shown." if cut else ".")
        if chosen
        else "No client was ever dispatched."
    )

    def rounded(values: npt.NDArray[np.float64] | pd.Series) -> npt.NDArray[np.float64]:
        return np.asarray(np.round(values, 3), dtype=np.float64)

    return Figure(
        "timeline",
        "The life of a sample of clients",
        finding,
        "A row a client; each dispatch runs through download, compute, upload and waiting; "
        "its mark says how it ended.",
        (
            Column("client_id", "client", "count", rows["client_id"].to_numpy()),
            Column("dispatch_id", "dispatch", "count", rows["dispatch_id"].to_numpy()),
            Column("version", "from version", "count", rows["version"].to_numpy()),
            Column("dispatched_s", "dispatched", "time", rounded(rows["dispatched_s"])),
            Column("downloaded_s", "downloaded", "time", rounded(rows["downloaded_s"])),
            Column("computed_s", "computed", "time", rounded(rows["computed_s"])),
            Column("arrived_s", "arrived", "time", rounded(rows["arrived_s"])),
            Column("ended_s", "ended", "time", rounded(rows["ended_s"])),
            Column(
                "waited_s",
                "waited until",
                "time",
                rounded(waited),
            ),
            Column("aggregated_s", "aggregated", "time", rounded(aggregated)),
            Column("steps_done", "steps", "count", rows["steps_done"].to_numpy()),
            Column("outcome", "outcome", "text", rows["outcome"].astype(str).tolist()),
        ),
        {
            "order": [order[client] for client in rows["client_id"]],
            "clients": chosen,
            "until_s": until,
        },
    )
