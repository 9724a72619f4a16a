"""FLASH's phone traces: raw state changes, the timers reduced from them, and network speeds.

Source: Yang et al., "Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale Smartphone Data",
WWW 2021; FLHetBench (Zhang et al., CVPR 2024) reads the same files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import Eligibility, TraceBundle
from fedsim.traces.eligibility import FLASH_RULE, KEYS, STATES, Rule, eligible_intervals
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._assemble import (
    STATIC_HORIZON_US,
    availability_table,
    bundle,
    check_times,
    devices_table,
    microseconds,
)
from fedsim.traces.importers._files import SourceFile, record_object, source_files
from fedsim.traces.ordering import normalise
from fedsim.traces.tables import id_column, make_table

Records = Mapping[str, Mapping[str, Any]]

EPOCH = "2020-01-02T00:00:00"
EPOCH_UNIX_S = 1_577_923_200
EPOCH_WEEKDAY = 3

# FLASH's words, in lower case, as key and state.
EVENTS: Mapping[str, tuple[str, str]] = {
    "battery_charged_on": ("charging", "on"),
    "battery_charged_off": ("charging", "off"),
    "screen_on": ("screen", "on"),
    "screen_off": ("screen", "off"),
    "screen_lock": ("lock", "on"),
    "screen_unlock": ("lock", "off"),
} | {name: ("network", name) for name in STATES["network"] if name != "none"}

_LINE = r"^(?P<time>\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})[ ]*\t\s*(?P<event>\S+)$"
_BATTERY = r"^(\d+(\.\d+)?)%$"


class FlashParams(ImporterParams):
    """Options of the FLASH importer."""

    eligibility: str | None = None
    """When a phone may train, over charging, network, screen and lock; raw state files only. By default FLASH's own
    rule: ``charging and network == wifi and lock``."""


class Flash(Importer):
    """A raw state file or a timer file, and a speed file if there is one.

    Raw states: all states false at first, a session still open at the end is dropped, touching ones merge; a device
    with a line that is not an event is invalid, as in FLASH. Timers: as they are, empty ones dropped. Each device
    repeats with the length of its own trace. FLASH counts both ends of an interval as ready, here the end is excluded.
    """

    name: ClassVar[str] = "flash"
    description: ClassVar[str] = (
        "FLASH raw phone states (with an eligibility rule), cached timers, speeds"
    )
    Params: ClassVar[type[Parameters]] = FlashParams

    @classmethod
    def read(cls, paths: Sequence[Path], params: FlashParams) -> TraceBundle:
        """See :meth:`Importer.read`."""
        parts = _load(paths)
        rule = Rule.parse(params.eligibility or FLASH_RULE)
        counts: dict[str, int] = {}
        if "messages" in parts:
            tables = _raw_tables(*parts["messages"], rule, counts)
        elif "ready_time" in parts:
            if params.eligibility is not None:
                raise UserError(
                    "an eligibility rule cannot be applied to timers, which hold FLASH's rule already",
                    where=parts["ready_time"][0].where,
                    hint="leave the rule out, or import FLASH's raw state file",
                )
            tables = _timer_tables(*parts["ready_time"], counts)
        else:
            ids = list(parts["down_u"][1])
            tables = {"devices": devices_table(ids, window_end_us=STATIC_HORIZON_US, kind="phone")}
        if "down_u" in parts:
            tables["network"] = _speed_table(
                *parts["down_u"], tables["devices"].column("device_id").to_pylist(), counts
            )
        horizon_us = max(int(tables["devices"].column("window_end_us").to_numpy().max()), 1)
        return bundle(
            cls,
            params,
            paths,
            tables,
            counts,
            horizon_us=horizon_us,
            epoch=EPOCH,
            epoch_weekday=EPOCH_WEEKDAY,
            clock="local",
            on_end="wrap",
            eligibility=Eligibility(
                words="locked, on Wi-Fi and charging" if rule.text == FLASH_RULE else rule.text,
                expression=rule.text,
            ),
            caveats=["local time of each phone, without a zone"],
        )


def _load(paths: Sequence[Path]) -> dict[str, tuple[SourceFile, Records]]:
    """Files by the field that tells what they are."""
    parts: dict[str, tuple[SourceFile, Records]] = {}
    kinds = {"messages": "raw state", "ready_time": "timer", "down_u": "speed"}
    for source in source_files(paths):
        records = record_object(source.json(), source, "devices")
        first = next(iter(records.values()))
        kind = next((field for field in kinds if field in first), None)
        if kind is None:
            raise UserError(
                f"has none of {', '.join(kinds)} in its first record, but: {', '.join(first)}",
                where=source.where,
                hint="give FLASH's state_traces, cached_timers or speed_distri file",
            )
        if kind in parts:
            raise UserError(f"a second {kinds[kind]} file", where=source.where, hint="give one")
        for key, record in records.items():
            if kind not in record:
                raise UserError(f"has no '{kind}'", where=f"{source.where}, device {key}")
        parts[kind] = source, records
    if {"messages", "ready_time"} <= set(parts):
        raise UserError(
            "raw states and timers say the same twice",
            where=parts["ready_time"][0].where,
            hint="give one of the two",
        )
    return parts


def _raw_tables(
    source: SourceFile, records: Records, rule: Rule, counts: dict[str, int]
) -> dict[str, Any]:
    ids = list(records)
    messages = [record["messages"] for record in records.values()]
    for key, text in zip(ids, messages, strict=True):
        if not isinstance(text, str):
            raise UserError(
                f"'messages' is a {type(text).__name__}, not text",
                where=f"{source.where}, device {key}",
            )
    split = pc.split_pattern(pa.array(messages, pa.large_string()), "\n")
    device = np.repeat(np.arange(len(ids), dtype=np.int64), pc.list_value_length(split))
    line = np.arange(len(device)) - np.repeat(
        split.offsets.to_numpy()[:-1], pc.list_value_length(split)
    )
    text = pc.utf8_trim_whitespace(split.flatten())
    told = pc.not_equal(text, "").to_numpy(zero_copy_only=False)
    text, device, line = text.filter(pa.array(told)), device[told], line[told]

    fields = pc.extract_regex(text, _LINE)
    stamp = pc.strptime(
        fields.field("time"), format="%Y-%m-%d %H:%M:%S", unit="s", error_is_null=True
    ).cast(pa.int64())
    event = pc.utf8_lower(fields.field("event"))
    known = pc.index_in(event, value_set=pa.array(list(EVENTS), pa.large_string()))
    battery = pc.match_substring_regex(event, _BATTERY)
    good = pc.and_(
        pc.and_(pc.is_valid(fields), pc.is_valid(stamp)),
        pc.or_(pc.is_valid(known), pc.fill_null(battery, False)),
    ).to_numpy(zero_copy_only=False)

    invalid = np.zeros(len(ids), np.bool_)
    invalid[device[~good]] = True
    counts["invalid_lines"] = int(np.count_nonzero(~good))
    counts["invalid_devices"] = int(np.count_nonzero(invalid))
    if invalid.all():
        row = int(np.flatnonzero(~good)[0])
        raise UserError(
            f"no device has a usable trace; the first bad line is {text[row].as_py()!r}",
            where=f"{source.where}, device {ids[int(device[row])]}, line {line[row] + 1} of messages",
            hint="a line is 'YYYY-mm-dd HH:MM:SS', a tab, and one of: "
            + ", ".join([*EVENTS, "NN.N%"]),
        )
    keep = ~invalid[device]
    chosen = pa.array(keep)
    device = device[keep]
    time_us = (stamp.filter(chosen).to_numpy(zero_copy_only=False) - EPOCH_UNIX_S) * 1_000_000
    event = event.filter(chosen)
    code = pc.fill_null(known.filter(chosen), len(EVENTS)).to_numpy(zero_copy_only=False)

    counts["events_out_of_order"] = int(
        np.count_nonzero((device[1:] == device[:-1]) & (time_us[1:] < time_us[:-1]))
    )
    order = np.lexsort((time_us, device))
    device, time_us, code = device[order], time_us[order].astype(np.int64), code[order]
    event = event.take(pa.array(order))

    window = np.zeros((2, len(ids)), np.int64)
    present, first = np.unique(device, return_index=True)
    last = np.append(first[1:], len(device)) - 1
    window[:, present] = time_us[first], time_us[last]
    valid = ~invalid & (window[1] > window[0])
    counts["devices_without_span"] = int(np.count_nonzero(~invalid & ~valid))
    # An invalid device has no window.
    window[:, ~valid] = 0

    keys = np.array([KEYS.index(key) for key, _ in EVENTS.values()] + [-1])
    values = np.array([STATES[key].index(value) for key, value in EVENTS.values()] + [-1])
    seen = valid[device]
    device, time_us, code, event = (
        device[seen],
        time_us[seen],
        code[seen],
        event.filter(pa.array(seen)),
    )
    intervals = eligible_intervals(rule, device, time_us, keys[code], values[code])
    counts |= intervals.counts
    eligible = np.zeros(len(ids), np.bool_)
    eligible[intervals.device] = True
    counts["never_eligible"] = int(np.count_nonzero(valid & ~eligible))

    model = [None if (m := record.get("model")) is None else str(m) for record in records.values()]
    return {
        "devices": devices_table(
            ids,
            window_start_us=window[0],
            window_end_us=window[1],
            kind="phone",
            model=model,
            valid=valid,
        ),
        "availability": availability_table(intervals, ids),
        "device_events": _events_table(ids, device, time_us, code, event),
    }


def _events_table(
    ids: list[str],
    device: npt.NDArray[np.int64],
    time_us: npt.NDArray[np.int64],
    code: npt.NDArray[Any],
    event: Any,
) -> Any:
    key_names = [*KEYS, "battery_pct"]
    key_of = np.array([key_names.index(key) for key, _ in EVENTS.values()] + [len(KEYS)])
    # The event's own text where it is a battery level, without its sign.
    level = pc.replace_substring(event, "%", "").cast(pa.string())
    state = pa.array([value for _, value in EVENTS.values()] + [None], pa.string())
    return make_table(
        "device_events",
        {
            "device_id": id_column(device, ids),
            "time_us": time_us,
            "key": id_column(key_of[code], key_names),
            "value": pc.coalesce(state.take(pa.array(code)), level),
        },
    )


def _timer_tables(source: SourceFile, records: Records, counts: dict[str, int]) -> dict[str, Any]:
    ids = list(records)
    valid = np.zeros(len(ids), np.bool_)
    window_s = np.zeros((2, len(ids)))
    lists: list[list[Any]] = []
    ignored = 0
    for row, (key, record) in enumerate(records.items()):
        where = f"{source.where}, device {key}"
        success, ready = record.get("isSuccess"), record["ready_time"]
        if not isinstance(success, bool):
            raise UserError(f"'isSuccess' is {success!r}, not true or false", where=where)
        if not isinstance(ready, list):
            raise UserError("'ready_time' is not a list of [start, end]", where=where)
        if not success:
            ignored += len(ready)
            lists.append([])
            continue
        bounds = record.get("trace_start"), record.get("trace_end")
        if not all(isinstance(bound, int | float) for bound in bounds) or not bounds[0] < bounds[1]:  # type: ignore[operator]
            raise UserError(
                f"the trace is said to be usable but runs from {bounds[0]} to {bounds[1]}",
                where=where,
                hint="set 'isSuccess' to false, or give numbers with trace_start < trace_end",
            )
        window_s[:, row] = bounds
        valid[row] = True
        lists.append(ready)
    lengths = np.fromiter(map(len, lists), np.int64, len(ids))
    device = np.repeat(np.arange(len(ids), dtype=np.int64), lengths)

    def record_of(row: int) -> str:
        return f"device {ids[int(device[row])]}"

    pairs = list(chain.from_iterable(lists))
    for row, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2:
            raise UserError(
                f"{pair!r} is not an interval [start, end]",
                where=f"{source.where}, {record_of(row)}",
            )
    try:
        spans = np.fromiter(chain.from_iterable(pairs), np.float64, 2 * len(pairs)).reshape(-1, 2)
    except (TypeError, ValueError):
        row = next(
            row
            for row, pair in enumerate(pairs)
            if not all(isinstance(time, int | float) for time in pair)
        )
        raise UserError(
            f"{pairs[row]!r} does not hold two numbers", where=f"{source.where}, {record_of(row)}"
        ) from None
    check_times(spans[:, 0], record_of, source, "a start")
    check_times(spans[:, 1], record_of, source, "an end")
    check_times(window_s.max(axis=0), lambda row: f"device {ids[row]}", source, "trace_end")
    window = microseconds(window_s)
    intervals = normalise(
        device,
        microseconds(spans[:, 0]),
        microseconds(spans[:, 1]),
        window_start=window[0],
        window_end=window[1],
    )
    counts |= intervals.counts
    counts["invalid_devices"] = int(np.count_nonzero(~valid))
    counts["intervals_of_invalid_devices"] = ignored
    return {
        "devices": devices_table(
            ids, window_start_us=window[0], window_end_us=window[1], kind="phone", valid=valid
        ),
        "availability": availability_table(
            intervals, ids, window_start_us=window[0], window_end_us=window[1]
        ),
    }


def _speed_table(
    source: SourceFile, records: Records, ids: list[str], counts: dict[str, int]
) -> Any:
    chosen = [(row, records[key]) for row, key in enumerate(ids) if key in records]
    counts["speeds_without_device"] = len(records) - len(chosen)
    counts["devices_without_speed"] = len(ids) - len(chosen)
    columns: dict[str, npt.NDArray[np.float64]] = {}
    for field in ("down_u", "down_sigma", "up_u", "up_sigma"):
        values = np.zeros(len(chosen))
        for position, (row, record) in enumerate(chosen):
            value = record.get(field)
            least = 0.0 if field.endswith("sigma") else 1e-9
            if not isinstance(value, int | float) or not least <= value < np.inf:
                raise UserError(
                    f"'{field}' is {value!r}; it must be a positive number (kB/s)",
                    where=f"{source.where}, device {ids[row]}",
                )
            values[position] = value
        columns[field] = values
    # Rows of one device follow each other.
    device = np.repeat([row for row, _ in chosen], 2).astype(np.int64)
    mean = np.column_stack([columns["down_u"], columns["up_u"]]).ravel()
    sigma = np.column_stack([columns["down_sigma"], columns["up_sigma"]]).ravel()
    return make_table(
        "network",
        {
            "device_id": id_column(device, ids),
            "direction": id_column(np.tile([0, 1], len(chosen)), ["down", "up"]),
            "bandwidth_bps": mean * 8000.0,
            "bandwidth_cv": (sigma / mean).astype(np.float32),
        },
    )
