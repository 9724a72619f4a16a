"""``event_trace`` tables of the Failure Trace Archive.

Nine tab-separated columns: ``event_id component_id node_id platform_id node_name event_type event_start_time
event_stop_time event_end_reason``; times in epoch seconds. Source: Kondo, Javadi, Iosup, Epema, "The Failure Trace
Archive: Enabling Comparative Analysis of Failures in Diverse Distributed Systems", CCGrid 2010.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.files.cells import Bools, Bounds, Ints
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import devices_table, microseconds
from fedsim.traces.intervals import Intervals, normalize, overlaps_any
from fedsim.units import DAY_US

COLUMNS = (
    *("event_id", "component_id", "node_id", "platform_id", "node_name", "event_type"),
    *("event_start_time", "event_stop_time", "event_end_reason"),
)
# The years of ISO dates.
UNIX_S = Bounds(0, 253_402_300_799, words="from the year 1970 to 9999")


class Fta(Importer):
    """Event traces; both states and the end reasons are kept, and each node has its own window.

    A node's window runs from its first to its last event, and repeats. An unavailable row that overlaps an available
    one is dropped; parts of the window that no row covers are unavailable.
    """

    name = "fta"
    description = "Failure Trace Archive event_trace tables"
    signature = r"event_start_time|\n(\d+\t){2}[^\t\n]+\t[^\t\n]+\t[^\t\n]+\t[01]\t"

    class Params(ImporterParams):
        """Options of the FTA importer."""

        available_type: Literal[0, 1] = 1
        """The ``event_type`` that means available; the other means unavailable."""
        component: str | None = None
        """Use only the events of this ``component_id``; required if a node has events of several components."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One device per node."""
        frame = _frame(sources)
        text = {name: frame.text(name) for name in COLUMNS if not name.endswith("_time")}
        table = pd.DataFrame(
            {n: np.array([*words, ""], object)[code] for n, (code, words) in text.items()}
        )
        kinds = table["event_type"]
        frame.refuse(
            ~kinds.isin(["0", "1"]).to_numpy(),
            "event_type must be 0 or 1, not {}",
            None,
            "event_type",
        )
        for end in ("start", "stop"):
            seconds = frame.number(f"event_{end}_time", 1.0, UNIX_S, "s since 1970")
            frame.refuse(np.isnan(seconds), f"has no event_{end}_time")
            table[end] = microseconds(seconds)
        counts: dict[str, int] = {}
        if params.component is not None:
            keep = table["component_id"] == params.component
            if not keep.any():
                known = ", ".join(sorted(table["component_id"].unique())[:10])
                message = f"has no events of the component {params.component}"
                raise sources.error(message, f"its components are: {known}")
            counts["other_components"] = int((~keep).sum())
            table = table[keep]
        keys = ["platform_id", "node_id"]
        device = np.asarray(table.groupby(keys, sort=False).ngroup(), np.int64)
        nodes = table.drop_duplicates(keys)
        other = table["component_id"].to_numpy() != nodes["component_id"].to_numpy()[device]
        if other.any():
            row = table.iloc[int(other.argmax())]
            raise UserError(
                f"node {row['node_id']} has events of several components",
                where=frame.place(int(str(row.name))),
                hint=f"choose one: component={row['component_id']}",
            )
        ids = nodes["node_id"]
        if ids.duplicated().any():
            ids = nodes["platform_id"] + "/" + ids
        on = (table["event_type"] == str(params.available_type)).to_numpy()
        start_us, stop_us = (np.asarray(table[end], np.int64) for end in ("start", "stop"))
        # Time 0 is midnight, so that times of day are known.
        epoch_us = int(start_us.min()) // DAY_US * DAY_US
        start_us, stop_us = start_us - epoch_us, stop_us - epoch_us
        low = pd.Series(start_us).groupby(device).min().to_numpy(copy=True)
        high = pd.Series(stop_us).groupby(device).max().to_numpy(copy=True)

        intervals, state, origin = _both_states(device, start_us, stop_us, on, counts)
        valid = high > low
        counts["devices_without_span"] = int(np.count_nonzero(~valid))
        if not valid.any():
            raise sources.error("no node has an interval")
        high[~valid] = low[~valid]
        reason = table["event_end_reason"].iloc[origin]
        end_reason = pa.array(reason.mask(reason.isin(["NULL", ""])), pa.string(), from_pandas=True)
        epoch = datetime.fromtimestamp(epoch_us / 1e6, UTC)
        tables = {
            "devices": devices_table(
                ids.tolist(),
                window_start_us=low,
                window_end_us=high,
                source_id=nodes["node_name"].tolist(),
                group=nodes["platform_id"].tolist(),
                valid=valid,
            ),
            "availability": intervals.table(ids.tolist(), state=state, end_reason=end_reason),
        }
        return Imported(
            tables,
            counts,
            eligibility=f"event_type {params.available_type}",
            epoch=epoch.strftime("%Y-%m-%dT%H:%M:%SZ"),
            epoch_weekday=epoch.weekday(),
            clock="utc",
        )


def _frame(sources: Sources) -> Frame:
    """The events of files, whose header may begin with ``#`` and may be missing."""
    files = []
    for source in sources:
        named = source.head(4096).lstrip(b"# ").startswith(b"event_id")
        file = TableFile(source, header=named and source.head(1) != b"#")
        if len(file.names) != len(COLUMNS):
            layout = f"an event_trace has: {', '.join(COLUMNS)}, separated by tabs"
            raise source.error(f"has {len(file.names)} fields, not {len(COLUMNS)}", layout, line=1)
        file.names = list(COLUMNS)
        files.append(file)
    frame = Frame(files).load(COLUMNS)
    if not len(frame):
        raise sources.error("has no events")
    return frame


def _both_states(
    device: Ints,
    start_us: Ints,
    stop_us: Ints,
    on: Bools,
    counts: dict[str, int],
) -> tuple[Intervals, npt.NDArray[np.int8], Ints]:
    """Disjoint intervals of both states, their states, and the rows that ended them."""
    of_states: list[tuple[Any, ...]] = []
    for state in (True, False):
        rows = np.flatnonzero(on == state)
        intervals = normalize(device[rows], start_us[rows], stop_us[rows])
        for key, count in intervals.counts.items():
            counts[key] = counts.get(key, 0) + count
        of_states.append((intervals.device, intervals.start, intervals.end, rows[intervals.origin]))
    up, down = of_states
    clash = overlaps_any(*down[:3], *up[:3])
    counts["contradictions"] = int(np.count_nonzero(clash))
    down = tuple(column[~clash] for column in down)
    columns = [np.concatenate(pair) for pair in zip(up, down, strict=True)]
    states = np.repeat(np.array([1, 0], np.int8), [len(up[0]), len(down[0])])
    order = np.lexsort((columns[1], columns[0]))
    merged = Intervals(
        columns[0][order], columns[1][order], columns[2][order], columns[3][order], counts
    )
    return merged, states[order], merged.origin
