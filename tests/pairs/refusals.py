"""Which combinations of values are refused: learned by trying, and kept in ``refused.json``.

``python -m benchmarks.pairs --learn`` writes the file again, after a part was added or a message has changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from fedsim.errors import UserError, UserErrors, without_numbers
from fedsim.scenario.model import Scenario
from tests.pairs.arrays import Combination, CoveringArray
from tests.pairs.parameters import SLOW, Row, Values, scenario
from tests.pairs.running import prepared

FILE = Path(__file__).with_name("refused.json")
_SUSPECTS = ("task", "schedule", "selection", "edges", "submodels", "energy")
"""Parameters whose first values may be to blame."""


def read() -> dict[Combination, str]:
    """The refused combinations, with the message of each."""
    return {
        _parsed(text): message
        for message, texts in json.loads(FILE.read_text(encoding="utf-8")).items()
        for text in texts
    }


def _parsed(text: str) -> Combination:
    pairs = (one.partition("=") for one in text.split(" + "))
    return frozenset((name, value) for name, _, value in pairs)


def write(refused: dict[Combination, str]) -> None:
    """Replace the file: by message, the combinations."""
    by_message: dict[str, list[str]] = {}
    for combination, message in refused.items():
        text = " + ".join(f"{name}={value}" for name, value in sorted(combination))
        by_message.setdefault(message, []).append(text)
    ordered = {message: sorted(texts) for message, texts in sorted(by_message.items())}
    FILE.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def problems(error: UserError) -> list[str]:
    """What a refusal lacks: where, what is wrong, how to fix it."""
    errors = error.errors if isinstance(error, UserErrors) else (error,)
    sections = "|".join(Scenario.model_fields)
    return [
        f"{lacking} is missing: {one}"
        for one in errors
        for lacking, given in (
            (
                "where",
                re.match(rf"scenario: ({sections})[a-z_.]*: .", f"{one.where}: {one.message}"),
            ),
            ("hint", one.hint),
        )
        if not given
    ]


class Judge:
    """Tells whether rows are refused, and which values are to blame.

    Args:
        table: the parameters.
        folder: the folder of their files.
    """

    def __init__(self, table: dict[str, Values], folder: Path) -> None:
        self.table = table
        self.folder = folder
        self.base = {name: next(iter(values)) for name, values in table.items()} | {"task": "mlp"}

    def refusal(self, row: Row) -> UserError | None:
        """The error of a row; None if it is accepted."""
        try:
            prepared(scenario(row, self.table, self.folder))
        except UserError as error:
            return error
        return None

    def still(self, combination: Combination, message: str) -> bool:
        """Whether a combination that was refused with this message still is."""
        known = {value for values in self.table.values() for value in values}
        if not {value for _, value in combination} <= known:
            return False
        error = self.refusal({**self.base, **dict(combination)})
        return error is not None and message in messages_of(error)

    def blamed(self, row: Row) -> dict[Combination, str]:
        """A smallest refused combination of a refused row, and similar ones, with their messages."""
        chosen = dict(row)
        # First every parameter may be set to its first value, then every one but the suspects.
        for pinned in ((), _SUSPECTS):
            core = dict(row)
            for name, first in self.base.items():
                if name not in pinned and self.refusal({**core, name: first}) is not None:
                    core[name] = first
            some = {
                name: row[name] for name in core if core[name] != self.base[name] or name in pinned
            }
            if self._always_refused(some):
                chosen = some
                break
        for name in list(chosen):
            rest = {other: value for other, value in chosen.items() if other != name}
            if self._always_refused(rest):
                chosen = rest
        message = message_of(self.refusal({**self.base, **chosen}))
        found = [chosen]
        for name in sorted(set(_SUSPECTS) & set(chosen)):
            for value in self.table[name]:
                similar = {**chosen, name: value}
                if self._says({**self.base, **similar}, message) and self._always_refused(similar):
                    found.append(similar)
        return {frozenset(one.items()): message for one in found}

    def _always_refused(self, blamed: Row) -> bool:
        """Whether these values are refused whatever the value of one of the suspects."""
        rows = ({**self.base, name: x} for name in _SUSPECTS for x in self.table[name])
        return bool(blamed) and all(self.refusal({**row, **blamed}) is not None for row in rows)

    def _says(self, row: Row, message: str) -> bool:
        error = self.refusal(row)
        return error is not None and message_of(error) == message


def messages_of(error: UserError | None) -> list[str]:
    """The messages of a refusal by which it is known again: without numbers, and without the name of the file."""
    assert error is not None
    errors = error.errors if isinstance(error, UserErrors) else (error,)
    return [
        without_numbers(f"{one.where}: {one.message}").removeprefix("scenario: ") for one in errors
    ]


def message_of(error: UserError | None) -> str:
    """The first of them."""
    return messages_of(error)[0]


def learn(
    judge: Judge,
    strength: int = 2,
    known: Mapping[Combination, str] = {},
    progress: Callable[[str], None] = lambda _: None,
) -> dict[Combination, str]:
    """Make arrays until one has no row that is refused; those ``known`` to be refused are not tried again."""
    refused = dict(known)
    while True:
        before = len(refused)
        array = CoveringArray(judge.table, strength, refused, SLOW)
        for row in array.rows():
            if judge.refusal(row) is None:
                array.cover(row)
                continue
            blamed = judge.blamed(row)
            for combination in blamed:
                array.refuse(combination)
            refused |= blamed
            progress(f"{array.left} left, {len(refused)} refused: {list(map(sorted, blamed))}")
        if len(refused) == before:
            return refused
