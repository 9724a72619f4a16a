"""``event_trace`` tables of the Failure Trace Archive.

Nine tab-separated columns: ``event_id component_id node_id platform_id node_name event_type event_start_time
event_stop_time event_end_reason``; times in epoch seconds. Source: Kondo, Javadi, Iosup, Epema, "The Failure Trace
Archive: Enabling Comparative Analysis of Failures in Diverse Distributed Systems", CCGrid 2010.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import Eligibility, TraceBundle
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._assemble import DAY_US, availability_table, bundle, devices_table
from fedsim.traces.importers._files import source_files
from fedsim.traces.ordering import Intervals, normalise, overlaps_any

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
# 1970 to 9999: what an ISO date can say.
_LAST_UNIX_S = 253_402_300_799.0


class FtaParams(ImporterParams):
    """Options of the FTA importer."""

    available_type: Literal[0, 1] = 1
    """The ``event_type`` that means available; the other one means unavailable."""
    component: str | None = None
    """Use only the events of this ``component_id``; needed where a node has events of several."""


class Fta(Importer):
    """Event traces; both states and the end reasons are kept, each node has its own window.

    A node's window runs from its first to its last event, and repeats. Where an unavailable row overlaps an available
    one, the available one wins and the other is dropped; the part of the window that no row covers is unavailable.
    """

    name: ClassVar[str] = "fta"
    description: ClassVar[str] = "Failure Trace Archive event_trace tables"
    Params: ClassVar[type[Parameters]] = FtaParams

    @classmethod
    def read(cls, paths: Sequence[Path], params: FtaParams) -> TraceBundle:
        """See :meth:`Importer.read`."""
        rows, places = _rows(paths)
        columns = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
        counts: dict[str, int] = {}
        if params.component is not None:
            keep = [item == params.component for item in columns["component_id"]]
            counts["other_components"] = keep.count(False)
            if not any(keep):
                known = ", ".join(sorted(set(columns["component_id"]))[:10])
                raise UserError(
                    f"has no events of the component {params.component}",
                    where=", ".join(map(str, paths)),
                    hint=f"its components are: {known}",
                )
            columns = {
                key: [v for v, k in zip(values, keep, strict=True) if k]
                for key, values in columns.items()
            }
            places = [place for place, k in zip(places, keep, strict=True) if k]

        nodes: dict[tuple[str, str], int] = {}
        components: dict[int, str] = {}
        names: list[str] = []
        device = np.empty(len(places), np.int64)
        for row, key in enumerate(zip(columns["platform_id"], columns["node_id"], strict=True)):
            node = nodes.setdefault(key, len(nodes))
            if node == len(names):
                names.append(columns["node_name"][row])
            device[row] = node
            component = components.setdefault(node, columns["component_id"][row])
            if component != columns["component_id"][row]:
                raise UserError(
                    f"node {key[1]} has events of the components {component} and {columns['component_id'][row]}",
                    where=places[row],
                    hint=f"choose one: component={component}",
                )
        several = len({node for _, node in nodes}) < len(nodes)
        ids = [f"{platform}/{node}" if several else node for platform, node in nodes]

        kind = columns["event_type"]
        bad = next((row for row, value in enumerate(kind) if value not in ("0", "1")), None)
        if bad is not None:
            raise UserError(
                f"event_type is '{kind[bad]}'", where=places[bad], hint="it must be 0 or 1"
            )
        on = np.array([value == str(params.available_type) for value in kind])
        start_us = _times(columns["event_start_time"], places, "event_start_time")
        stop_us = _times(columns["event_stop_time"], places, "event_stop_time")
        # Time 0 is a midnight, so that hours of the day can be read off.
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
            raise UserError("no node has an interval", where=", ".join(map(str, paths)))
        high[~valid] = low[~valid]
        reasons = columns["event_end_reason"]
        end_reason = [None if reasons[row] in ("NULL", "") else reasons[row] for row in origin]
        epoch = datetime.fromtimestamp(epoch_us / 1e6, UTC)
        return bundle(
            cls,
            params,
            paths,
            {
                "devices": devices_table(
                    ids,
                    window_start_us=low,
                    window_end_us=high,
                    source_id=names,
                    group=[platform for platform, _ in nodes],
                    valid=valid,
                ),
                "availability": availability_table(
                    intervals, ids, state=state, end_reason=end_reason
                ),
            },
            counts,
            horizon_us=int(high.max()),
            epoch=epoch.strftime("%Y-%m-%dT%H:%M:%SZ"),
            epoch_weekday=epoch.weekday(),
            clock="utc",
            on_end="wrap",
            eligibility=Eligibility(words=f"event_type {params.available_type}"),
        )


def _rows(paths: Sequence[Path]) -> tuple[list[list[str]], list[str]]:
    rows, places = [], []
    for source in source_files(paths):
        for line, text in enumerate(source.text().splitlines(), start=1):
            # The header comes with a '#', without, or not at all.
            if not text.strip() or text.startswith(("#", "event_id\t")):
                continue
            fields = [field.strip() for field in text.split("\t")]
            if len(fields) != len(COLUMNS):
                raise UserError(
                    f"has {len(fields)} tab-separated fields, not {len(COLUMNS)}",
                    where=source.line(line),
                    hint=f"an event_trace has: {', '.join(COLUMNS)}",
                )
            rows.append(fields)
            places.append(source.line(line))
    if not rows:
        raise UserError("has no events", where=", ".join(map(str, paths)))
    return rows, places


def _times(texts: list[str], places: list[str], column: str) -> npt.NDArray[np.int64]:
    try:
        seconds = np.array(texts).astype(np.float64)
    except ValueError:
        seconds = np.array([_float_or_nan(text) for text in texts])
    bad = np.flatnonzero(~((seconds >= 0) & (seconds <= _LAST_UNIX_S)))
    if len(bad):
        raise UserError(
            f"{column} is '{texts[bad[0]]}'",
            where=places[bad[0]],
            hint="it must be a number of seconds since 1970",
        )
    result: npt.NDArray[np.int64] = np.rint(seconds * 1e6).astype(np.int64)
    return result


def _float_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _both_states(
    device: npt.NDArray[np.int64],
    start_us: npt.NDArray[np.int64],
    stop_us: npt.NDArray[np.int64],
    on: npt.NDArray[np.bool_],
    counts: dict[str, int],
) -> tuple[Intervals, npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    """Disjoint intervals of both states, their states, and the rows that ended them."""
    parts: list[tuple[Any, ...]] = []
    for state in (True, False):
        chosen = np.flatnonzero(on == state)
        part = normalise(device[chosen], start_us[chosen], stop_us[chosen])
        for key, count in part.counts.items():
            counts[key] = counts.get(key, 0) + count
        parts.append((part.device, part.start, part.end, chosen[part.origin]))
    up, down = parts
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
