"""When a phone may train, as an expression over the states of the phone, and the intervals in which it holds.

Grammar (keywords are case-insensitive)::

    rule  = and { "or" and } ;  and = not { "and" not } ;  not = "not" not | "(" rule ")" | test
    test  = key [ ("==" | "!=") value | ["not"] "in" "(" value { "," value } ")" ]

Keys are ``charging``, ``screen`` and ``lock`` (values ``on``, ``off``; a bare key means ``on``) and ``network`` (values
``wifi 2g 3g 4g 5g unknown none``; ``none`` means not known yet). FLASH's rule is
``charging and network == wifi and lock``. Before the first event of a key, FLASH assumes false: not charging, not on
Wi-Fi, not locked; ``screen_off`` is false at first too, so the screen is on.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedsim.errors import UserError
from fedsim.traces.bundle import Eligibility, TraceBundle
from fedsim.traces.intervals import Intervals, normalize
from fedsim.traces.tables import Bools, Ints, run_starts

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

_Test = Callable[[Mapping[str, str]], bool]


class _Parser:
    """Reads a rule with Python's parser, whose grammar contains that of rules; methods return a test of a state."""

    def __init__(self, text: str) -> None:
        self.text = text

    def error(self, message: str, column: int) -> UserError:
        return UserError(
            f"{message} in '{self.text}'",
            where=f"eligibility, column {column + 1}",
            hint=f"write for example: {FLASH_RULE}; keys: {', '.join(KEYS)}; and, or, not, ==, !=, in (...)",
        )

    def parse(self) -> _Test:
        # A name cannot begin with a digit in Python: 5g is read as g5.
        text = re.sub(r"\b([2-5])g\b", r"g\1", self.text.lower())
        text = re.sub(r"\s", " ", text)
        try:
            # In parentheses, it may begin with a space.
            return self.test(ast.parse(f"({text})", mode="eval").body)
        except SyntaxError as error:
            raise self.error(error.msg, max((error.offset or 0) - 2, 0)) from error

    def test(self, node: ast.expr) -> _Test:
        match node:
            case ast.BoolOp(op, values):
                combined = any if isinstance(op, ast.Or) else all
                tests = [self.test(value) for value in values]
                return lambda state: combined(test(state) for test in tests)
            case ast.UnaryOp(ast.Not(), operand):
                test = self.test(operand)
                return lambda state: not test(state)
            case ast.Name(key) if STATES.get(key) is SWITCH:
                return lambda state: state[key] == "on"
            case ast.Compare(ast.Name(key), [operator], [values]) if key in STATES:
                several = isinstance(operator, ast.In | ast.NotIn)
                if several or isinstance(operator, ast.Eq | ast.NotEq):
                    items = values.elts if several and isinstance(values, ast.Tuple) else [values]
                    words = {self.value(key, item) for item in items}
                    negated = isinstance(operator, ast.NotEq | ast.NotIn)
                    return lambda state: (state[key] in words) != negated
            case ast.Name(key) if key in STATES:
                raise self.error(
                    f"{key} is not a switch; compare it with a value", max(node.col_offset - 1, 0)
                )
        names = ", ".join(KEYS)
        raise self.error(
            f"expected one of {names}, or a comparison of it", max(node.col_offset - 1, 0)
        )

    def value(self, key: str, node: ast.expr) -> str:
        word = node.id if isinstance(node, ast.Name) else getattr(node, "value", None)
        word = re.sub(r"^g([2-5])$", r"\1g", str(word))
        if word not in STATES[key]:
            raise self.error(
                f"{key} is one of {', '.join(STATES[key])}", max(node.col_offset - 1, 0)
            )
        return word


@dataclass(frozen=True)
class Rule:
    """A parsed rule.

    Args:
        text: the expression.
        table: whether each combination of states is eligible, one axis per key in the order of :data:`KEYS`.
    """

    text: str
    table: Bools

    @classmethod
    def parse(cls, text: str) -> Rule:
        """The rule written as ``text``.

        Raises:
            UserError: ``text`` does not follow the grammar; names the column.
        """
        test = _Parser(text).parse()
        table = np.zeros(tuple(len(values) for values in STATES.values()), np.bool_)
        for position in itertools.product(*(range(size) for size in table.shape)):
            state = {key: STATES[key][code] for key, code in zip(KEYS, position, strict=True)}
            table[position] = test(state)
        return cls(text, table)


def eligible_intervals(
    rule: Rule, device: Ints, time_us: Ints, key: Ints, value: Ints
) -> Intervals:
    """Intervals in which the rule holds, from state changes; those still open at a device's end are dropped.

    Changes at the same instant take effect one after another; the resulting empty intervals are dropped and touching
    ones are merged, as in FLASH.

    Args:
        device: row of the device of each change; sorted by device, then time, then the source's order.
        time_us: instant of the change.
        key: position in :data:`KEYS`; other numbers are changes that rules ignore.
        value: position among the states of the key.

    Returns:
        The intervals; ``origin`` is the row of the change that ended each. Counts as in
        :func:`~fedsim.traces.intervals.normalize`, and ``open_at_end``.
    """
    count = len(device)
    first = run_starts(device)
    first_row = np.maximum.accumulate(np.where(first, np.arange(count), 0))
    states = []
    for position, name in enumerate(KEYS):
        latest = np.maximum.accumulate(np.where(key == position, np.arange(count), -1))
        initial = STATES[name].index(INITIAL[name])
        states.append(np.where(latest >= first_row, value[np.maximum(latest, 0)], initial))
    holds = rule.table[tuple(states)] if count else np.zeros(0, np.bool_)
    before = np.zeros(count, np.bool_)
    before[1:] = holds[:-1]
    before &= ~first
    begins = np.flatnonzero(holds & ~before)
    # The next change after which the rule no longer holds, if it belongs to the same device.
    ends = np.flatnonzero(~holds & before)
    ending = np.searchsorted(ends, begins)
    closed = ending < len(ends)
    closed[closed] = device[ends[ending[closed]]] == device[begins[closed]]
    begins, ends = begins[closed], ends[ending[closed]]
    result = normalize(device[begins], time_us[begins], time_us[ends], merge_touching=True)
    counts = result.counts | {"open_at_end": int(np.count_nonzero(~closed))}
    return replace(result, origin=ends[result.origin], counts=counts)


def rederive(bundle: TraceBundle, expression: str) -> TraceBundle:
    """The bundle with its availability derived from ``device_events`` by another rule.

    Raises:
        UserError: the expression does not follow the grammar, or the bundle has no device_events.
    """
    rule = Rule.parse(expression)
    device = bundle.device_rows("device_events")
    key = _positions(KEYS, *bundle.text_codes("device_events", "key"))
    codes, words = bundle.text_codes("device_events", "value")
    value = np.full(len(key), -1, np.int64)
    for position, name in enumerate(KEYS):
        chosen = np.flatnonzero(key == position)
        value[chosen] = _positions(STATES[name], codes[chosen], words)
        unknown = chosen[value[chosen] < 0]
        if len(unknown):
            row = int(unknown[0])
            raise bundle.error(
                f"device_events row {row}: {name} has no state '{[*words, None][codes[row]]}'",
                f"its states are: {', '.join(STATES[name])}",
            )
    intervals = eligible_intervals(
        rule, device, bundle.numpy("device_events", "time_us"), key, value
    )
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


def _positions(known: tuple[str, ...], codes: Ints, words: list[str]) -> Ints:
    """Position in ``known`` of the word of each code; -1 if it is not in it. Shape (n,)."""
    return np.array([known.index(word) if word in known else -1 for word in [*words, None]])[codes]
