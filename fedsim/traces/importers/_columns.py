"""The columns of tables: their roles, what others call them, and what to say about a table that lacks some."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from fedsim.files.cells import NOT_NEGATIVE, POSITIVE, SHARE, Bounds, Form
from fedsim.files.frames import Frame, TableFile, role_name

TEXTS = ("model", "kind", "group")


class _Number(NamedTuple):
    """A column of numbers: its table and what it is there, the valid values, the option that gives their unit, and how
    they may be written."""

    table: str
    column: str
    bounds: Bounds
    option: str | None = None
    form: Form = ""


NUMBERS: Mapping[str, _Number] = {
    "sample_time": _Number("compute", "sample_s", NOT_NEGATIVE, "compute_unit", "duration"),
    "step_time": _Number("compute", "step_fixed_s", NOT_NEGATIVE, "compute_unit", "duration"),
    "relative_speed": _Number("compute", "relative_speed", POSITIVE, form="share"),
    "score": _Number("compute", "score", POSITIVE),
    "ram_bytes": _Number("compute", "ram_bytes", POSITIVE),
    "down": _Number("network", "down", POSITIVE, "rate_unit"),
    "up": _Number("network", "up", POSITIVE, "rate_unit"),
    "bandwidth": _Number("network", "both", POSITIVE, "rate_unit"),
    "rtt": _Number("network", "rtt_s", NOT_NEGATIVE, "latency_unit", "duration"),
    "loss": _Number("network", "loss", SHARE, "loss_unit", "share"),
}
_ROWS = ("device", "access_point", "start", "end", "duration", "time")
COLUMNS = (*_ROWS, *NUMBERS, *TEXTS, "radio")
_SYNONYMS: Mapping[str, str] = {
    "device": "deviceid devicename client clientid clientname host hostname node nodename machine machinename",
    "start": "started startedat starttime timestart begin",
    "end": "ended endedat endtime timeend stop finished finishedat",
    "time": "timestamp ts datetime eventtime",
    "down": "download downlink",
    "up": "upload uplink",
    "rtt": "latency",
    "loss": "packetloss",
}
"""What others call these columns, without underscores: no name that may also mean something else."""
MANY = 10
"""Rows from which on a column that only grows, or in which no device is named twice, is doubted."""
STATE = re.compile(r"(.*_)?(state|status)")
SWITCH = re.compile(
    r"(is_)?(state|status|online|available|connected|reachable|ready|up|alive|active)"
)
"""Names of switches that are on while a device is available; others may be on while it is not."""
_POINTS = {"ap", "bssid", "cell", "sensor", "gateway", "accesspoint"}
_OTHER_EDGE = {"start": "end", "end": "start", "duration": "start"}
_SHOWN = 25


def missing_columns(frame: Frame, given: Mapping[str, str]) -> tuple[str, str]:
    """What a table lacks, and how to say which of its columns has which role, beside the ``given`` ones."""
    taken = {*COLUMNS, "state", "key"}
    own = {name: name.replace("_", "") for name in frame.names if name not in taken}
    mapping = dict(given)
    for role, words in _SYNONYMS.items():
        same = [name for name, word in own.items() if word in words.split()]
        if role not in frame and len(same) == 1:
            mapping[role] = same[0]
    edges = {"start", "end", "duration"} & {*frame.names, *mapping}
    has_time = "time" in mapping or "time" in frame
    intervals: dict[str, str] = {}
    if len(edges) == 1 and has_time and not {"time", "start", "end"} & {*given}:
        # Of changes and checks, some say how long they took.
        mapping.setdefault("time", "time")
        intervals = {**mapping, _OTHER_EDGE["".join(edges)]: mapping["time"]}
        del intervals["time"]
    for role in ["time"] if len(edges) > 1 else edges if has_time else ():
        if role not in given:
            mapping.pop(role, None)
    roles = {*frame.names, *mapping}
    has_rows = has_time or len(edges) > 1 or {*NUMBERS} & roles
    lacks = ["device"] * ("device" not in roles)
    lacks += [] if has_rows else [f"time, two of start, end and duration, or {', '.join(NUMBERS)}"]
    device = {} if "device" in roles else {"device": "NAME"}
    rows = {} if has_rows else {_OTHER_EDGE.get("".join(edges), "time"): "NAME"}
    option = columns_option({**device, **mapping, **rows})
    if intervals:
        lasts = "lasts its duration" if edges == {"duration"} else "is an interval"
        option += f" if each row is a change, {columns_option(device | intervals)} if each {lasts}"
    file = TableFile(frame.files[0].source)  # Another reading would change the places of rows.
    cells = file.read(file.names)
    first = [str(column[0])[:_SHOWN] if len(column) else "" for column in cells.columns]
    shown = [f"{role_name(n)} ({cell})" for n, cell in zip(file.names, first, strict=True)]
    hint = f"; its columns, with their first cells: {', '.join(shown)}" if shown else ""
    if file.nested:
        hint += f"; lists are left out ({', '.join(file.nested)})"
        lines = (
            f"; if its rows are a list, write them as lines, as with jq -c '.{file.nested[0]}[]'"
        )
        hint += lines * (len(cells) <= 1)
    elif "device" not in roles:
        hint += (
            "; device: file, if each file is one; device: column, if each column beside time is one"
        )
    what = f"has both time and {''.join(edges)}" if intervals else "has other names of columns"
    what = f"has no column {' and no column '.join(lacks)}" if lacks else what
    return what, f"say which column is which, as in {option}{hint}"


def may_be_points(names: list[str]) -> list[str]:
    """The columns that may name the access points that report on devices."""
    return [name for name in names if {name, *name.split("_")} & _POINTS]


def columns_option(mapping: Mapping[str, str]) -> str:
    """The option with this mapping of columns."""
    return f"-s columns='{{{', '.join(f'{role}: {name}' for role, name in mapping.items())}}}'"
