"""``event_trace`` tables of the Failure Trace Archive.

Nine tab-separated columns: ``event_id component_id node_id platform_id node_name event_type event_start_time
event_stop_time event_end_reason``; times in epoch seconds. Source: Kondo, Javadi, Iosup, Epema, "The Failure Trace
Archive: Enabling Comparative Analysis of Failures in Diverse Distributed Systems", CCGrid 2010.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.files.cells import Bools, Bounds, Ints
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import devices_table, microseconds, numbers_of
from fedsim.traces.intervals import Intervals, normalize, overlaps_any
from fedsim.units import DAY_US

COLUMNS = (
    *("event_id", "component_id", "node_id", "platform_id", "node_name", "event_type"),
    *("event_start_time", "event_stop_time", "event_end_reason"),
)
# The years of ISO dates.
UNIX_S = Bounds(0, 253_402_300_799, words="from the year 1970 to 9999")
TIMES = ("event_start_time", "event_stop_time")


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
        events = _Events.of(sources)
        counts: dict[str, int] = {}
        if params.component is not None:
            keep = events.table["component_id"] == params.component
            if not keep.any():
                known = ", ".join(sorted(events.table["component_id"].unique())[:10])
                message = f"has no events of the component {params.component}"
                raise sources.error(message, f"its components are: {known}")
            counts["other_components"] = int((~keep).sum())
            events = _Events(events.table[keep].reset_index(drop=True), events.sources)
        table = events.table
        device, first = _nodes(events)
        nodes = table.iloc[first]
        ids = nodes["node_id"]
        if ids.duplicated().any():
            ids = nodes["platform_id"] + "/" + ids

        bad = ~table["event_type"].isin(["0", "1"])
        if bad.any():
            where = events.location(int(bad.to_numpy().argmax()))
            raise UserError("event_type must be 0 or 1", where=where)
        on = (table["event_type"] == str(params.available_type)).to_numpy()
        start_us, stop_us = (
            microseconds(
                numbers_of(table[time].tolist(), time, events.location, UNIX_S, "s since 1970")
            )
            for time in TIMES
        )
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


@dataclass(frozen=True)
class _Events:
    """Rows of all files: a data frame of text, with the position in ``sources`` and the line of each row."""

    table: pd.DataFrame
    sources: Sequence[SourceFile]

    def location(self, row: int) -> str:
        """File and line of a row."""
        source = self.sources[int(self.table["source"][row])]
        return source.line(int(self.table["line"][row]))

    @classmethod
    def of(cls, sources: Sources) -> _Events:
        """The events of files."""
        files = list(sources)
        layout = f"an event_trace has: {', '.join(COLUMNS)}, separated by tabs"
        # The header may start with '#', and may be missing.
        rows = []
        for number, source in enumerate(files):
            for line, text in source.lines(("#", "event_id\t")):
                cells = [cell.strip() for cell in text.split("\t")]
                if len(cells) != len(COLUMNS):
                    message = f"has {len(cells)} fields, not {len(COLUMNS)}"
                    raise source.error(message, layout, line=line)
                rows.append((number, line, *cells))
        if not rows:
            raise sources.error("has no events")
        return cls(pd.DataFrame(rows, columns=["source", "line", *COLUMNS]), files)


def _nodes(events: _Events) -> tuple[Ints, Ints]:
    """Row of the node of each event, and the first event of each node; nodes in the order of the files."""
    table = events.table
    keys = ["platform_id", "node_id"]
    device = np.asarray(table.groupby(keys, sort=False).ngroup(), np.int64)
    first: Ints = np.flatnonzero(~table.duplicated(keys))
    component = table["component_id"].to_numpy()
    other = np.flatnonzero(component != component[first[device]])
    if len(other):
        row = int(other[0])
        raise UserError(
            f"node {table['node_id'][row]} has events of several components",
            where=events.location(row),
            hint=f"choose one: component={component[row]}",
        )
    return device, first


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
