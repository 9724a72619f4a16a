"""Checks of the arguments of Python functions: a wrong one is an error that names it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedsim.errors import UserError


def argument_error(name: str, value: object, expected: str, hint: str | None = None) -> UserError:
    """The error for an invalid argument."""
    return UserError(f"must be {expected}, not {value!r}", where=f"argument {name}", hint=hint)


def path_of(name: str, value: object, expected: str = "a path") -> Path:
    """An argument that names a file or folder.

    Raises:
        UserError: it is not a path.
    """
    if not isinstance(value, str | os.PathLike):
        raise argument_error(name, value, expected)
    return Path(value)


def strings(name: str, value: object, hint: str) -> list[str]:
    """An argument that is several strings.

    Raises:
        UserError: it is not a list of strings.
    """
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        listed = list(value)
        if all(isinstance(one, str) for one in listed):
            return listed
    raise argument_error(name, value, "a list of strings", hint)
