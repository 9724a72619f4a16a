"""FLASH's phone traces: raw state changes, timers derived from them, and network speeds.

Source: Yang et al., "Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale Smartphone Data",
WWW 2021; FLHetBench (Zhang et al., CVPR 2024) reads the same files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import UserError
from fedsim.files.cells import POSITIVE, Bounds
from fedsim.files.sources import Sources
from fedsim.traces.bundle import Eligibility
from fedsim.traces.eligibility import FLASH_RULE, KEYS, STATES, Rule, eligible_intervals
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import Records, observed_tables, records_by_field
from fedsim.traces.tables import id_column
from fedsim.units import US_PER_S
from fedsim.vocabulary.arrays import Floats

EPOCH = "2020-01-02T00:00:00"
EPOCH_UNIX_S = 1_577_923_200

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
    with a line that is not an event is invalid, as in FLASH. Timers: unchanged, without empty ones. Each device has its
    own window, with which it repeats: a timer file states it, and in a raw state file it lasts from the phone's first
    line to its last one, as FLASH computes it for its timers. FLASH includes both ends of an interval; here the end is
    excluded.
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
        files = records_by_field(
            sources,
            {"messages": "raw state", "ready_time": "timer", "down_u": "speed"},
            "devices",
            "give FLASH's state_traces, cached_timers or speed_distri file",
        )
        if {"messages", "ready_time"} <= set(files):
            message = "raw states and timers give the same availability twice"
            raise sources.error(message, "give one of the two")
        rule = Rule(params.eligibility or FLASH_RULE)
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
            tables = {"devices": {"device_id": files["down_u"].ids}}
        tables["devices"]["kind"] = "phone"
        if "down_u" in files:
            tables["network"] = _speeds(files["down_u"], tables["devices"]["device_id"], counts)
        return Imported(
            tables,
            counts,
            ["local time of each phone, without a zone"],
            Eligibility(
                words="locked, on Wi-Fi and charging" if rule.text == FLASH_RULE else rule.text,
                expression=rule.text,
            ),
            epoch=EPOCH,
            clock="local",
        )


def _raw_tables(file: Records, rule: Rule, counts: dict[str, int]) -> dict[str, Any]:
    ids = file.ids
    split = pc.split_pattern(pa.array(file.field("messages", str), pa.large_string()), "\n")
    lengths = pc.list_value_length(split).to_numpy()
    device = np.repeat(np.arange(len(ids)), lengths)
    line = np.arange(len(device)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    text = pc.utf8_trim_whitespace(split.flatten())
    fields = pc.extract_regex(text, _LINE)
    time = pc.strptime(
        fields.field("time"), format="%Y-%m-%d %H:%M:%S", unit="s", error_is_null=True
    )
    # The 30th of February is read as a day of March.
    day = pc.utf8_slice_codeunits(fields.field("time"), 8, 10)
    is_day = pc.fill_null(pc.equal(pc.strftime(time, format="%d"), day), False)
    event = pc.utf8_lower(fields.field("event"))
    known = pc.index_in(event, value_set=pa.array(list(EVENTS), pa.large_string()))
    is_level = pc.fill_null(pc.match_substring_regex(event, _BATTERY), False)
    good = pc.and_(is_day, pc.or_(pc.is_valid(known), is_level))
    rows = pd.DataFrame(
        {
            "device": device,
            "line": line,
            "good": good.to_numpy(zero_copy_only=False),
            "time_us": (pc.fill_null(time.cast(pa.int64()), 0).to_numpy() - EPOCH_UNIX_S)
            * US_PER_S,
            "code": pc.fill_null(known, len(EVENTS)).to_numpy(),
            "row": np.arange(len(device)),
        }
    )[pc.not_equal(text, "").to_numpy(zero_copy_only=False)]

    bad = rows[~rows["good"]]
    invalid = np.bincount(bad["device"], minlength=len(ids)) > 0
    counts["invalid_lines"] = len(bad)
    counts["invalid_devices"] = int(np.count_nonzero(invalid))
    if invalid.all():
        first = bad.iloc[0]
        raise UserError(
            f"no device has a usable trace; the first bad line is {text[first['row']].as_py()!r}",
            where=f"{file.where(first['device'])}, line {first['line'] + 1} of messages",
            hint="a line is 'YYYY-mm-dd HH:MM:SS', a tab, and one of: "
            + ", ".join([*EVENTS, "NN.N%"]),
        )
    rows = rows[~invalid[rows["device"]]]
    back = (rows["device"].diff() == 0) & (rows["time_us"].diff() < 0)
    counts["events_out_of_order"] = int(back.sum())
    rows = rows.sort_values(["device", "time_us"], kind="stable")
    window = rows.groupby("device")["time_us"].agg(["min", "max"])
    low, high = window.reindex(range(len(ids)), fill_value=0).to_numpy().T
    valid = high > low
    counts["devices_without_span"] = int(np.count_nonzero(~invalid & ~valid))
    # An invalid device has no window.
    low, high = np.where(valid, low, 0), np.where(valid, high, 0)
    rows = rows[valid[rows["device"]]]
    device, time_us, code = (rows[name].to_numpy() for name in ("device", "time_us", "code"))

    key_names = [*KEYS, "battery_pct"]
    key = np.array([key_names.index(key) for key, _ in EVENTS.values()] + [len(KEYS)])[code]
    value = np.array([STATES[key].index(value) for key, value in EVENTS.values()] + [-1])[code]
    codes = {name: np.where(key == position, value, -1) for position, name in enumerate(KEYS)}
    intervals = eligible_intervals(rule, device, time_us, codes)
    counts |= intervals.counts
    counts["never_eligible"] = int(valid.sum()) - len(np.unique(intervals.device))
    # The value of a battery level is its text without the percent sign.
    level = pc.replace_substring(event.take(pa.array(rows["row"])), "%", "").cast(pa.string())
    state = pa.array([value for _, value in EVENTS.values()] + [None], pa.string())
    return {
        "devices": {
            "device_id": ids,
            "window_start_us": low,
            "window_end_us": high,
            "model": file.texts("model"),
            "valid": valid,
        },
        "availability": intervals.table(ids),
        "device_events": {
            "device_id": id_column(device, ids),
            "time_us": time_us,
            "key": id_column(key, key_names),
            "value": pc.coalesce(state.take(pa.array(code)), level),
        },
    }


def _timer_tables(file: Records, counts: dict[str, int]) -> dict[str, Any]:
    valid = np.array(file.field("isSuccess", bool), np.bool_)
    every = file.field("ready_time")
    ready = [pairs if use else [] for pairs, use in zip(every, valid, strict=True)]
    counts["invalid_devices"] = int(np.count_nonzero(~valid))
    counts["intervals_of_invalid_devices"] = sum(map(len, every)) - sum(map(len, ready))
    device, start_us = file.instants_us([[a for a, _ in pairs] for pairs in ready], "a start")
    _, end_us = file.instants_us([[b for _, b in pairs] for pairs in ready], "an end")
    edges = ("trace_start", "trace_end")
    given = (np.where(valid, np.array(file.field(name), object), 0) for name in edges)
    low, high = (file.instants_us(each[:, None].tolist(), " or ".join(edges))[1] for each in given)
    return observed_tables(file.ids, device, start_us, end_us, (low, high), counts, valid=valid)[0]


def _speeds(file: Records, ids: Sequence[str], counts: dict[str, int]) -> dict[str, Any]:
    rows = [row for row, key in enumerate(ids) if key in file.by_id]
    file.ids = [ids[row] for row in rows]
    counts["speeds_without_device"] = len(file.by_id) - len(rows)
    counts["devices_without_speed"] = len(ids) - len(rows)

    def both(name: str, *bounds: Bounds) -> Floats:
        """A field of both directions; those of a device are adjacent."""
        ways = [file.numbers(f"{way}_{name}", "kB/s", *bounds) for way in ("down", "up")]
        return np.column_stack(ways).ravel()

    mean = both("u", POSITIVE)
    with np.errstate(over="ignore"):  # What is infinite is refused in the bundle.
        mean_bps = mean * 8000.0
        variation = (both("sigma") / mean).astype(np.float32)
    return {
        "device_id": id_column(np.repeat(rows, 2), ids),
        "direction": id_column(np.tile([0, 1], len(rows)), ["down", "up"]),
        "bandwidth_bps": mean_bps,
        "bandwidth_cv": variation,
    }
