"""Differences between scenarios, and short names that distinguish them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_ABSENT = "\0absent"
_LONGEST_VALUE = 24

Values = Mapping[str, Any]
"""A scenario, or a part of one, as :func:`flattened`."""


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Dotted paths at which two scenarios (as plain data) differ, with both values; None where one lacks it."""
    for key in dict.fromkeys([*first, *second]):
        here, there = first.get(key), second.get(key)
        full_path = f"{path}.{key}" if path else key
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            yield from differences(here, there, full_path)
        elif here != there:
            yield full_path, here, there


def flattened(data: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a scenario (as plain data) by its dotted path; lists and empty mappings are values."""
    for key, value in data.items():
        full_path = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and value:
            yield from flattened(value, full_path)
        else:
            yield full_path, value


def by_section(paths: Sequence[str]) -> dict[str, list[str]]:
    """Dotted paths grouped by section of the scenario, both in order of appearance."""
    sections: dict[str, list[str]] = {}
    for path in paths:
        sections.setdefault(path.partition(".")[0], []).append(path)
    return sections


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The shortest distinct endings of dotted paths, without a final ``name``: ``server.method.name`` becomes
    ``method``."""
    parts = {path: path.removesuffix(".name").split(".") for path in paths}
    result = {}
    for path, words in parts.items():
        others = [other for key, other in parts.items() if key != path]
        result[path] = ".".join(distinct_tail(words, others))
    return result


def distinct_tail(words: Sequence[str], others: Sequence[Sequence[str]]) -> Sequence[str]:
    """The fewest last words that none of the others ends with; all of them if there are none."""
    length = 1
    while length < len(words) and any(o[-length:] == words[-length:] for o in others):
        length += 1
    return words[-length:]


def text(value: Any) -> str:
    """Text that is equal if and only if the values are."""
    return json.dumps(value, sort_keys=True)


def key_of(flat: Values, paths: Sequence[str]) -> str:
    """Text that is equal for two scenarios if and only if they agree in all of these paths."""
    return text([flat.get(path, _ABSENT) for path in paths])


def differing(every: Sequence[Values]) -> list[str]:
    """The paths at which some scenarios differ, in order of appearance."""
    result = []
    for path in dict.fromkeys(path for flat in every for path in flat):
        first, *others = (flat.get(path, _ABSENT) for flat in every)
        # Most values of the runs of a sweep are the same object, because a section is parsed once.
        if any(value is not first and text(value) != text(first) for value in others):
            result.append(path)
    return result


class Namer:
    """Names scenarios by the fewest values that distinguish them; names of parts come before parameters.

    Args:
        paths: paths that may be used.
        every: all scenarios to distinguish.
        fallback: name of a scenario that no value distinguishes.
    """

    def __init__(self, paths: Sequence[str], every: Sequence[Values], fallback: str) -> None:
        self._fallback = fallback
        distinct = len({key_of(flat, paths) for flat in every})

        def rank(path: str) -> int:
            if path.endswith(".name"):
                # The server's parts come first.
                return 0 if path.startswith("server.") else 1
            # If a key is null in one scenario and a section in another, the keys of the section say more.
            return 3 if all(flat[path] is None for flat in every if path in flat) else 2

        chosen: list[str] = []
        for path in sorted(paths, key=rank):
            count = len({key_of(flat, chosen) for flat in every})
            if count == distinct:
                break
            if len({key_of(flat, [*chosen, path]) for flat in every}) > count:
                chosen.append(path)
        for path in [path for path in chosen if not path.endswith(".name")]:
            rest = [other for other in chosen if other != path]
            if len({key_of(flat, rest) for flat in every}) == distinct:
                chosen = rest
        # A scenario that has none of the chosen paths is named by the first one that it has.
        for flat in every:
            if distinct > 1 and all(_source(path, flat) is None for path in chosen):
                chosen += [path for path in sorted(paths, key=rank) if path in flat][:1]
        self._short = short_names(sorted(chosen, key=list(paths).index))
        for path, short in self._short.items():
            # If only some scenarios have a section, the name must show the section.
            section, _, last = path.rpartition(".")
            if short == last and any(section in flat for flat in every):
                self._short[path] = f"{section.rpartition('.')[2]}.{last}"

        # Values of null are left out, unless a name would be empty or two names equal without them.
        names = {self._name(flat, shows_null=False) for flat in every}
        self._shows_null = len(names) < distinct or (distinct > 1 and "" in names)

    def __call__(self, flat: Values) -> str:
        """The name of one of the scenarios: ``fedprox, mu=0.1``."""
        return self._name(flat, shows_null=self._shows_null) or self._fallback

    def _name(self, flat: Values, *, shows_null: bool) -> str:
        pieces: dict[str, None] = {}
        for path, short in self._short.items():
            source = _source(path, flat)
            if source is None or (flat[source] is None and not shows_null):
                continue
            name = short if source == path else source.rpartition(".")[2]
            pieces[_piece(source, name, flat[source])] = None
        return ", ".join(pieces)


def _source(path: str, flat: Values) -> str | None:
    """``path`` if the scenario has it, else the nearest path above it that the scenario has."""
    while path and path not in flat:
        path = path.rpartition(".")[0]
    return path or None


def _piece(path: str, short: str, value: Any) -> str:
    if isinstance(value, str):
        if path.endswith(".name"):
            return value.rpartition(":")[2]
        return f"{short}={value.rpartition('/')[2]}"
    if value is None:
        return f"{short}=none"
    if isinstance(value, float):
        return f"{short}={value:g}"
    written = json.dumps(value)
    if len(written) > _LONGEST_VALUE:
        # Both ends, because either may distinguish it.
        written = f"{written[: _LONGEST_VALUE // 2 - 1]}…{written[-_LONGEST_VALUE // 2 :]}"
    return f"{short}={written}"
