"""What pydantic found wrong, in words for the person who wrote the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from fedsim.errors import UserError, UserErrors, nearest
from fedsim.scenario.source import KeyPath, Source


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: where in the data.
        message: what.
        hint: how to mend it.
        at: whether the place is the key or the value.
    """

    path: KeyPath
    message: str
    hint: str | None = None
    at: Literal["key", "value"] = "value"

    def to_error(self, source: Source) -> UserError:
        """The error with its place in ``source``."""
        place = source.key_place(self.path) if self.at == "key" else source.value_place(self.path)
        dotted = ".".join(str(part) for part in self.path)
        return UserError(
            f"{dotted}: {self.message}" if dotted else self.message, where=place, hint=self.hint
        )


@dataclass(frozen=True)
class _Entry:
    """An error of pydantic's with its path in the data, and the branches of unions it was tried in."""

    path: KeyPath
    branches: tuple[tuple[int, str], ...]
    error: Any


def problems(error: ValidationError, data: Any) -> list[Problem]:
    """All that pydantic found wrong with ``data``."""
    entries = [_entry(item, data) for item in error.errors(include_url=False)]
    return [_problem(group) for group in _choose_branches(entries)]


def all_errors(found: Iterable[Problem], source: Source) -> UserError:
    """One error for all problems, in the order of the file: what is written there first, then what is missing."""
    order = {path: number for number, path in enumerate(source.keys)}
    ranked = sorted(
        dict.fromkeys(found),
        key=lambda problem: order.get(problem.path, order.get(problem.path[:-1], len(order))),
    )
    errors = [problem.to_error(source) for problem in ranked]
    return errors[0] if len(errors) == 1 else UserErrors(errors)


def shown(value: Any) -> str:
    """A value as it would be written, cut to a readable length."""
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _entry(error: Any, data: Any) -> _Entry:
    location = error["loc"]
    path: list[str | int] = []
    branches: list[tuple[int, str]] = []
    value = data
    for number, element in enumerate(location):
        last = number == len(location) - 1
        is_item = isinstance(value, list) and isinstance(element, int) and element < len(value)
        if is_item or (isinstance(value, dict) and element in value):
            path.append(element)
            value = value[element]
        elif last and error["type"] == "missing":
            path.append(element)
        else:
            branches.append((len(path), str(element)))
    return _Entry(tuple(path), tuple(branches), error)


def _choose_branches(entries: Iterable[_Entry]) -> list[list[_Entry]]:
    """Group the entries into problems: of a union's branches, those that understood most of the value speak.

    Branches that all reject the value itself are alternatives: one group.
    """
    groups: list[list[_Entry]] = []
    unions: dict[KeyPath, dict[str, list[_Entry]]] = {}
    for entry in entries:
        if entry.branches:
            depth, label = entry.branches[0]
            rest = _Entry(entry.path, entry.branches[1:], entry.error)
            unions.setdefault(entry.path[:depth], {}).setdefault(label, []).append(rest)
        else:
            groups.append([entry])
    for path, branches in unions.items():
        chosen = [_choose_branches(found) for found in branches.values()]
        if all(group[0].path == path for branch in chosen for group in branch):
            groups.append([entry for branch in chosen for group in branch for entry in group])
        else:
            best: list[list[_Entry]] = max(chosen, key=_understanding)
            groups.extend(best)
    return groups


def _understanding(groups: list[list[_Entry]]) -> tuple[int, int]:
    """How much of the value a branch of a union understood: how deep it got, then how little it complains."""
    return min(len(group[0].path) for group in groups), -len(groups)


def _problem(group: Sequence[_Entry]) -> Problem:
    if len(group) == 1:
        return _translate(group[0])
    # A value that one branch could read speaks to that branch; that others want a list instead is no help.
    telling = [
        entry for entry in group if not entry.error["type"].endswith(("list_type", "dict_type"))
    ]
    found = [_translate(entry) for entry in telling or group]
    messages = list(dict.fromkeys(item.message for item in found))
    return Problem(
        group[0].path,
        _join_alternatives(messages),
        next((item.hint for item in found if item.hint), None),
    )


def _join_alternatives(messages: Sequence[str]) -> str:
    """``must be a, not x`` and ``must be b, not x`` in one sentence."""
    tails = {message.rpartition(", not ")[2] for message in messages if ", not " in message}
    if len(tails) == 1 and all(message.startswith("must be ") for message in messages):
        heads = [message.rpartition(", not ")[0].removeprefix("must be ") for message in messages]
        return f"must be {' or '.join(dict.fromkeys(heads))}, not {tails.pop()}"
    heads = [
        message.rpartition(", not ")[0] if index else message
        for index, message in enumerate(messages)
    ]
    return ", or ".join(heads)


def _translate(entry: _Entry) -> Problem:
    error, path = entry.error, entry.path
    kind, context, value = error["type"], error.get("ctx", {}), error.get("input")
    if "hint" in context:
        at: Literal["key", "value"] = "key" if kind in ("missing", "extra_forbidden") else "value"
        return Problem(path, error["msg"], context["hint"], at)
    if kind == "literal_error":
        hint = nearest(str(value), _words(context["expected"])).strip() or None
        return Problem(path, f"must be {context['expected']}, not {shown(value)}", hint)
    if kind == "union_tag_invalid":
        names = _words(context["expected_tags"])
        hint = f"{nearest(context['tag'], names)}known: {', '.join(names)}"
        return Problem((*path, "name"), f"there is none named '{context['tag']}'", hint)
    if kind == "union_tag_not_found":
        return Problem((*path, "name"), "is missing", "say which kind it is", at="key")
    if kind == "value_error":
        return Problem(path, str(context["error"]))
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        hint = "write its keys below it, or as {name: ...}" if value is not None else None
        return Problem(path, f"must be a mapping of keys to values, not {shown(value)}", hint)
    if kind == "path_type":
        return Problem(path, f"must be a path, not {shown(value)}")
    message = error["msg"].replace("Input should be", "must be").replace("a valid ", "a ")
    message = message.replace("a integer", "an integer")
    return Problem(path, f"{message[0].lower()}{message[1:].split(', ')[0]}, not {shown(value)}")


def _words(quoted: str) -> list[str]:
    """The words in ``'a', 'b' or 'c'``."""
    return re.findall(r"'([^']*)'", quoted)
