"""Source files: folders, zip archives, gzip, text, JSON and pickles, with errors that give the location."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fedsim.errors import UserError
from fedsim.files.delimited import checked_rows
from fedsim.files.unpickling import DamagedPickle, RefusedPickle, load_plain
from fedsim.traces.importers._numbers import Number
from fedsim.traces.tables import Floats

# Files that accompany a data set.
_COMPANION = re.compile(r"\.|readme|licen[cs]e|copying|sha256sums", re.IGNORECASE)
_CHUNK_BYTES = 1 << 24
_PARQUET = b"PAR1"
_STREAM = b"\xff\xff\xff\xff"
_TABLES = (_PARQUET, b"ARROW1", _STREAM)
"""How files in Parquet, in Feather or Arrow, and Arrow streams begin."""


@dataclass(frozen=True)
class SourceFile:
    """One file of a source, unpacked.

    Args:
        name: path inside the folder or archive, or the file's own name; without ``.gz``.
        where: location, for messages.
        data: its content.
    """

    name: str
    where: str
    data: bytes

    def text(self) -> str:
        """The content as text; a table in Parquet, Feather or Arrow files as CSV."""
        if self.data.startswith(_TABLES):
            return self._csv()
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            message = f"is not a text file: {error.reason} at byte {error.start}"
            raise self.error(message, "give a text file in UTF-8", line=line) from error

    def _csv(self) -> str:
        import pyarrow as pa
        from pyarrow import csv, feather, parquet

        content = pa.BufferReader(self.data)
        try:
            if self.data.startswith(_STREAM):
                table = pa.ipc.open_stream(content).read_all()
            else:
                is_parquet = self.data.startswith(_PARQUET)
                table = (parquet.read_table if is_parquet else feather.read_table)(content)
            for index, field in enumerate(table.schema):
                if pa.types.is_dictionary(field.type):
                    plain = table.column(index).cast(field.type.value_type)
                    table = table.set_column(index, field.name, plain)
            text = io.BytesIO()
            csv.write_csv(table, text, csv.WriteOptions(quoting_style="needed"))
        except (pa.ArrowException, OSError) as error:
            raise self.error(f"cannot be read as a table: {error}", "write it again") from error
        return text.getvalue().decode("utf-8")

    def lines(self, skip: str | tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
        """The non-blank lines that do not start with ``skip``, each with its number from 1."""
        for number, text in enumerate(self.text().splitlines(), start=1):
            if text.strip() and not text.startswith(skip):
                yield number, text

    def cells(
        self,
        separator: str | None,
        widths: Sequence[int],
        layout: str,
        skip: str | tuple[str, ...] = (),
    ) -> list[tuple[int, list[str]]]:
        """The number and the stripped cells of each of the :meth:`lines`.

        Args:
            separator: text between cells; None: any white space.
            widths: the valid numbers of cells.
            layout: the form of a line, for messages.
            skip: as in :meth:`lines`.
        """
        rows = []
        for number, text in self.lines(skip):
            fields = [field.strip() for field in text.split(separator)]
            if len(fields) not in widths:
                expected = " or ".join(map(str, widths))
                message = f"has {len(fields)} fields, not {expected}"
                raise self.error(message, layout, line=number)
            rows.append((number, fields))
        return rows

    def table(self) -> tuple[dict[str, list[str]], list[int]]:
        """Columns of a comma-separated file by the names in its header, cells stripped, and the line of each row."""
        numbered = list(checked_rows(io.StringIO(self.text()), self.where, skip_initial_space=True))
        if not numbered:
            raise self.error("is empty")
        (_, header), *rows = numbered
        cells = zip(*(row for _, row in rows), strict=True) if rows else [()] * len(header)
        columns = [[cell.strip() for cell in column] for column in cells]
        names = [name.strip() for name in header]
        return dict(zip(names, columns, strict=True)), [line for line, _ in rows]

    def json(self) -> Any:
        """The content as JSON."""
        try:
            return json.loads(self.text())
        except json.JSONDecodeError as error:
            raise UserError(
                f"is not JSON: {error.msg}",
                where=f"{self.where}:{error.lineno}:{error.colno}",
                hint="the file is truncated or of another format",
            ) from error

    def records(self) -> Any:
        """The content of a JSON file or of a pickle of plain data, of which no class or function is ever called."""
        if self.data[:1] != b"\x80" and self.data[:2] not in (b"(d", b"}q", b"(l", b"]q"):
            return self.json()
        try:
            return load_plain(self.data)
        except (RefusedPickle, DamagedPickle) as error:
            problem = (
                f"names {error}" if isinstance(error, RefusedPickle) else f"is damaged: {error}"
            )
            raise self.error(
                f"the pickle {problem}; it was not loaded",
                "copy the file again, or give the JSON form: a pickle of more than plain data can run any program",
            ) from error

    def objects(self) -> dict[str, Mapping[str, Any]]:
        """:meth:`records` as an object of objects with text keys."""
        content = self.records()
        if not isinstance(content, dict) or not content:
            kind = "empty" if content == {} else f"a {type(content).__name__}"
            raise self.error(f"is {kind}, not an object of records by id")
        for key, record in content.items():
            if not isinstance(record, dict):
                raise self.error(f"record {key!r} is a {type(record).__name__}, not an object")
        return {str(key): record for key, record in content.items()}

    def line(self, number: int) -> str:
        """``file:line``, for messages."""
        return f"{self.where}:{number}"

    def error(self, message: str, hint: str | None = None, *, line: int | None = None) -> UserError:
        """The error for a mistake in the file, or in one of its lines."""
        where = self.where if line is None else self.line(line)
        return UserError(message, where=where, hint=hint)


class RecordFile:
    """A file of records by id.

    Attributes:
        source, records: the file and its content.
        ids: the records to import; all of them at first.

    Args:
        noun: what a record describes, for messages.
    """

    def __init__(
        self, source: SourceFile, records: Mapping[str, Mapping[str, Any]], noun: str
    ) -> None:
        self.source = source
        self.records = records
        self.ids: Sequence[str] = list(records)
        self._noun = noun

    def where(self, row: int) -> str:
        """Location of a record, for messages."""
        return f"{self.source.where}, {self._noun} {self.ids[row]}"

    def field(self, name: str) -> list[Any]:
        """A field of every record."""
        for row, key in enumerate(self.ids):
            if name not in self.records[key]:
                hint = f"it has: {', '.join(map(str, self.records[key]))}"
                raise UserError(f"has no '{name}'", where=self.where(row), hint=hint)
        return [self.records[key][name] for key in self.ids]

    def numbers(self, number: Number) -> Floats:
        """A numeric field of every record."""
        return number.read(self.field(number.name.strip("'")), self.where)


class Sources:
    """The files at some paths, unpacked one at a time during iteration.

    They are in the order of the paths; those of folders and archives are sorted by name, without READMEs and the like.

    Args:
        paths: files, folders of files, or zip archives.
        max_unpacked: maximum bytes that all compressed files, devices and pipes together may give.
        head: number of bytes to read from each file; -1 for all.
    """

    def __init__(
        self, paths: Sequence[Path], max_unpacked: float = float("inf"), *, head: int = -1
    ) -> None:
        self.paths = tuple(paths)
        self.max_unpacked = max_unpacked
        self._head = head

    @property
    def where(self) -> str:
        """All paths, for messages."""
        return ", ".join(map(str, self.paths))

    def error(self, message: str, hint: str | None = None) -> UserError:
        """The error for a mistake in the files taken together."""
        return UserError(message, where=self.where or None, hint=hint)

    def by_field(self, fields: Mapping[str, str], what: str, hint: str) -> dict[str, RecordFile]:
        """Files of records, each by the field of its first record that identifies the type of file.

        Args:
            fields: name of a type of file by its field.
            what: plural noun for the records, for messages.
            hint: which files to give.
        """
        files: dict[str, RecordFile] = {}
        for source in self:
            records = source.objects()
            first = next(iter(records.values()))
            kind = next((field for field in fields if field in first), None)
            if kind is None:
                known, names = ", ".join(fields), ", ".join(map(str, first))
                raise source.error(f"has none of {known} in its first record, but: {names}", hint)
            if kind in files:
                raise source.error(f"is a second {fields[kind]} file", "give only one")
            files[kind] = RecordFile(source, records, what.removesuffix("s"))
        return files

    def describe(self) -> str:
        """Names of the files with their SHA-256, for the ``source`` of a manifest."""
        parts = []
        for path in self.paths:
            digest = ""
            if path.is_file():
                with path.open("rb") as file:
                    digest = f" (sha256 {hashlib.file_digest(file, 'sha256').hexdigest()})"
            parts.append(path.name + digest)
        return ", ".join(parts)

    def __iter__(self) -> Iterator[SourceFile]:
        """The files."""
        self._left = self.max_unpacked
        empty = True
        for path in self.paths:
            if path.is_dir():
                files = self._folder(path)
            elif path.suffix == ".zip" and path.exists():
                files = self._archive(path)
            else:
                files = iter([self._file(path, path.name)])
            for file in files:
                empty = False
                yield file
        if empty:
            raise UserError("no files to import", where=self.where or None, hint="name a file")

    def _folder(self, path: Path) -> Iterator[SourceFile]:
        for file in sorted(item for item in path.rglob("*") if item.is_file()):
            if not _COMPANION.match(file.name):
                yield self._file(file, file.relative_to(path).as_posix())

    def _file(self, path: Path, name: str) -> SourceFile:
        try:
            with path.open("rb") as content:
                return self._source(name, str(path), content, bounded=not path.is_file())
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error

    def _archive(self, path: Path) -> Iterator[SourceFile]:
        try:
            with zipfile.ZipFile(path) as archive:
                for name in sorted(archive.namelist()):
                    if name.endswith("/") or _COMPANION.match(PurePosixPath(name).name):
                        continue
                    with archive.open(name) as member:
                        file = self._source(name, f"{path}!{name}", member, bounded=True)
                    yield file
        # Damaged archives, and those with a password or a rare compression.
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
            raise UserError(
                f"is not a complete zip archive: {error}",
                where=str(path),
                hint="copy the file again",
            ) from error

    def _source(self, name: str, where: str, content: IO[bytes], *, bounded: bool) -> SourceFile:
        """One file; the content of a ``.gz`` is unpacked, and bounded in any case."""
        if not name.endswith(".gz"):
            data = self._bounded(content, where) if bounded else content.read(self._head)
            return SourceFile(name, where, data)
        try:
            with gzip.GzipFile(fileobj=content) as unpacked:
                data = self._bounded(unpacked, where)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(
                f"is not a complete gzip file: {error}", where=where, hint="copy the file again"
            ) from error
        return SourceFile(name.removesuffix(".gz"), where, data)

    def _bounded(self, content: IO[bytes] | gzip.GzipFile, where: str) -> bytes:
        """The ``content``; refused once all files together exceed the limit."""
        if self._head >= 0:
            return content.read(self._head)
        parts = []
        while chunk := content.read(_CHUNK_BYTES):
            self._left -= len(chunk)
            if self._left < 0:
                raise UserError(
                    f"unpacks to more than {self.max_unpacked / 2**30:.3g} GiB",
                    where=where,
                    hint="if the file is correct, raise the limit: -s max_unpacked=16GiB",
                )
            parts.append(chunk)
        return b"".join(parts)
