"""Where two scenarios differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Dotted paths at which two scenarios (as plain data) differ, with both values; None where one lacks it."""
    for key in dict.fromkeys([*first, *second]):
        here, there = first.get(key), second.get(key)
        place = f"{path}.{key}" if path else key
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            yield from differences(here, there, place)
        elif here != there:
            yield place, here, there


def flattened(data: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a scenario (as plain data) by its dotted path; lists and empty mappings are values."""
    for key, value in data.items():
        place = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and value:
            yield from flattened(value, place)
        else:
            yield place, value


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The shortest ends of dotted paths that tell them apart; a last ``name`` is left out: ``server.method.name``
    becomes ``method``."""
    parts = {path: path.removesuffix(".name").split(".") for path in paths}
    result = {}
    for path, words in parts.items():
        others = [other for key, other in parts.items() if key != path]
        length = 1
        while length < len(words) and any(o[-length:] == words[-length:] for o in others):
            length += 1
        result[path] = ".".join(words[-length:])
    return result
