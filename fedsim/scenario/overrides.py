"""Overrides: values set by dotted path: ``-s training.optimizer.lr=0.05``, or a sweep's grid."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedsim.errors import UserError, cut, strings
from fedsim.scenario.source import MOST_LEVELS, KeyPath, Source, parse_yaml

_SHOWN = 500
"""Characters of an option that a message repeats."""


@dataclass(frozen=True)
class Override:
    """One value by its path.

    Attributes:
        path: keys from the top, such as ``training.optimizer.lr``; a number picks an item of a list.
        value: the value; a whole section or part may be given as a mapping.
        where: its name in messages.
    """

    path: str
    value: Any
    where: str

    @classmethod
    def parse(cls, text: str, form: str = "option -s {}") -> Override:
        """Read ``path=value``; the value is YAML."""
        # Every error has it; there may be as many as entries.
        where = form.format(cut(text, _SHOWN))
        path, equals, value = text.partition("=")
        if not equals or not all(path.strip().split(".")):
            raise UserError(
                "write a dotted path, '=' and a value",
                where=where,
                hint=f"for example {form.partition(' ')[2].format('training.optimizer.lr=0.05')}",
            )
        if not value.strip():
            raise UserError(
                "gives no value",
                where=where,
                hint="write one, such as null or {} where the key allows it, or leave the option out",
            )
        # No plain text may begin with a percent sign in YAML, but forms of times do.
        is_form = value.strip().startswith("%")
        return cls(path.strip(), value.strip() if is_form else parse_yaml(value, where).data, where)


def from_python(overrides: Iterable[str] | Mapping[str, Any]) -> list[Override]:
    """The overrides of the argument ``overrides`` of a Python function: strings, or values by path."""
    if isinstance(overrides, Mapping):
        for path in overrides:
            if not isinstance(path, str) or not all(path.split(".")):
                raise UserError(
                    f"keys must be dotted paths, not {path!r}",
                    where="argument overrides",
                    hint='for example overrides={"training.optimizer.lr": 0.05}',
                )
        form = 'argument overrides={{"{}": ...}}'
        return [Override(path, value, form.format(path)) for path, value in overrides.items()]
    given = strings("overrides", overrides, 'for example overrides={"training.optimizer.lr": 0.05}')
    return [Override.parse(text, 'argument overrides=["{}"]') for text in given]


def apply_overrides(source: Source, overrides: Iterable[Override | str]) -> Source:
    """The source with these values set, later ones over earlier ones; missing sections on the way are created."""
    result = Source(
        source.label, copy.deepcopy(source.data), dict(source.keys), dict(source.values)
    )
    for item in overrides:
        _apply(result, Override.parse(item) if isinstance(item, str) else item)
    return result


def _apply(source: Source, override: Override) -> None:
    if source.data is None:
        source.data = {}
    parts = override.path.split(".")
    if len(parts) > MOST_LEVELS:
        message = f"more than {MOST_LEVELS} levels of nesting"
        raise UserError(message, where=override.where)
    target: Any = source.data
    path: KeyPath = ()
    for depth, key in enumerate(parts):
        last = depth == len(parts) - 1
        if isinstance(target, dict):
            path = (*path, key)
            source.keys.setdefault(path, override.where)
            if last:
                target[key] = copy.deepcopy(override.value)
            elif isinstance(target.get(key), str):
                # A part in its short form, whose parameter this is.
                source.values[(*path, "name")] = source.value_place(path)
                target[key] = {"name": target[key]}
            elif target.get(key) is None:
                target[key] = {}
                source.keys[path] = source.values[path] = override.where
            if not last:
                target = target[key]
        elif isinstance(target, list):
            if not key.isdecimal() or len(key) > 9 or int(key) >= len(target):
                raise UserError(
                    f"'{'.'.join(parts[:depth])}' is a list of {len(target)} items",
                    where=override.where,
                    hint=f"'{key}' must be a number from 0 to {len(target) - 1}",
                )
            path = (*path, int(key))
            if last:
                target[int(key)] = copy.deepcopy(override.value)
            else:
                target = target[int(key)]
        else:
            raise UserError(
                f"'{'.'.join(parts[:depth])}' is {target!r} and has no key '{key}'"
                if depth
                else "the scenario is not a mapping",
                where=override.where,
            )
    # The values below this path come from the override, too.
    for places in (source.keys, source.values):
        for known in [known for known in places if known[: len(path)] == path]:
            del places[known]
        places[path] = override.where
