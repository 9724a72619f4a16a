"""FLASH's phone traces: raw state changes, timers derived from them, and network speeds.

Source: Yang et al., "Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale Smartphone Data",
WWW 2021; FLHetBench (Zhang et al., CVPR 2024) reads the same files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import UserError
from fedsim.files.cells import POSITIVE, TIME_S, Ints
from fedsim.files.sources import Sources
from fedsim.traces.bundle import Eligibility
from fedsim.traces.eligibility import FLASH_RULE, KEYS, STATES, Rule, eligible_intervals
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import (
    Records,
    devices_table,
    microseconds,
    numbers_of,
    observed_tables,
    per_device,
    records_by_field,
)
from fedsim.traces.tables import id_column
from fedsim.units import US_PER_S

EPOCH = "2020-01-02T00:00:00"
EPOCH_UNIX_S = 1_577_923_200
EPOCH_WEEKDAY = 3

# Key and state of each of FLASH's events, in lower case.
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


class Flash(Importer):
    """A raw state file or a timer file, optionally with a speed file.

    Raw states: all states are false at first, a session still open at the end is dropped, touching ones merge; a device
    with a line that is not an event is invalid, as in FLASH. Timers: unchanged, without empty ones. Each device repeats
    with the length of its trace. FLASH includes both ends of an interval; here the end is excluded.
    """

    name = "flash"
    description = "FLASH raw phone states (with an eligibility rule), cached timers, speeds"
    signature = r'"messages": *"|"ready_time"|"down_u"'

    class Params(ImporterParams):
        """Options of the FLASH importer."""

        eligibility: str | None = None
        """Rule for when a phone may train, over charging, network, screen and lock; raw state files only. By default
        FLASH's rule: ``charging and network == wifi and lock``."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One device per phone."""
        files = _load(sources)
        rule = Rule.parse(params.eligibility or FLASH_RULE)
        counts: dict[str, int] = {}
        if "messages" in files:
            tables = _raw_tables(files["messages"], rule, counts)
        elif "ready_time" in files:
            if params.eligibility is not None:
                raise UserError(
                    "FLASH's eligibility rule was already applied to timers",
                    where=files["ready_time"].source.where,
                    hint="leave the rule out, or import FLASH's raw state file",
                )
            tables = _timer_tables(files["ready_time"], counts)
        else:
            tables = {"devices": devices_table(files["down_u"].ids, kind="phone")}
        if "down_u" in files:
            ids = tables["devices"].column("device_id").to_pylist()
            tables["network"] = _speed_table(files["down_u"], ids, counts)
        return Imported(
            tables,
            counts,
            ["local time of each phone, without a zone"],
            Eligibility(
                words="locked, on Wi-Fi and charging" if rule.text == FLASH_RULE else rule.text,
                expression=rule.text,
            ),
            epoch=EPOCH,
            epoch_weekday=EPOCH_WEEKDAY,
            clock="local",
        )


def _load(sources: Sources) -> Mapping[str, Records]:
    """Files by the field that identifies them."""
    files = records_by_field(
        sources,
        {"messages": "raw state", "ready_time": "timer", "down_u": "speed"},
        "devices",
        "give FLASH's state_traces, cached_timers or speed_distri file",
    )
    for kind, file in files.items():
        file.field(kind)
    if {"messages", "ready_time"} <= set(files):
        message = "raw states and timers give the same availability twice"
        raise sources.error(message, "give one of the two")
    return files


def _raw_tables(file: Records, rule: Rule, counts: dict[str, int]) -> dict[str, Any]:
    ids, messages = file.ids, file.field("messages")
    for row, text in enumerate(messages):
        if not isinstance(text, str):
            kind = type(text).__name__
            raise UserError(f"'messages' is a {kind}, not text", where=file.where(row))
    split = pc.split_pattern(pa.array(messages, pa.large_string()), "\n")
    device = np.repeat(np.arange(len(ids), dtype=np.int64), pc.list_value_length(split))
    line = np.arange(len(device)) - np.repeat(
        split.offsets.to_numpy()[:-1], pc.list_value_length(split)
    )
    text = pc.utf8_trim_whitespace(split.flatten())
    filled = pc.not_equal(text, "").to_numpy(zero_copy_only=False)
    text, device, line = text.filter(pa.array(filled)), device[filled], line[filled]

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
            where=f"{file.where(int(device[row]))}, line {line[row] + 1} of messages",
            hint="a line is 'YYYY-mm-dd HH:MM:SS', a tab, and one of: "
            + ", ".join([*EVENTS, "NN.N%"]),
        )
    keep = ~invalid[device]
    chosen = pa.array(keep)
    device = device[keep]
    time_us = (stamp.filter(chosen).to_numpy(zero_copy_only=False) - EPOCH_UNIX_S) * US_PER_S
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

    return {
        "devices": devices_table(
            ids,
            window_start_us=window[0],
            window_end_us=window[1],
            kind="phone",
            model=file.texts("model"),
            valid=valid,
        ),
        "availability": intervals.table(ids),
        "device_events": _events_table(ids, device, time_us, code, event),
    }


def _events_table(
    ids: Sequence[str], device: Ints, time_us: Ints, code: npt.NDArray[Any], event: Any
) -> Any:
    key_names = [*KEYS, "battery_pct"]
    key_of = np.array([key_names.index(key) for key, _ in EVENTS.values()] + [len(KEYS)])
    # The value of a battery level is its text without the percent sign.
    level = pc.replace_substring(event, "%", "").cast(pa.string())
    state = pa.array([value for _, value in EVENTS.values()] + [None], pa.string())
    return per_device(
        ids,
        "device_events",
        device,
        time_us=time_us,
        key=id_column(key_of[code], key_names),
        value=pc.coalesce(state.take(pa.array(code)), level),
    )


def _timer_tables(file: Records, counts: dict[str, int]) -> dict[str, Any]:
    ids = file.ids
    valid = np.zeros(len(ids), np.bool_)
    window_s = np.zeros((2, len(ids)))
    lists: list[list[Any]] = []
    ignored = 0
    for row, record in enumerate(file.by_id.values()):
        where = file.where(row)
        success, ready = record.get("isSuccess"), record["ready_time"]
        if not isinstance(success, bool):
            raise UserError(f"'isSuccess' is {success!r}, not true or false", where=where)
        are_pairs = isinstance(ready, list) and all(
            isinstance(pair, list) and len(pair) == 2 for pair in ready
        )
        if not are_pairs:
            raise UserError("'ready_time' is not a list of [start, end]", where=where)
        lists.append(ready if success else [])
        if not success:
            ignored += len(ready)
            continue
        bounds = record.get("trace_start"), record.get("trace_end")
        if not all(isinstance(bound, int | float) for bound in bounds) or not bounds[0] < bounds[1]:  # type: ignore[operator]
            raise UserError(
                f"is marked as usable but runs from {bounds[0]} to {bounds[1]}",
                where=where,
                hint="set 'isSuccess' to false, or give numbers with trace_start < trace_end",
            )
        window_s[:, row] = bounds
        valid[row] = True
    lengths = np.fromiter(map(len, lists), np.int64, len(ids))
    device = np.repeat(np.arange(len(ids), dtype=np.int64), lengths)

    def location(row: int) -> str:
        return file.where(int(device[row]))

    pairs = list(chain.from_iterable(lists))
    start_s, end_s = (
        numbers_of([pair[end] for pair in pairs], name, location, TIME_S, "s")
        for end, name in enumerate(("a start", "an end"))
    )
    for bound in window_s:
        numbers_of(bound.tolist(), "the window", file.where, TIME_S, "s")
    window = microseconds(window_s)
    counts["invalid_devices"] = int(np.count_nonzero(~valid))
    counts["intervals_of_invalid_devices"] = ignored
    tables, _ = observed_tables(
        ids,
        device,
        microseconds(start_s),
        microseconds(end_s),
        (window[0], window[1]),
        counts,
        kind="phone",
        valid=valid,
    )
    return tables


def _speed_table(file: Records, ids: list[str], counts: dict[str, int]) -> Any:
    rows = [row for row, key in enumerate(ids) if key in file.by_id]
    file.ids = [ids[row] for row in rows]
    counts["speeds_without_device"] = len(file.by_id) - len(rows)
    counts["devices_without_speed"] = len(ids) - len(rows)
    # The rows of a device are adjacent.
    device = np.repeat(rows, 2).astype(np.int64)
    mean = np.column_stack(
        [file.numbers(f"{way}_u", "kB/s", POSITIVE) for way in ("down", "up")]
    ).ravel()
    sigma = np.column_stack(
        [file.numbers(f"{way}_sigma", "kB/s") for way in ("down", "up")]
    ).ravel()
    return per_device(
        ids,
        "network",
        device,
        direction=id_column(np.tile([0, 1], len(rows)), ["down", "up"]),
        bandwidth_bps=mean * 8000.0,
        bandwidth_cv=(sigma / mean).astype(np.float32),
    )
