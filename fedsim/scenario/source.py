"""Reads YAML as plain data, with the location of each key and value, and writes plain data as YAML.

Only mappings, lists and scalars of the YAML 1.2 core schema are built, never objects: a scenario file cannot run code.
"""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.tokens import (
    FlowMappingEndToken,
    FlowMappingStartToken,
    FlowSequenceEndToken,
    FlowSequenceStartToken,
)

from fedsim.errors import UserError
from fedsim.parts.component import is_user_reference

KeyPath = tuple[str | int, ...]
"""Path of a value: mapping keys and list positions from the top."""

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_BASED_INTEGER = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"([-+]?)\.(inf|nan)\Z", re.IGNORECASE)
_SYNTAX = {
    "'\\t'": (
        "a tab where YAML requires spaces",
        "indent with spaces; most editors can convert tabs to spaces",
    ),
    "expected ':'": (
        "a ':' is missing after a key, here or in the line above",
        "write a key, a colon, a space and the value",
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
    """Read one YAML document.

    Args:
        text: the document.
        label: its name in messages.

    Raises:
        UserError: it is not YAML, or has several documents, a repeated key or a tag.
    """
    source = Source(label)
    try:
        node = YAML(typ="safe", pure=True).compose(text)
        source.data = None if node is None else _built(node, source)
    except MarkedYAMLError as error:
        raise (_unclosed(error, text, label) or _syntax_error(error, label)) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(
            f"the character {chr(error.character)!r} is not allowed in YAML"
            if isinstance(error.character, int)
            else "it is not text",
            where=f"{label}:{line}",
            hint="save the file as plain UTF-8 text",
        ) from None
    except YAMLError as error:
        raise UserError(f"not YAML: {error}", where=label) from None
    except RecursionError:
        raise UserError("lists or mappings are nested too deeply", where=label) from None
    return source


def read_yaml(path: Path) -> Source:
    """Read a YAML file.

    Raises:
        UserError: it cannot be read, or is not one YAML document.
    """
    label = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        is_folder = path.is_dir()
        folder = path if is_folder else path.parent
        held = sorted(item.name for item in folder.glob("*.y*ml"))[:12]
        raise UserError(
            "is a folder, not a scenario file" if is_folder else "no such file",
            where=label,
            hint=f"{folder} contains {', '.join(held)}" if held else None,
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"is not UTF-8 text (byte {error.start})", where=label, hint="save it as UTF-8"
        ) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=label) from None
    return parse_yaml(text, label)


def to_yaml(data: Any) -> str:
    """Plain data as YAML in the order of its keys; lists of plain values are on one line."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 120
    yaml.representer.add_representer(
        type(None),
        lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null"),
    )
    stream = io.StringIO()
    yaml.dump(_flowing(data), stream)
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
    except YAMLError:
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


def _syntax_error(error: MarkedYAMLError, label: str) -> UserError:
    problem = str(error.problem or error.context)
    where = _location(label, error.problem_mark or error.context_mark)
    known = (fix for part, fix in _SYNTAX.items() if part in problem)
    message, hint = next(known, (f"not YAML: {problem}", None))
    return UserError(message, where=where, hint=hint)


def _built(node: Node, source: Source, path: KeyPath = ()) -> Any:
    """The value of a composed node at ``path``, whose locations are added to the source."""
    location = source.values[path] = _location(source.label, node.start_mark)
    if isinstance(node, ScalarNode):
        return _scalar(node, location)
    if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
        raise _tag_error(str(node.tag), location)
    if isinstance(node, SequenceNode):
        items = []
        for index, item in enumerate(node.value):
            source.keys[(*path, index)] = _location(source.label, item.start_mark)
            items.append(_built(item, source, (*path, index)))
        return items
    assert isinstance(node, MappingNode)
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key_location = _location(source.label, key_node.start_mark)
        if not isinstance(key_node, ScalarNode):
            raise UserError("a key must be plain text", where=key_location)
        key = str(key_node.value)
        if key in result:
            first = f"first at {source.keys[(*path, key)]}"
            raise UserError(f"the key '{key}' appears twice", where=key_location, hint=first)
        source.keys[(*path, key)] = key_location
        result[key] = _built(value_node, source, (*path, key))
    return result


def _scalar(node: ScalarNode, location: str) -> str | int | float | bool | None:
    text = str(node.value)
    kind = str(node.tag).removeprefix(_TAG)
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


def _tag_error(tag: str, location: str) -> UserError:
    return UserError(
        f"the YAML tag '{tag.replace(_TAG, '!!')}' is not supported",
        where=location,
        hint="write plain text, numbers, lists and mappings",
    )


def _number(text: str) -> str | int | float:
    try:
        if _INTEGER.match(text):
            return int(text)
        if _BASED_INTEGER.match(text):
            return int(text, 0)
    except ValueError:
        return text  # too many digits for Python; the parameter's own check reports it
    if _FLOAT.match(text):
        return float(text)
    special = _NOT_FINITE.match(text)
    if special:
        return float(special.group(1) + special.group(2))
    return text


def _flowing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _flowing(item) for key, item in value.items()}
    if isinstance(value, list):
        sequence = CommentedSeq(_flowing(item) for item in value)
        if not any(isinstance(item, dict) for item in value):
            sequence.fa.set_flow_style()
        return sequence
    return value
