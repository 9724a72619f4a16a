"""``event_trace`` tables of the Failure Trace Archive.

Nine tab-separated columns: ``event_id component_id node_id platform_id node_name event_type event_start_time
event_stop_time event_end_reason``; times in epoch seconds. Source: Kondo, Javadi, Iosup, Epema, "The Failure Trace
Archive: Enabling Comparative Analysis of Failures in Diverse Distributed Systems", CCGrid 2010.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from fedsim.errors import UserError
from fedsim.files.cells import Bounds
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import microseconds
from fedsim.traces.intervals import normalize
from fedsim.traces.tables import id_column
from fedsim.units import DAY_US

COLUMNS = (
    *("event_id", "component_id", "node_id", "platform_id", "node_name", "event_type"),
    *("event_start_time", "event_stop_time", "event_end_reason"),
)
# The years of ISO dates.
UNIX_S = Bounds(0, 253_402_300_799, words="from the year 1970 to 9999")


class Fta(Importer):
    """Event traces; both states and the end reasons are kept.

    Rows give both states, so the file says when each node was observed: from its first event to its last one. All nodes
    repeat together, with the time from the file's first event to its last one. An unavailable row that overlaps an
    available one is dropped; times between a node's events that no row covers are unavailable.
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
        files = []
        for source in sources:
            # The header may begin with # and may be missing.
            line = source.head(4096).partition(b"\n")[0]
            named = line.lstrip(b"# ").startswith(b"event_id")
            file = TableFile(source, header=named and source.head(1) != b"#")
            if (count := len(file.names)) != len(COLUMNS):
                layout = f"an event_trace has: {', '.join(COLUMNS)}, separated by tabs"
                raise source.error(f"has {count} fields, not {len(COLUMNS)}", layout, line=1)
            own = re.findall(r"\w+", line.decode("utf-8", "replace"))
            if named and own != list(COLUMNS):
                fix = f"they must be {', '.join(COLUMNS)}"
                raise source.error(f"has the columns {', '.join(own)}", fix, line=1)
            file.names = list(COLUMNS)
            files.append(file)
        frame = Frame(files).load(COLUMNS)
        text = {name: frame.text(name) for name in COLUMNS if not name.endswith("_time")}
        table = pd.DataFrame(
            {n: np.array([*words, ""], object)[code] for n, (code, words) in text.items()}
        )
        bad = ~table["event_type"].isin(["0", "1"]).to_numpy()
        frame.refuse(bad, "event_type must be 0 or 1, not {}", None, "event_type")
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
        # Time 0 is midnight, so that times of day are known.
        epoch_us = int(table["start"].min()) // DAY_US * DAY_US
        table = table.assign(start=table["start"] - epoch_us, stop=table["stop"] - epoch_us)
        keys = ["platform_id", "node_id"]
        by_node = table.groupby(keys, sort=False)
        other = table["component_id"] != by_node["component_id"].transform("first")
        if other.any():
            row = table[other].iloc[0]
            raise UserError(
                f"node {row['node_id']} has events of several components",
                where=frame.place(int(str(row.name))),
                hint=f"choose one: component={row['component_id']}",
            )
        nodes = table.drop_duplicates(keys)
        ids = nodes["node_id"]
        if ids.duplicated().any():
            ids = nodes["platform_id"] + "/" + ids
        low, high = by_node["start"].min().to_numpy(), by_node["stop"].max().to_numpy()
        valid = high > low
        if not valid.any():
            raise sources.error("no node has an interval")
        counts["devices_without_span"] = int(np.count_nonzero(~valid))
        spans = _both_states(table.assign(device=by_node.ngroup()), params.available_type, counts)
        reason = spans["event_end_reason"].where(~spans["event_end_reason"].isin(["NULL", ""]))
        epoch = datetime.fromtimestamp(epoch_us / 1e6, UTC)
        tables = {
            "devices": {
                "device_id": ids.tolist(),
                "window_start_us": low,
                "window_end_us": np.where(valid, high, low),
                "period_us": np.full(len(ids), high.max() - low.min()),
                "source_id": nodes["node_name"].tolist(),
                "group": nodes["platform_id"].tolist(),
                "valid": valid,
            },
            "availability": {
                "device_id": id_column(spans["device"].to_numpy(), ids),
                "start_us": spans["start"].to_numpy(),
                "end_us": spans["stop"].to_numpy(),
                "state": spans["state"].to_numpy(np.int8),
                "end_reason": pa.array(reason, pa.string(), from_pandas=True),
                "censored": 0,
            },
        }
        return Imported(
            tables,
            counts,
            eligibility=f"event_type {params.available_type}",
            epoch=epoch.strftime("%Y-%m-%dT%H:%M:%SZ"),
            clock="utc",
        )


def _both_states(table: pd.DataFrame, available: int, counts: dict[str, int]) -> pd.DataFrame:
    """Disjoint rows of both states, by device and time; each has the end reason of its last part."""
    parts = []
    for state in (1, 0):
        rows = table[(table["event_type"] == str(available)) == bool(state)]
        spans = normalize(*(rows[name].to_numpy() for name in ("device", "start", "stop")))
        for key, count in spans.counts.items():
            counts[key] = counts.get(key, 0) + count
        joined = {"device": spans.device, "start": spans.start, "stop": spans.end, "state": state}
        last = rows.sort_values("start", kind="stable").drop_duplicates(
            ["device", "stop"], keep="last"
        )
        reasons = last[["device", "stop", "event_end_reason"]]
        parts.append(pd.DataFrame(joined).merge(reasons, "left", ["device", "stop"]))
    up, down = (part.sort_values("start") for part in parts)
    down = down.sort_values("stop")
    # The last available interval of the node that begins before the end of the unavailable one.
    latest = pd.merge_asof(
        down,
        up,
        left_on="stop",
        right_on="start",
        by="device",
        suffixes=("", "_up"),
        allow_exact_matches=False,
    )
    clash = (latest["stop_up"] > latest["start"]).to_numpy()
    counts["contradictions"] = int(np.count_nonzero(clash))
    return pd.concat([up, down[~clash]]).sort_values(["device", "start"], kind="stable")
