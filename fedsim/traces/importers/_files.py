"""Reading of source files: folders, zip archives, gzip, text and JSON, with errors that say where."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fedsim.errors import UserError

# Companions of a data set that lie beside its files.
_COMPANION = re.compile(r"\.|readme|licen[cs]e|copying|sha256sums", re.IGNORECASE)


@dataclass(frozen=True)
class SourceFile:
    """One file of a source, unpacked.

    Args:
        name: path inside the folder or archive that was given, or the file's own name; without ``.gz``.
        where: what messages call it.
        data: its content.
    """

    name: str
    where: str
    data: bytes

    def text(self) -> str:
        """The content as text.

        Raises:
            UserError: not UTF-8.
        """
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise UserError(
                f"is not a text file: {error.reason} at byte {error.start}",
                where=f"{self.where}:{line}",
                hint="give a text file in UTF-8",
            ) from error

    def json(self) -> Any:
        """The content as JSON.

        Raises:
            UserError: not JSON.
        """
        text = self.text()
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(
                f"is not JSON: {error.msg}",
                where=f"{self.where}:{error.lineno}:{error.colno}",
                hint="the file is truncated or of another format",
            ) from error
        except RecursionError as error:
            raise UserError("is nested too deeply to be a trace", where=self.where) from error

    def line(self, number: int) -> str:
        """``file:line``, for messages."""
        return f"{self.where}:{number}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UserError("no such file", where=str(path)) from error
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _unpacked(name: str, where: str, data: bytes) -> SourceFile:
    if not name.endswith(".gz"):
        return SourceFile(name, where, data)
    try:
        return SourceFile(name[: -len(".gz")], where, gzip.decompress(data))
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"is not a whole gzip file: {error}", where=where, hint="copy the file again"
        ) from error


def _archive(path: Path) -> Iterator[SourceFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith("/") or _COMPANION.match(PurePosixPath(name).name):
                    continue
                yield _unpacked(name, f"{path}!{name}", archive.read(name))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UserError(
            f"is not a whole zip archive: {error}", where=str(path), hint="copy the file again"
        ) from error


def source_files(paths: Sequence[Path]) -> Iterator[SourceFile]:
    """The files that ``paths`` name, in the order given; folders and archives sorted by name, without READMEs.

    Raises:
        UserError: a path is missing, unreadable or damaged, or nothing is left.
    """
    found = False
    for path in paths:
        if path.is_dir():
            for file in sorted(p for p in path.rglob("*") if p.is_file()):
                if not _COMPANION.match(file.name):
                    found = True
                    yield _unpacked(file.relative_to(path).as_posix(), str(file), _read(file))
        elif path.suffix == ".zip" and path.exists():
            for member in _archive(path):
                found = True
                yield member
        else:
            found = True
            yield _unpacked(path.name, str(path), _read(path))
    if not found:
        raise UserError(
            "no files to import", where=", ".join(map(str, paths)) or None, hint="name a file"
        )


def describe(paths: Sequence[Path]) -> str:
    """Names of the files with their SHA-256, as the ``source`` of a manifest."""
    parts = []
    for path in paths:
        if path.is_file():
            parts.append(f"{path.name} (sha256 {hashlib.sha256(path.read_bytes()).hexdigest()})")
        else:
            parts.append(path.name)
    return ", ".join(parts)


def record_object(content: Any, source: SourceFile, what: str) -> dict[str, Mapping[str, Any]]:
    """``content`` as an object of objects with text keys.

    Args:
        content: decoded JSON or pickle.
        source: where it is from.
        what: what its records are, in the plural.

    Raises:
        UserError: not an object, empty, or a record is not an object.
    """
    if not isinstance(content, dict) or not content:
        kind = "empty" if content == {} else f"a {type(content).__name__}"
        raise UserError(
            f"is {kind}; an object of {what} by id is expected",
            where=source.where,
            hint="check that the file is of the named format",
        )
    records: dict[str, Mapping[str, Any]] = {}
    for key, record in content.items():
        if not isinstance(record, dict):
            raise UserError(
                f"record {key!r} is a {type(record).__name__}, not an object",
                where=f"{source.where}, record {key}",
                hint="check that the file is of the named format",
            )
        if str(key) in records:
            raise UserError(f"record {key!r} comes twice", where=source.where)
        records[str(key)] = record
    return records
