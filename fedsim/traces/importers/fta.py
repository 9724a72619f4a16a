"""``event_trace`` tables of the Failure Trace Archive.

Nine tab-separated columns: ``event_id component_id node_id platform_id node_name event_type event_start_time
event_stop_time event_end_reason``; times in epoch seconds. Source: Kondo, Javadi, Iosup, Epema, "The Failure Trace
Archive: Enabling Comparative Analysis of Failures in Diverse Distributed Systems", CCGrid 2010.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import UserError
from fedsim.traces.arrays import Bools, Ints
from fedsim.traces.importers import Imported, Importer, ImporterParams, SourceFile, Sources
from fedsim.traces.importers._assemble import devices_table
from fedsim.traces.importers._numbers import Number, microseconds
from fedsim.traces.ordering import Intervals, normalize, overlaps_any
from fedsim.traces.tables import Bounds
from fedsim.units import DAY_US

COLUMNS = (
    "event_id",
    "component_id",
    "node_id",
    "platform_id",
    "node_name",
    "event_type",
    "event_start_time",
    "event_stop_time",
    "event_end_reason",
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
        events = _Events.of(sources)
        counts: dict[str, int] = {}
        if params.component is not None:
            keep = pc.equal(events.columns["component_id"], params.component)
            counts["other_components"] = pc.sum(pc.invert(keep)).as_py()
            if not pc.any(keep).as_py():
                known = ", ".join(
                    sorted(pc.unique(events.columns["component_id"]).to_pylist())[:10]
                )
                raise sources.error(
                    f"has no events of the component {params.component}",
                    f"its components are: {known}",
                )
            events = events.chosen(keep)
        columns = events.columns
        device, first = _nodes(events)
        platforms, nodes, names = (
            columns[name].take(pa.array(first)).to_pylist()
            for name in ("platform_id", "node_id", "node_name")
        )
        several = len(set(nodes)) < len(nodes)
        ids = [
            f"{platform}/{node}" if several else node
            for platform, node in zip(platforms, nodes, strict=True)
        ]

        kind = columns["event_type"]
        known_kind = pc.is_in(kind, value_set=pa.array(["0", "1"], pa.large_string()))
        bad = np.flatnonzero(~known_kind.to_numpy(zero_copy_only=False))
        if len(bad):
            raise UserError(
                f"event_type is '{kind[int(bad[0])]}'",
                where=events.location(int(bad[0])),
                hint="it must be 0 or 1",
            )
        on = pc.equal(kind, str(params.available_type)).to_numpy(zero_copy_only=False)
        start_us = _times(events, "event_start_time")
        stop_us = _times(events, "event_stop_time")
        # Time 0 is midnight, so that times of day are known.
        epoch_us = int(start_us.min()) // DAY_US * DAY_US
        start_us, stop_us = start_us - epoch_us, stop_us - epoch_us
        low = np.full(len(ids), np.iinfo(np.int64).max)
        high = np.zeros(len(ids), np.int64)
        np.minimum.at(low, device, start_us)
        np.maximum.at(high, device, stop_us)

        intervals, state, origin = _both_states(device, start_us, stop_us, on, counts)
        valid = high > low
        counts["devices_without_span"] = int(np.count_nonzero(~valid))
        if not valid.any():
            raise sources.error("no node has an interval")
        high[~valid] = low[~valid]
        end_reason = columns["event_end_reason"].take(pa.array(origin)).cast(pa.string())
        known = pc.invert(pc.is_in(end_reason, value_set=pa.array(["NULL", ""])))
        end_reason = pc.if_else(known, end_reason, pa.scalar(None, pa.string()))
        epoch = datetime.fromtimestamp(epoch_us / 1e6, UTC)
        tables = {
            "devices": devices_table(
                ids,
                window_start_us=low,
                window_end_us=high,
                source_id=names,
                group=platforms,
                valid=valid,
            ),
            "availability": intervals.table(ids, state=state, end_reason=end_reason),
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
    """Rows of all files: columns of text, and the file and line of each row."""

    columns: Mapping[str, Any]
    sources: Sequence[SourceFile]
    source: Ints
    line: Ints

    def location(self, row: int) -> str:
        """File and line of a row."""
        return self.sources[int(self.source[row])].line(int(self.line[row]))

    def chosen(self, keep: Any) -> _Events:
        """The rows where ``keep`` holds."""
        mask = keep.to_numpy(zero_copy_only=False)
        columns = {name: column.filter(keep) for name, column in self.columns.items()}
        return _Events(columns, self.sources, self.source[mask], self.line[mask])

    @classmethod
    def of(cls, sources: Sources) -> _Events:
        """The events of files.

        Raises:
            UserError: a row does not have nine fields, or there is none.
        """
        files = list(sources)
        texts, lines = [], []
        for source in files:
            text = pa.array(source.text().splitlines(), pa.large_string())
            # The header may start with '#', and may be missing.
            skip = pc.or_(pc.starts_with(text, "#"), pc.starts_with(text, "event_id\t"))
            skip = pc.or_(skip, pc.equal(pc.utf8_trim_whitespace(text), ""))
            filled = np.flatnonzero(~skip.to_numpy(zero_copy_only=False))
            text = text.take(pa.array(filled))
            fields = pc.count_substring(text, "\t").to_numpy(zero_copy_only=False) + 1
            bad = np.flatnonzero(fields != len(COLUMNS))
            if len(bad):
                raise source.error(
                    f"has {fields[bad[0]]} tab-separated fields, not {len(COLUMNS)}",
                    f"an event_trace has: {', '.join(COLUMNS)}",
                    line=int(filled[bad[0]]) + 1,
                )
            texts.append(text)
            lines.append(filled + 1)
        text = pa.concat_arrays(texts)
        if not len(text):
            raise sources.error("has no events")
        cells = pc.utf8_trim_whitespace(pc.split_pattern(text, "\t").flatten())
        columns = {
            name: cells.take(pa.array(np.arange(position, len(cells), len(COLUMNS))))
            for position, name in enumerate(COLUMNS)
        }
        source_rows = np.repeat(np.arange(len(files)), [len(numbers) for numbers in lines])
        return cls(columns, files, source_rows, np.concatenate(lines))


def _nodes(events: _Events) -> tuple[Ints, Ints]:
    """Row of the node of each event, and the first event of each node; nodes in the order of the files.

    Raises:
        UserError: a node has events of several components.
    """
    codes = {
        name: events.columns[name].dictionary_encode().indices.to_numpy().astype(np.int64)
        for name in ("platform_id", "node_id", "component_id")
    }
    pair = codes["platform_id"] * (codes["node_id"].max() + 1) + codes["node_id"]
    _, first, node = np.unique(pair, return_index=True, return_inverse=True)
    order = np.argsort(first)
    device, first = np.argsort(order)[node], first[order]
    component = codes["component_id"]
    other = np.flatnonzero(component != component[first[device]])
    if len(other):
        row = int(other[0])
        names = events.columns["component_id"]
        earlier = names[int(first[device[row]])]
        raise UserError(
            f"node {events.columns['node_id'][row]} has events of the components {earlier} and {names[row]}",
            where=events.location(row),
            hint=f"choose one: component={earlier}",
        )
    return device, first


def _times(events: _Events, column: str) -> Ints:
    """A column of times (us since 1970)."""
    texts = events.columns[column]
    try:
        seconds = texts.cast(pa.float64()).to_numpy()
        good = bool(UNIX_S.contain(seconds).all())
    except pa.ArrowInvalid:
        good = False
    if not good:
        number = Number(column, "s since 1970", UNIX_S)
        seconds = number.read(texts.to_pylist(), events.location)
    return microseconds(seconds)


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
