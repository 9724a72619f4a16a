"""Translates validation errors of pydantic into messages for the author of a scenario."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from fedsim.errors import UserError, combined, cut, nearest, nearest_or_all
from fedsim.scenario.source import KeyPath, Source
from fedsim.units import NS_PER_S, share_of, without_comma


@dataclass(frozen=True)
class Problem:
    """One mistake in a scenario.

    Attributes:
        path: path in the data.
        message: what is wrong.
        hint: how to fix it.
        at: whether the location to report is that of the key or of the value.
    """

    path: KeyPath
    message: str
    hint: str | None = None
    at: Literal["key", "value"] = "value"

    def to_error(self, source: Source) -> UserError:
        """The error, with its location in ``source``."""
        locate = source.key_place if self.at == "key" else source.value_place
        dotted = ".".join(str(key) for key in self.path)
        return error_at(locate(self.path), dotted, self.message, self.hint)


def error_at(
    where: str, key: str, message: str, hint: str | None, rule: str | None = None
) -> UserError:
    """An error about a key; an option that sets this key already names it in ``where``."""
    starts = (f"option -s {key}=", f'argument overrides=["{key}=', f'argument overrides={{"{key}":')
    named = not key or where.startswith(starts)
    text = message if named else f"{key}: {message}"
    return UserError(text, where=where, hint=hint, rule=rule)


@dataclass(frozen=True)
class _Entry:
    """An error of pydantic, with its path in the data and the branches of unions that it belongs to."""

    path: KeyPath
    branches: tuple[tuple[int, str], ...]
    error: Any


def problems(error: ValidationError, data: Any) -> list[Problem]:
    """The problems that pydantic found in ``data``."""
    entries = [_entry(item, data) for item in error.errors(include_url=False)]
    return [_problem(group) for group in _choose_branches(entries)]


def all_errors(reported: Iterable[Problem], source: Source) -> UserError:
    """One error for all problems, in the order of the file; missing keys come last."""
    order = {path: number for number, path in enumerate(source.keys)}
    ranked = sorted(
        dict.fromkeys(reported),
        key=lambda problem: order.get(problem.path, order.get(problem.path[:-1], len(order))),
    )
    return combined([problem.to_error(source) for problem in ranked])


def shown(value: Any) -> str:
    """A value as YAML, shortened."""
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    return cut(repr(value))


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
    """Group the entries into problems.

    Of the branches of a union, only the one that matches the value best is reported. If all branches reject the value
    itself, their errors form one group of alternatives.
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
        chosen = [_choose_branches(of_branch) for of_branch in branches.values()]
        if all(group[0].path == path for branch in chosen for group in branch):
            groups.append([entry for branch in chosen for group in branch for entry in group])
        else:
            # The one with the deepest errors, of which fewer are better.
            best: list[list[_Entry]] = max(
                chosen, key=lambda branch: (min(len(one[0].path) for one in branch), -len(branch))
            )
            groups += best
    return groups


def _problem(group: Sequence[_Entry]) -> Problem:
    if len(group) == 1:
        return _translate(group[0])
    # If one branch could read the value, it does not help to say that others expect a list.
    relevant = [
        entry for entry in group if not entry.error["type"].endswith(("list_type", "dict_type"))
    ]
    translated = [_translate(entry) for entry in relevant or group]
    messages = list(dict.fromkeys(item.message for item in translated))
    return Problem(
        group[0].path,
        _join_alternatives(messages),
        next((item.hint for item in translated if item.hint), None),
    )


def _join_alternatives(messages: Sequence[str]) -> str:
    """One sentence from ``must be a, not x`` and ``must be b, not x``."""
    tails = {message.rpartition(", not ")[2] for message in messages if ", not " in message}
    if len(tails) == 1 and all(message.startswith("must be ") for message in messages):
        heads = [message.rpartition(", not ")[0].removeprefix("must be ") for message in messages]
        if "a number" in heads:  # includes integers
            heads = [head for head in heads if head != "a whole number"]
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
        hint = nearest_or_all(context["tag"], names, f"known: {', '.join(names)}")
        return Problem((*path, "name"), f"'{context['tag']}' is unknown", hint)
    if kind == "union_tag_not_found":
        return Problem((*path, "name"), "is missing", "give the name", at="key")
    if kind == "value_error":
        return Problem(path, str(context["error"]))
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        if value is not None:
            hint = "write its keys below it, or in braces: {key: value}"
        else:
            # A section may need keys, so that an empty one is no way out.
            hint = "write {} to clear it" if kind == "dict_type" else None
        return Problem(path, f"must be a mapping of keys to values, not {shown(value)}", hint)
    if kind == "path_type":
        return Problem(path, f"must be a path, not {shown(value)}")
    if kind == "greater_than_equal" and context["ge"] == 1 / NS_PER_S:
        return Problem(path, f"must be longer than 0 s, not {shown(value)}")
    message = error["msg"].replace("Input should be", "must be").replace("a valid ", "a ")
    message = message.replace("a integer", "a whole number")
    message = f"{message[0].lower()}{message[1:].split(', ')[0]}, not {shown(value)}"
    example = share_of(value) if kind.startswith("float") else ""
    if example and path[-1] == "over_selection":
        example = f"{1 + float(example):g} for {shown(value)} more".replace("'", "")
    if kind == "list_type" and isinstance(value, int | float | str):
        example = f"[{shown(value)}]"
    is_number = kind.startswith(("float", "int"))
    hint = f"write {example}" if example else without_comma(value) if is_number else ""
    return Problem(path, message, hint or None)


def _words(quoted: str) -> list[str]:
    """The words in ``'a', 'b' or 'c'``."""
    return re.findall(r"'([^']*)'", quoted)
