"""The columns of tables: their roles, what others call them, and the mapping that names and cells suggest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedsim.files import cells
from fedsim.files.cells import NOT_NEGATIVE, POSITIVE, SHARE, Bounds
from fedsim.files.frames import COLUMN, FILE
from fedsim.vocabulary.formatting import format_names

TEXTS = ("model", "kind", "group")


class _Number(NamedTuple):
    """A column of numbers: its table and what it is there, the valid values, and the option that gives their unit."""

    table: str
    column: str
    bounds: Bounds
    option: str | None = None


NUMBERS: Mapping[str, _Number] = {
    "sample_time": _Number("compute", "sample_s", NOT_NEGATIVE, "compute_unit"),
    "step_time": _Number("compute", "step_fixed_s", NOT_NEGATIVE, "compute_unit"),
    "relative_speed": _Number("compute", "relative_speed", POSITIVE),
    "score": _Number("compute", "score", POSITIVE),
    "ram_bytes": _Number("compute", "ram_bytes", POSITIVE),
    "down": _Number("network", "down", POSITIVE, "rate_unit"),
    "up": _Number("network", "up", POSITIVE, "rate_unit"),
    "bandwidth": _Number("network", "both", POSITIVE, "rate_unit"),
    "rtt": _Number("network", "rtt_s", NOT_NEGATIVE, "latency_unit"),
    "loss": _Number("network", "loss", SHARE, "loss_unit"),
}
_ROWS = ("device", "access_point", "start", "end", "duration", "time")
COLUMNS = (*_ROWS, *NUMBERS, *TEXTS, "radio")
# What others call these columns: words of their names.
CALLED: Mapping[str, str] = {
    "device": r"host.*|client|node.*|user(name)?|computer|mac|hwaddr|imei|imsi|msisdn|uuid|serial|id|phone|probe|name|"
    r"machine.*|runner.*|sensor|worker|entity|station|instance.*|vehicle|car|dev(eui|addr)?|device.+|target|monitor|"
    r"plug|pc",
    "access_point": r"ap|bssid|cell|sensor|gateway|accesspoint",
    "start": r"(acct|time)?start.*|begin.*|launch.*|obtained|log(ged)?in|connect(ed)?|opened|from|since|"
    r"created|triggered|assoc(iated)?|joined",
    "end": r"(time)?end.*|(acct)?stop.*|returned|terminat.*|expire.*|finish.*|log(ged)?out|disconnect(ed)?|closed|"
    r"resolved|until|to|disassoc(iated)?|left",
    "duration": r"duration|length|elapsed|seconds|.*session_time|.*lifetime",
    "time": r"time.*|date.*|index_level_0|ts|when|at|epoch|t|changed|seen|last_?(time|check|contact|heard).*",
    "state": r"state|status|event|action|reason|value",
    "down": r"down(load|link)?|dl|rx",
    "up": r"up(load|link)?|ul|tx",
    "rtt": r"rtt|ping|latency",
    "loss": r"loss|drop",
    "step_time": r"(step|batch)_.*",
    "relative_speed": r".*_per_s(ec(ond)?)?",
}
# Words of names that are something else.
_NOT_CALLED: Mapping[str, str] = {
    "device": r"metadata|metric|cell|ap|event|state|status",
    "down": r"bytes|octets",
    "up": r"bytes|octets",
    "rtt": r"drop|loss|lost|rate|count|sent|received",
    "relative_speed": r"bits|bytes|packets|b|kb|mb",
}
# Of the last choice: persons, who may have several devices, what may be the id of a row, and what precedes a start.
_WEAK = r"user(name)?|name|id|uuid|serial|created|triggered"
_TIMES, _EDGES = ("start", "end", "time"), ("start", "end", "duration")
MANY = 10
"""Rows from which on a column that only grows, or in which no device is named twice, is doubted."""
STATE = re.compile(r"(.*_)?(state|status)")


def proposed(names: list[str], given: Mapping[str, str], table: Mapping[str, Any]) -> str:
    """The mapping of columns that the names of a table suggest, beside the ``given`` one, as a hint.

    The cells of a column that are in the ``table`` must fit, and of several columns of numbers none is proposed.
    """
    mapping: dict[str, str] = {}
    unclear: dict[str, str] = {}
    for role in (role for role in CALLED if role not in names):
        free = [name for name in names if name not in mapping.values()]
        fitting = [n for n in called(role, free) if n not in table or _fits(role, table[n])]
        if role in NUMBERS and len(fitting) > 1:
            unclear[role] = f"{role} may be one of {', '.join(fitting)}; "
        elif fitting:
            mapping[role] = fitting[0]

    def found(*roles: str) -> set[str]:
        return {*roles} & {*mapping, *names}

    # Of times, none is a span.
    spans = {role for role in _TIMES if _is_span(table.get(mapping.get(role, role)))}
    if spans != found(*_TIMES):
        mapping = {role: name for role, name in mapping.items() if role not in spans}
    edges, has_time = found(*_EDGES), bool(found("time"))
    is_log = len(found("time", "state")) == 2 and STATE.fullmatch(mapping.get("state", "state"))
    if edges >= {"start", "end"} or (is_log and edges == {"duration"}):
        # A check of a state takes a while, too.
        mapping.pop("duration", None)
    elif has_time and edges == {"duration"}:
        # Accounting gives the duration when a session ends.
        edge = "end" if mapping.get("duration", "").endswith("session_time") else "start"
        mapping[edge] = mapping.pop("time", "time")
    elif has_time and len(edges) == 1:
        mapping.pop(edges.pop(), None)
    elif edges == {"start"} and "start" in mapping:
        mapping["time"] = mapping.pop("start")
    if not {"down", "up", "bandwidth", "rtt"} & {*mapping, *names, *unclear}:
        unclear.pop("loss", mapping.pop("loss", None))
    edges, numbers = found(*_EDGES), found(*NUMBERS)
    if edges or (numbers and not is_log):
        of_changes = ("time", "state", "access_point")
        mapping = {role: name for role, name in mapping.items() if role not in of_changes}
    choices, of_file = "".join(unclear.values()), {"device": FILE, **given, **mapping}
    if not (numbers or found("time") or len(edges) > 1) or (found("device") and not mapping):
        # It would be refused, too.
        return choices
    if found("device"):
        return f"give {columns_option({**given, **mapping})}; {choices}"
    others = [name for name in names if name not in {*mapping.values(), *COLUMNS, "state"}]
    hint = f"give {columns_option(of_file)} if each file is one device; {choices}"
    if others:
        shown = f"with the column of the devices as X ({format_names(others, 8)})"
        hint = f"give {columns_option({**of_file, 'device': 'X'})} {shown}, or {hint.removeprefix('give ')}"
    if others and found("time"):
        hint = hint.replace(
            "; ", f", or {columns_option({**of_file, 'device': COLUMN})} if each column is; ", 1
        )
    return hint


def _is_span(column: Any) -> bool:
    """Whether numbers are no instants of this century."""
    if column is None or not cells.are_plain_numbers(column):
        return False
    return cells.recent_unit(cells.numbers(column)[0]) is None


def _fits(role: str, column: Any) -> bool:
    """Whether the cells of a column may have the role that its name suggests."""
    code, words = cells.texts(column)
    if role in ("device", "state"):
        return len(words) < max(len(code), MANY)
    if role in _TIMES:
        # Not true, or 23%.
        are = any(re.fullmatch(r"[\d.e+-]+|(.*\d){4}.*", word) for word in words) or not words
        return are and (role == "end" or 2 * int(np.count_nonzero(code >= 0)) > len(code))
    if role not in (*NUMBERS, "duration"):
        return True
    values, bad = cells.numbers(column)
    if bad.any() or role in ("duration", "loss"):
        return not bad.any()
    # Neither switches, nor what is mostly 0, nor what only grows.
    known = pd.Series(values[~np.isnan(values)])
    grows = len(known) >= MANY and (known.diff()[1:] > 0).all()
    return bool(known.median() > 0 and not known.isin((0, 1)).all() and not grows)


def called(role: str, names: list[str]) -> list[str]:
    """The columns that may have this role, by their names, the best one first."""

    def words(name: str) -> list[str]:
        return [name, *name.split("_")]

    def are(pattern: str, words: Iterable[str]) -> bool:
        return any(re.fullmatch(pattern, word) for word in words)

    free = [name for name in names if name not in (*COLUMNS, "state", "key")]
    free = [n for n in free if not are(_NOT_CALLED.get(role, " "), words(n))]
    fitting = [n for n in free if are(CALLED[role], words(n))]
    # A name of which the last word is such a word goes first, before one that contains it.
    strong = re.compile(rf"(?!({_WEAK})$)({CALLED[role]})").fullmatch
    fitting.sort(
        key=lambda n: (
            not any(map(strong, words(n))),
            not strong(words(n)[-1]),
            not are(CALLED[role], [n]),
        )
    )
    return fitting or get_close_matches(role, free, 1, 0.75)


def columns_option(mapping: Mapping[str, str]) -> str:
    """The option with this mapping of columns."""
    return f"-s columns='{{{', '.join(f'{role}: {name}' for role, name in mapping.items())}}}'"
