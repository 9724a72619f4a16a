"""Errors that fedsim reports.

A :class:`UserError` is a mistake in the user's input: the command line prints its message without a traceback and exits
with code 2. Every function raises it for input that it cannot use; docstrings name other errors, and conditions that
one would not expect. Any other error is a defect of fedsim; the exit code is 1.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import indent
from typing import Any

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that control, reorder or hide text, and those that cannot be encoded."""

_INVISIBLE_OR_BREAK = re.compile(rf"[\n\t]|{_INVISIBLE.pattern}")
_BREAK = re.compile(r"\n(?!  )|\t")
"""What may break a line of a message, except before indented details; perhaps in a value from a file."""
MOST_SHOWN = 50
"""Mistakes that are shown together."""
_LONG_WORD, _LONG_LINE, _MOST_LINES = 500, 4000, 200
"""Limits of a message: characters of a word and of a line, beyond which it is shortened, and lines."""


class FedsimError(Exception):
    """Base of every error that fedsim raises on purpose."""

    exit_code = 1


class UserError(FedsimError):
    """A mistake in the user's input: its location, what is wrong, and how to fix it.

    Args:
        message: what is wrong, in one sentence.
        where: the file, ``file:line:column``, table row or option concerned.
        hint: how to fix it, or which values are allowed.
        rule: the rule that gives this warning.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        where: object = None,
        hint: str | None = None,
        rule: str | None = None,
    ) -> None:
        self.message, self.where, self.hint = map(
            _safe, (message, None if where is None else str(where), hint)
        )
        self.rule = rule
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        text += f" [{self.rule}]" if self.rule else ""
        return f"{text}\n  {self.hint}" if self.hint else text

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows for the error: its message and notes, without the frames of fedsim."""
        return [f"UserError: {self}", *getattr(self, "__notes__", ())]


def details(text: str) -> str:
    """Lines below a message, such as a traceback."""
    return indent(text.rstrip(), "  ", lambda _: True)


def _safe(text: Any) -> Any:
    """Text for a message: short, and without what controls a terminal."""
    if not text or (text.isascii() and text.isprintable() and len(text) <= _LONG_LINE):
        return text
    lines = _BREAK.sub(_escaped, printable(text)).split("\n")[:_MOST_LINES]
    return "\n".join(line if len(line) <= _LONG_LINE else _shortened(line) for line in lines)


def _shortened(line: str) -> str:
    words = re.sub(r"\S+", lambda match: cut(match.group(), _LONG_WORD), line)
    return cut(words, _LONG_LINE)


def cut(text: str, most: int = 60) -> str:
    """The text, with dots instead of what follows its first ``most`` characters: by default as for a value."""
    return text if len(text) <= most else f"{text[:most]}..."


def _escaped(match: re.Match[str]) -> str:
    return repr(match.group())[1:-1]


def printable(data: Any, *, lines: bool = True) -> Any:
    """Plain data with escaped invisible characters, so that no name controls the terminal or looks like another.

    Args:
        data: text, or lists and dictionaries of it.
        lines: whether text may have several lines.
    """
    if isinstance(data, str):
        if data.isascii() and data.isprintable():
            return data
        return (_INVISIBLE if lines else _INVISIBLE_OR_BREAK).sub(_escaped, data)
    if isinstance(data, dict):
        return {
            printable(key, lines=lines): printable(value, lines=lines)
            for key, value in data.items()
        }
    return [printable(each, lines=lines) for each in data] if isinstance(data, list) else data


MORE_THREADS = "raise the limit of processes and threads: ulimit -u 4096"
"""The fix if none can be started."""


class Unreadable(UserError):
    """A file that this process may not open or has no room for, and that may be intact."""


class ProcessLost(UserError):
    """A process that trains for a run has ended, for which the scenario need not be the cause."""


class UserErrors(UserError):
    """Several mistakes, reported together."""

    def __init__(self, errors: Sequence[UserError]) -> None:
        self.errors = tuple(errors)
        super().__init__("")
        self.message = "\n".join(map(str, self.errors))
        self.args = (str(self),)


def combined(errors: Sequence[UserError]) -> UserError:
    """One error for all of these errors (at least one), or for the first of many."""
    if len(errors) > MOST_SHOWN:
        errors = [*errors[:MOST_SHOWN], UserError("further mistakes are not shown")]
    return errors[0] if len(errors) == 1 else UserErrors(errors)


def raise_all(errors: Iterable[UserError]) -> None:
    """Raise the errors as one; return if there are none."""
    if errors := list(errors):
        raise combined(errors)


@contextmanager
def further_checks() -> Iterator[None]:
    """Note on an error raised inside that further checks follow, which may find other mistakes."""
    try:
        yield
    except UserError as error:
        error.add_note("note: further checks follow once this is fixed")
        raise


Kinds = type[BaseException] | tuple[type[BaseException], ...]
_BARE = (ArithmeticError, AttributeError, LookupError, TypeError)
"""Errors whose text says little without their kind."""


def reason(error: BaseException) -> str:
    """The first line of what an error of a library or of the operating system says."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        entry = ".".join(map(str, first["loc"]))
        return f"the entry '{entry}': {first['msg']}" if entry else f"its entries: {first['msg']}"
    if "set_int_max_str_digits" in str(error):  # Its text advises to change that.
        return "it has a number with more than 4,300 digits"
    text = getattr(error, "strerror", None) or str(error).strip()
    kind = f"{type(error).__name__}: " if isinstance(error, _BARE) else ""
    # A heading says nothing alone.
    line = re.sub(r":\s*\n[\s*-]*", ": ", text).partition("\n")[0]
    return kind + cut(line, _LONG_WORD) if text else type(error).__name__


def lacks_threads(text: str) -> bool:
    """Whether the text of an error says that no thread could be started: Arrow reads in threads."""
    return os.strerror(errno.EAGAIN) in text


@contextmanager
def refused(
    what: str, where: object = None, hint: str | None = None, kinds: Kinds = OSError
) -> Iterator[None]:
    """Turn errors of these ``kinds`` inside into one that says ``what`` cannot be done, and the :func:`reason`."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except kinds as error:
        text = f"{what}: {reason(error)}"
        if lacks_threads(text):
            hint = MORE_THREADS
        raise UserError(text, where=where, hint=hint) from error


@contextmanager
def located(where: object) -> Iterator[None]:
    """Say of a mistake inside that it is at ``where``."""
    try:
        yield
    except UserError as error:
        raise UserError(error.message, where=where, hint=error.hint) from error


def without_numbers(message: str) -> str:
    """A message whose numbers are masked: the same for runs that differ in their numbers only."""
    return re.sub(r"\d+(?:[.,]\d+)*", "#", message)


def similar(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar to ``word``, or ends with it (as ``server_lr`` does with ``lr``)."""
    words = [str(item) for item in known]
    # A name that differs only in upper and lower case comes first.
    same = [item for item in words if item.lower() == word.lower()]
    close = same or difflib.get_close_matches(word, words, n=1, cutoff=0.65)
    close = close or [item for item in words if item.lower().endswith(f"_{word.lower()}")]
    return close[0] if close else None


def nearest(word: str, known: Iterable[str]) -> str:
    """``"did you mean 'x'? "`` for the known word that is :func:`similar`, or an empty string if there is none."""
    meant = similar(word, known)
    return "" if meant is None else f"did you mean '{meant}'? "


def nearest_or_all(word: str, known: Iterable[str], every: str) -> str:
    """A hint for an unknown word: only the similar known word, if there is one, else ``every``, which lists them."""
    return nearest(word, known).rstrip() or every


def unknown(
    noun: str, name: str, known: Iterable[str], where: object = None, every: str = ""
) -> UserError:
    """The error for a name that is not ``known``; its hint is that of :func:`nearest_or_all`."""
    known = list(known)
    hint = nearest_or_all(name, known, every or f"known: {', '.join(known)}")
    return UserError(f"there is no {noun} '{name}'", where=where, hint=hint)


class InvariantViolation(FedsimError):
    """A finished run is inconsistent: a defect of fedsim, not of the scenario."""


def argument_error(name: str, value: object, expected: str, hint: str | None = None) -> UserError:
    """The error for an invalid argument."""
    return UserError(f"must be {expected}, not {value!r}", where=f"argument {name}", hint=hint)


def strings(name: str, value: object, hint: str) -> list[str]:
    """An argument that is several strings."""
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        listed = list(value)
        if all(isinstance(one, str) for one in listed):
            return listed
    raise argument_error(name, value, "a list of strings", hint)
