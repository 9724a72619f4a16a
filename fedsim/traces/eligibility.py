"""When a device is available, as an expression over its states, and the intervals in which it holds.

Grammar (keywords are case-insensitive)::

    rule  = and { "or" and } ;  and = not { "and" not } ;  not = "not" not | "(" rule ")" | test
    test  = key [ ("==" | "!=") value | ["not"] "in" "(" value { "," value } ")" | ("<" | "<=" | ">" | ">=") number ]

A bare key means ``on``, ``true``, ``yes`` or ``1``. Keys of FLASH's phones are ``charging``, ``screen`` and ``lock``
(values ``on``, ``off``) and ``network`` (values ``wifi 2g 3g 4g 5g unknown none``; ``none`` means not known yet).
FLASH's rule is ``charging and network == wifi and lock``. Before the first event of a key, FLASH assumes false: not
charging, not on Wi-Fi, not locked; ``screen_off`` is false at first too, so the screen is on.

An unknown state leaves a test undecided, and a rule whose value depends on it (Kleene's logic).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import reduce
from textwrap import shorten
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import UserError
from fedsim.traces.bundle import Eligibility, TraceBundle
from fedsim.traces.intervals import Intervals, normalize
from fedsim.traces.tables import run_starts
from fedsim.vocabulary.arrays import Ints
from fedsim.vocabulary.formatting import format_names

SWITCH = ("off", "on")
STATES: Mapping[str, tuple[str, ...]] = {
    "charging": SWITCH,
    "network": ("none", "wifi", "2g", "3g", "4g", "5g", "unknown"),
    "screen": SWITCH,
    "lock": SWITCH,
}
KEYS = tuple(STATES)
INITIAL = {"charging": "off", "network": "none", "screen": "on", "lock": "off"}
FLASH_RULE = "charging and network == wifi and lock"
ON = {"on", "true", "t", "yes", "1"}
OFF = {"off", "false", "f", "no", "0"}

_MOST_LEVELS = 100
_ORDERS = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
# From the position of each key's state among its states (-1: unknown) to 1 (holds), -1 (does not) or 0 (undecided).
_Test = Callable[[Mapping[str, Ints]], Ints]


class Rule:
    """A rule over ``states`` in lower case, read with Python's parser, whose grammar contains that of rules.

    Args:
        text: the expression.
        states: the possible states of each key.
        option: where the rule is written, for messages.

    Attributes:
        keys: the keys that it names.
        holds: from the position of each key's state among its states (-1: unknown) to 1 where the rule holds, -1 where
            it does not, and 0 where the unknown states decide.
    """

    def __init__(
        self,
        text: str,
        states: Mapping[str, tuple[str, ...]] = STATES,
        option: str = "eligibility",
    ) -> None:
        self.text, self.states, self.option = text, states, option
        self.keys: set[str] = set()
        # A name cannot begin with a digit in Python: 5g is read as g5.
        python = re.sub(r"\s", " ", re.sub(r"\b([2-5])g\b", r"g\1", text.lower()))
        # In parentheses, it may begin with a space.
        self._source = f"({python})".encode()
        try:
            self.holds = self._test(ast.parse(self._source, mode="eval").body)
        except SyntaxError as error:
            raise self._error(error.msg, (error.offset or 0) - 2) from error
        except (RecursionError, MemoryError) as error:  # MemoryError is that of the parser's stack.
            raise self._error("the rule is nested too deeply", 0) from error

    def _error(self, message: str, column: int) -> UserError:
        return UserError(
            f"{message} in '{shorten(self.text, 200)}'",
            where=f"{self.option}, column {max(column, 0) + 1}",
            hint=f"write for example: {FLASH_RULE}; keys: {', '.join(self.states)}; and, or, not, ==, !=, in (...), "
            "<, <=, >, >=; other values than plain words in quotes: 'not ready'",
        )

    def _test(self, node: ast.expr, level: int = 0) -> _Test:
        if level > _MOST_LEVELS:
            raise RecursionError
        match node:
            case ast.BoolOp(op, values):
                combined = np.maximum if isinstance(op, ast.Or) else np.minimum
                tests = [self._test(value, level + 1) for value in values]
                return lambda codes: reduce(combined, (test(codes) for test in tests))
            case ast.UnaryOp(ast.Not(), operand):
                test = self._test(operand, level + 1)
                return lambda codes: -test(codes)
            case ast.Name(key) if key in self.states and set(self.states[key]) <= ON | OFF:
                return self._among(key, ON)
            case ast.Compare(ast.Name(key), [comparison], [values]) if key in self.states:
                if type(comparison) in _ORDERS and isinstance(values, ast.Constant | ast.UnaryOp):
                    compare = _ORDERS[type(comparison)]
                    limit = self._number(self._word(values), values)
                    words = self.states[key]
                    return self._among(
                        key, {word for word in words if compare(self._number(word, node), limit)}
                    )
                several = isinstance(comparison, ast.In | ast.NotIn)
                if several or isinstance(comparison, ast.Eq | ast.NotEq):
                    items = values.elts if several and isinstance(values, ast.Tuple) else [values]
                    equal = self._among(key, {self._value(key, item) for item in items})
                    if isinstance(comparison, ast.NotEq | ast.NotIn):
                        return lambda codes: -equal(codes)
                    return equal
            case ast.Name(key) if key in self.states:
                raise self._error(
                    f"{key} is not a switch; compare it with a value", node.col_offset - 1
                )
        names = ", ".join(self.states)
        raise self._error(f"expected one of {names}, or a comparison of it", node.col_offset - 1)

    def _among(self, key: str, words: set[str]) -> _Test:
        self.keys.add(key)
        # The last one is that of the code -1.
        holds: Any = np.array([*(2 * (word in words) - 1 for word in self.states[key]), 0], np.int8)
        return lambda codes: holds[codes[key]]

    def _value(self, key: str, node: ast.expr) -> str:
        word = re.sub(r"^g([2-5])$", r"\1g", self._word(node))
        if word.lower() not in self.states[key]:
            raise self._error(
                f"{key} is one of {format_names(self.states[key], 12)}", node.col_offset - 1
            )
        return word.lower()

    def _word(self, node: ast.expr) -> str:
        """A value as it is written, without quotes, such as -90 or interim-update."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        return self._source[node.col_offset : node.end_col_offset].decode()

    def _number(self, word: str, node: ast.expr) -> float:
        try:
            return float(word.removesuffix("%"))
        except ValueError as error:
            raise self._error(f"'{word}' is not a number", node.col_offset - 1) from error


def held(device: Ints, code: Ints, initial: int = -1) -> Ints:
    """The latest code of each row's device that is not negative, else ``initial``; rows are sorted by device."""
    if (code[~run_starts(device)] >= 0).all():
        return np.where(code >= 0, code, initial)
    rows = np.arange(len(device), dtype=np.int32)
    first_row = np.maximum.accumulate(np.where(run_starts(device), rows, 0))
    latest = np.maximum.accumulate(np.where(code >= 0, rows, -1))
    return np.where(latest >= first_row, code[np.maximum(latest, 0)], initial)


def eligible_intervals(
    rule: Rule, device: Ints, time_us: Ints, codes: Mapping[str, Ints]
) -> Intervals:
    """Intervals in which the rule holds, from state changes; those still open at a device's end are dropped.

    Changes at the same instant take effect one after another; the resulting empty intervals are dropped and touching
    ones are merged, as in FLASH.

    Args:
        rule: over the keys of :data:`STATES`.
        device: row of the device of each change; sorted by device, then time, then the source's order.
        time_us: instant of the change.
        codes: by key, the position among its states of the one after each change; -1 if it does not change.

    Returns:
        The intervals, with the counts of :func:`~fedsim.traces.intervals.normalize` and ``open_at_end``.
    """
    states = {
        name: held(device, code, STATES[name].index(INITIAL[name])) for name, code in codes.items()
    }
    holds = rule.holds(states) == 1
    heads = np.flatnonzero(run_starts(device, holds))
    device, time_us, on = device[heads], time_us[heads], holds[heads]
    # The rule ceases to hold at the next change, if it belongs to the same device.
    closed = np.flatnonzero(on[:-1] & (device[1:] == device[:-1]))
    result = normalize(device[closed], time_us[closed], time_us[closed + 1], merge_touching=True)
    result.counts["open_at_end"] = int(np.count_nonzero(on)) - len(closed)
    return result


def rederive(bundle: TraceBundle, expression: str) -> TraceBundle:
    """The bundle with its availability derived from ``device_events`` by another rule."""
    rule, table = Rule(expression), bundle.table("device_events")
    keys, values = (table.column(name).cast(pa.string()) for name in ("key", "value"))
    codes = {}
    for name, states in STATES.items():
        chosen = np.asarray(pc.equal(keys, name))
        position = np.asarray(pc.index_in(values, pa.array(states)).fill_null(-1), np.int64)
        unknown = np.flatnonzero(chosen & (position < 0))
        if len(unknown):
            row = int(unknown[0])
            message = f"device_events row {row}: {name} has no state '{values[row]}'"
            raise bundle.error(message, f"its states are: {', '.join(states)}")
        codes[name] = np.where(chosen, position, -1)
    device, time_us = bundle.device_rows("device_events"), bundle.numpy("device_events", "time_us")
    intervals = eligible_intervals(rule, device, time_us, codes)
    manifest = bundle.manifest.model_copy(
        update={
            "eligibility": Eligibility(words=expression, expression=expression),
            "counts": bundle.manifest.counts | intervals.counts,
            "options": bundle.manifest.options | {"eligibility": expression},
            "sha256": {},
        }
    )
    return TraceBundle(
        manifest, bundle.tables | {"availability": intervals.table(bundle.device_ids)}
    )
