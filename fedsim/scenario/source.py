"""Reads YAML as plain data, with the location of each key and value, and writes plain data as YAML.

Only mappings, lists and scalars of the YAML 1.2 core schema are built, never objects: a scenario file cannot run code.
"""

from __future__ import annotations

import functools
import io
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.tokens import (
    FlowMappingEndToken,
    FlowMappingStartToken,
    FlowSequenceEndToken,
    FlowSequenceStartToken,
)

from fedsim.errors import UserError, printable, raise_all, refused
from fedsim.parts.component import is_user_reference
from fedsim.units import without_comma
from fedsim.vocabulary.formatting import format_bytes, format_count

KeyPath = tuple[str | int, ...]
"""Path of a value: mapping keys and list positions from the top."""

_TAG = "tag:yaml.org,2002:"
_MOST_BYTES, _MOST_KEYS, _MOST_REPEATED, _MOST_VALUES = 5_000_000, 5_000, 10_000, 100_000
MOST_LEVELS = 100
"""Limits: the size of a file, keys of a mapping, values that aliases repeat, and levels of nesting."""
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_BASED_INTEGER = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"([-+]?)\.(inf|nan)\Z", re.IGNORECASE)
_WITHOUT_COLON = re.compile(
    r"\s*(?P<key>\w[\w.-]*)(?:(?P<colon>:)(?=\S)|\s*=\s*|\s+|$)(?P<value>.*?)(?:\s+#.*|\s*)"
)
"""A line with a key and a value, but without the colon and the space between them."""
_SYNTAX = {
    "'\\t'": (
        "a tab where YAML requires spaces",
        "indent with spaces; most editors can convert tabs to spaces",
    ),
    "expected a single document": ("a second document starts here", "remove the line '---'"),
    "another document": ("a second document starts here", "remove the line '---'"),
    "mapping values are not allowed": (
        "a second ':' in what looks like one value",
        "check the indentation, or put a value that contains ': ' in quotes",
    ),
    "expected <block end>": (
        "this line does not fit the lines above it",
        "check its indentation: the keys of one section begin in the same column",
    ),
}
"""Message and hint, by a part of the parser's message."""
_OPENING = {
    FlowMappingEndToken: FlowMappingStartToken,
    FlowSequenceEndToken: FlowSequenceStartToken,
}
"""The token that each closing token belongs to."""

_VERSION = re.compile(r"^%YAML +(\S+)", re.MULTILINE)
_BEYOND_UNICODE = re.compile(r"\\U(?!000|0010)[0-9A-Fa-f]{8}")
"""An escape of which the parser of YAML makes no error of its own."""


@dataclass
class Source:
    """Plain data, and the location of each key and value.

    Attributes:
        label: name of the text in messages: a file as the user named it, or an option.
        data: the value: dicts with text keys, lists, text, numbers, booleans and None.
        keys: location (``file:line:column``) of the key of a value, or of a list item.
        values: location of a value.
    """

    label: str
    data: Any = None
    keys: dict[KeyPath, str] = field(default_factory=dict)
    values: dict[KeyPath, str] = field(default_factory=dict)

    def key_place(self, path: KeyPath) -> str:
        """Location of the key at ``path``, or of the nearest enclosing key that is in the text."""
        return self._nearest(self.keys, path)

    def value_place(self, path: KeyPath) -> str:
        """Location of the value at ``path``, or of the nearest enclosing key that is in the text."""
        return self._nearest(self.values, path)

    def _nearest(self, places: dict[KeyPath, str], path: KeyPath) -> str:
        if path in places:
            return places[path]
        # A value that is not in the text belongs to the enclosing section, whose key is the best location.
        for length in range(len(path) - 1, 0, -1):
            if path[:length] in self.keys:
                return self.keys[path[:length]]
        return self.label


def parse_yaml(text: str, label: str) -> Source:
    """Read one YAML document."""
    source = Source(label)
    builder = _Builder(source)
    if (version := _VERSION.search(text)) and version[1] not in ("1.1", "1.2"):
        line = text.count("\n", 0, version.start()) + 1
        raise UserError(f"is YAML {version[1]}", where=f"{label}:{line}", hint="write YAML 1.2")
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Composer = functools.partial(_Composer, label)  # type: ignore[assignment]
        node = yaml.compose(text)
        source.data = None if node is None else builder.build(node)
    except MarkedYAMLError as error:
        problem = str(error.problem or error.context)
        known = (fix for part, fix in _SYNTAX.items() if part in problem)
        message, hint = next(known, (f"not YAML: {problem}", None))
        where = _location(label, error.problem_mark or error.context_mark)
        raise (
            _unclosed(error, text, label)
            or _without_colon(error, text, label)
            or UserError(message, where=where, hint=hint)
        ) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(
            f"the character {chr(error.character)!r} is not allowed in YAML"
            if isinstance(error.character, int)
            else "it is not text",
            where=f"{label}:{line}",
            hint="it must be plain UTF-8 text",
        ) from None
    except YAMLError as error:
        raise UserError(f"not YAML: {error}", where=label) from None
    except (ValueError, OverflowError):
        beyond = _BEYOND_UNICODE.search(text)
        if beyond is None:
            raise
        line = text.count("\n", 0, beyond.start()) + 1
        raise UserError(
            f"not YAML: {beyond[0]} is not a character",
            where=f"{label}:{line}",
            hint="the last one is \\U0010FFFF; in single quotes, a backslash is itself",
        ) from None
    raise_all(builder.commas)
    return source


def read_yaml(path: Path) -> Source:
    """Read a YAML file."""
    is_no_text = refused("is not UTF-8 text", path, "save it as UTF-8", UnicodeDecodeError)
    with refused("cannot be read", path), is_no_text:
        if not path.exists() or path.is_dir():
            folder = path if path.is_dir() else path.parent
            held = sorted(item.name for item in folder.glob("*.y*ml"))[:12]
            raise UserError(
                "is a folder, not a scenario file" if path.is_dir() else "no such file",
                where=path,
                hint=f"{folder} contains {', '.join(held)}" if held else None,
            )
        if path.is_char_device():
            raise UserError("is a device, not a scenario file", where=path)
        if path.stat().st_size > _MOST_BYTES:
            large = f"is larger than {format_bytes(_MOST_BYTES)}"
            raise UserError(large, where=path, hint="give a scenario file")
        return parse_yaml(path.read_text(encoding="utf-8-sig"), str(path))


def to_yaml(data: Any) -> str:
    """Plain data as YAML in the order of its keys; lists of plain values are on one line.

    Raises:
        UserError: it is too large to be read again.
    """
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 120
    yaml.representer.add_representer(
        type(None),
        lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null"),
    )
    stream = io.StringIO()
    is_short = _count(data) <= _MOST_VALUES
    if is_short:
        yaml.dump(_flowing(data), stream)
    if not is_short or len(stream.getvalue().encode()) > _MOST_BYTES:
        raise UserError(
            f"more than {format_count(_MOST_VALUES)} values or {format_bytes(_MOST_BYTES)} of text",
            where="scenario",
            hint="give the values in a file, such as a trace bundle or a data set",
        )
    return stream.getvalue()


def relocated(value: Any, folder: Path) -> Any:
    """Plain data for a file in ``folder``: paths of files that share a folder with it are relative, others stay."""
    if isinstance(value, dict):
        return {key: relocated(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [relocated(item, folder) for item in value]
    if not isinstance(value, str) or not os.path.isabs(value):
        return value
    path = Path(value)
    is_file = path.exists() or is_user_reference(value)
    shared = os.path.commonpath([path, folder]) != path.anchor
    return os.path.relpath(path, folder) if is_file and shared else value


def _location(label: str, mark: Any) -> str:
    return f"{label}:{mark.line + 1}:{mark.column + 1}" if mark else label


def _unclosed(error: MarkedYAMLError, text: str, label: str) -> UserError | None:
    """The error at a brace, bracket or quotation mark that is never closed; None if there is none.

    The parser notices it only in a later line, or at the end.
    """
    if "found unexpected end of stream" in str(error.problem):
        return _never_closed(error.context_mark, text, label)
    opened = []
    try:
        for token in YAML(typ="safe", pure=True).scan(text):
            if isinstance(token, FlowMappingStartToken | FlowSequenceStartToken):
                opened.append(token)
            elif isinstance(token, FlowMappingEndToken | FlowSequenceEndToken):
                closes = _OPENING[type(token)]
                if not opened or not isinstance(opened[-1], closes):
                    break
                opened.pop()
    except (YAMLError, ValueError, OverflowError):
        return None
    return _never_closed(opened[-1].start_mark, text, label) if opened else None


def _never_closed(mark: Any, text: str, label: str) -> UserError:
    opening = text[mark.index]
    closing = {"{": "}", "[": "]"}.get(opening, opening)
    return UserError(
        f"this {opening} is never closed",
        where=_location(label, mark),
        hint=f"add the missing {closing}",
    )


def _without_colon(error: MarkedYAMLError, text: str, label: str) -> UserError | None:
    """The error at a key without its colon; None if there is none.

    The parser notices it there or in the next line, because it takes the key for the beginning of a longer one.
    """
    if not re.search(
        "expected ':'|mapping values are not|expected <block end>", str(error.problem)
    ):
        return None
    lines = text.splitlines()[: error.problem_mark.line + 1]
    written = [number for number, line in enumerate(lines) if not re.match(r"\s*(#|$)", line)]
    for number in written[-2:][::-1]:
        if parts := _WITHOUT_COLON.fullmatch(lines[number]):
            key, colon, value = parts.group("key", "colon", "value")
            return UserError(
                "a space is missing after the colon"
                if colon
                else f"a ':' is missing after '{key}'",
                where=f"{label}:{number + 1}:{parts.start('key') + 1}",
                hint=f"write {key}: {value or '(its keys belong below it)'}",
            )
    return None


class _Composer(Composer):
    """Composes nodes, within limits that no scenario reaches and hostile files do."""

    def __init__(self, label: str, loader: Any = None) -> None:
        super().__init__(loader)
        self._label, self._values = label, 0
        self.warn_double_anchors = False  # The later one holds from there on.

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node, below ``parent``."""
        problem, self._values = "", self._values + 1
        if self.depth > MOST_LEVELS:
            problem = "the mapping or list is nested too deeply"
        elif isinstance(parent, MappingNode) and len(parent.value) >= _MOST_KEYS:
            problem = f"the mapping has more than {format_count(_MOST_KEYS)} keys"
        elif self._values > _MOST_VALUES:
            problem = f"more than {format_count(_MOST_VALUES)} values"
        if problem:
            mark = self.parser.peek_event().start_mark
            raise UserError(problem, where=_location(self._label, mark))
        return super().compose_node(parent, index)


class _Builder:
    """Converts composed nodes to data."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._seen: set[Node] = set()
        self._repeated = 0
        self.commas: list[UserError] = []
        """One error per number with a decimal comma in a flow mapping, ``{lr: 0,1}``."""

    def build(self, node: Node, path: KeyPath = ()) -> Any:
        """The value of ``node`` at ``path``."""
        location = self._location(node)
        self._source.values[path] = location
        if node in self._seen:
            self._repeated += 1 + len(node.value) // 100  # Characters of a text count too.
        self._seen.add(node)
        if self._repeated > _MOST_REPEATED or len(path) > MOST_LEVELS:
            raise UserError(
                "aliases repeat too many values", where=location, hint="write out what is meant"
            )
        if isinstance(node, ScalarNode):
            return self._scalar(node, location)
        if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            raise _tag_error(str(node.tag), location)
        if isinstance(node, SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self._source.keys[(*path, index)] = self._location(item)
                items.append(self.build(item, (*path, index)))
            return items
        assert isinstance(node, MappingNode)
        result: dict[str, Any] = {}
        previous = None
        for key_node, value_node in node.value:
            if previous and (number := _around_comma(previous[1], key_node, value_node)):
                key = ".".join(map(str, (*path, previous[0].value)))
                self.commas.append(
                    UserError(
                        f"{key}: the number {number} has a comma",
                        where=self._location(previous[1]),
                        hint=without_comma(number),
                    )
                )
                continue
            previous = key_node, value_node
            key_location = self._location(key_node)
            if not isinstance(key_node, ScalarNode) or key_node.tag == f"{_TAG}merge":
                hint = "write the keys out; those of another mapping (<<) are not merged"
                raise UserError("a key must be plain text", where=key_location, hint=hint)
            key = str(self._scalar(key_node, key_location, "str"))
            if key in result:
                raise UserError(
                    f"the key '{key}' appears twice",
                    where=key_location,
                    hint=f"first at {self._source.keys[(*path, key)]}",
                )
            self._source.keys[(*path, key)] = key_location
            result[key] = self.build(value_node, (*path, key))
        return result

    def _location(self, node: Node) -> str:
        return _location(self._source.label, node.start_mark)

    def _scalar(
        self, node: ScalarNode, location: str, kind: str = ""
    ) -> str | int | float | bool | None:
        text = str(node.value)
        if printable(text) != text:
            raise UserError(
                f"the text has a control character: {text[:60]!r}",
                where=location,
                hint="leave it out",
            )
        kind = kind or str(node.tag).removeprefix(_TAG)
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind in ("int", "float"):
            return _number(text)
        # Other scalar forms of YAML 1.1 (yes, off, 1:30, dates) stay text, as in YAML 1.2.
        if kind in ("str", "bool", "timestamp", "merge", "value"):
            return text
        raise _tag_error(str(node.tag), location)


def _around_comma(value: Node, key: Node, nothing: Node) -> str:
    """The number of which ``value`` and the next ``key``, which has no value, are the parts; empty if it is not one."""
    parts = (value, key, nothing)
    if not all(isinstance(part, ScalarNode) and not part.style for part in parts):
        return ""
    number = f"{value.value},{key.value}"
    is_adjacent = key.start_mark.index == value.end_mark.index + 1
    return number if is_adjacent and not nothing.value and without_comma(number) else ""


def _tag_error(tag: str, location: str) -> UserError:
    return UserError(
        f"the YAML tag '{tag.replace(_TAG, '!!')}' is not supported",
        where=location,
        hint="write plain text, numbers, lists and mappings",
    )


def _number(text: str) -> str | int | float:
    try:
        if _BASED_INTEGER.match(text) and not _INTEGER.match(text):
            text = str(int(text, 0))
        if _INTEGER.match(text):
            # Beyond the largest float, it is infinite, as it is with an exponent.
            return int(text) if math.isfinite(float(text)) else float(text)
    except ValueError:
        return text  # too many digits for Python; the parameter's own check reports it
    if _FLOAT.match(text):
        return float(text)
    special = _NOT_FINITE.match(text)
    if special:
        return float(special.group(1) + special.group(2))
    return text


def _count(value: Any) -> int:
    """The number of keys and values of plain data, as :class:`_Composer` counts them."""
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(_count, value.values()))
    return 1 + sum(map(_count, value)) if isinstance(value, list) else 1


def _flowing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _flowing(item) for key, item in value.items()}
    if isinstance(value, list):
        sequence = CommentedSeq(_flowing(item) for item in value)
        if not any(isinstance(item, dict) for item in value):
            sequence.fa.set_flow_style()
        return sequence
    return value
