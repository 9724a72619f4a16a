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

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedsim.errors import UserError
from fedsim.traces.arrays import Bools, Ints, run_starts
from fedsim.traces.bundle import Eligibility, TraceBundle
from fedsim.traces.ordering import Intervals, normalize
from fedsim.vocabulary.formatting import format_count

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
MOST_WORDS = 1000
"""Maximum number of tokens in a rule; a longer one takes seconds to evaluate and is certainly a mistake."""

_TOKEN = re.compile(r"\s*(?:(==|!=|[(),])|([A-Za-z0-9_]+)|'([A-Za-z0-9_]+)'|\"([A-Za-z0-9_]+)\")")
_Test = Callable[[Mapping[str, str]], bool]


class _Parser:
    """Recursive descent over the tokens; each method returns a test of a state."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, int]] = []
        at = 0
        end = len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                column = at + len(text[at:]) - len(text[at:].lstrip())
                raise self.error(f"unexpected '{text[column]}'", column)
            word = next(group for group in match.groups() if group is not None)
            self.tokens.append((word.lower(), match.end() - len(match.group().lstrip())))
            at = match.end()
            if len(self.tokens) > MOST_WORDS:
                raise self.error(f"more than {format_count(MOST_WORDS)} words", at)
        self.next = 0
        self.depth = 0

    def error(self, message: str, column: int) -> UserError:
        shown = self.text if len(self.text) <= 200 else f"{self.text[:197]}..."
        return UserError(
            f"{message} in '{shown}'",
            where=f"eligibility, column {column + 1}",
            hint=f"write for example: {FLASH_RULE}; keys: {', '.join(KEYS)}; and, or, not, ==, !=, in (...)",
        )

    def peek(self) -> str:
        return self.tokens[self.next][0] if self.next < len(self.tokens) else ""

    def column(self) -> int:
        return self.tokens[self.next][1] if self.next < len(self.tokens) else len(self.text)

    def take(self, *words: str) -> str:
        if self.peek() in words:
            self.next += 1
            return self.tokens[self.next - 1][0]
        return ""

    def expect(self, *words: str) -> str:
        word = self.take(*words)
        if not word:
            shown = f"'{self.peek()}'" if self.peek() else "the end"
            raise self.error(f"expected {' or '.join(words)}, found {shown}", self.column())
        return word

    def parse(self) -> _Test:
        test = self.any_of()
        if self.peek():
            raise self.error(f"expected and, or, or the end, found '{self.peek()}'", self.column())
        return test

    def any_of(self) -> _Test:
        tests = [self.all_of()]
        while self.take("or"):
            tests.append(self.all_of())
        return lambda state: any(test(state) for test in tests)

    def all_of(self) -> _Test:
        tests = [self.negation()]
        while self.take("and"):
            tests.append(self.negation())
        return lambda state: all(test(state) for test in tests)

    def negation(self) -> _Test:
        self.depth += 1
        if self.depth > 100:
            raise self.error("nested too deeply", self.column())
        try:
            if self.take("not"):
                test = self.negation()
                return lambda state: not test(state)
            if self.take("("):
                test = self.any_of()
                self.expect(")")
                return test
            return self.comparison()
        finally:
            self.depth -= 1

    def comparison(self) -> _Test:
        column = self.column()
        key = self.expect(*KEYS)
        if operator := self.take("==", "!="):
            value = self.value(key)
            return lambda state: (state[key] == value) == (operator == "==")
        negated = bool(self.take("not"))
        if self.expect("in") if negated else self.take("in"):
            self.expect("(")
            values = {self.value(key)}
            while self.take(","):
                values.add(self.value(key))
            self.expect(")")
            return lambda state: (state[key] in values) != negated
        if STATES[key] is not SWITCH:
            raise self.error(f"{key} is not a switch; compare it with a value", column)
        return lambda state: state[key] == "on"

    def value(self, key: str) -> str:
        return self.expect(*STATES[key])


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
        :func:`~fedsim.traces.ordering.normalize`, and ``open_at_end``.
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
