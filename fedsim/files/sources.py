"""Source files: folders, archives, compressed files, text, JSON and pickles, with errors that give the location."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fedsim.errors import UserError, cut, refused
from fedsim.files.checksums import file_sha256, require_regular
from fedsim.files.delimited import repeated
from fedsim.files.documents import parsed
from fedsim.files.room import require_room
from fedsim.files.unpickling import DamagedPickle, RefusedPickle, load_plain

# Files that accompany a data set.
_COMPANION = re.compile(
    r"\.|readme|licen[cs]e|copying|sha256sums|thumbs\.db|desktop\.ini|"
    r"_(success|metadata|common_metadata|started|committed)",
    re.IGNORECASE,
)
_CHUNK_BYTES = 1 << 24
_HALF_CHARACTER = re.compile(
    r"\\u(?<!\\\\u)[dD]"
    r"(?:[89abAB]..(?!\\u[dD][c-fC-F])|[c-fC-F]..(?<!\\u[dD][89abAB]..\\u[dD]...))"
)
"""A surrogate of JSON without the other one, which no file or table can hold."""


def _utf8(data: bytes) -> bytes:
    """Text in UTF-16 that says so, as Windows writes it, in UTF-8; other content as it is."""
    is_wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    return data.decode("utf-16", "replace").encode() if is_wide else data


def _complete(ending: str, where: str) -> AbstractContextManager[None]:
    """Name the compressed file in the errors of those that unpack it."""
    hint = f"copy the file again; if it is something else, name it without {ending}"
    kinds = OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile
    return refused(f"is not a complete {ending} file", where, hint, kinds)


def _chunks(content: Any, size: int) -> Iterator[bytes]:
    return iter(lambda: content.read(size), b"")


def _zstd(content: IO[bytes], size: int) -> Iterator[bytes]:
    import pyarrow as pa

    return _chunks(pa.CompressedInputStream(pa.PythonFile(content, "r"), "zstd"), size)


def _streams(new: Callable[[], Any], content: IO[bytes], size: int) -> Iterator[bytes]:
    """The content of compressed streams one after another, with zeros between and after them, as xz allows.

    Python's own readers ignore whatever follows a stream and is not another one. A file must begin with a stream.
    """
    stream, data = new(), b""
    while data := data or content.read(size):
        if stream is None:
            data = data.lstrip(b"\0")
            stream = new() if data else None
            continue
        yield stream.decompress(data, size)
        while not (stream.eof or stream.needs_input):
            yield stream.decompress(b"", size)
        data = stream.unused_data
        stream = None if stream.eof else stream
    if stream is not None:
        raise EOFError("its end is missing")


CODECS: Mapping[str, Callable[[IO[bytes], int], Iterator[bytes]]] = {
    ".gz": lambda content, size: _chunks(gzip.GzipFile(fileobj=content), size),
    ".bz2": partial(_streams, bz2.BZ2Decompressor),
    ".xz": partial(_streams, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ)),
    ".zst": _zstd,
}
"""The chunks of a compressed file, of at most so many bytes, by the ending of its name."""


def unpacked(
    content: IO[bytes],
    ending: str,
    where: object,
    packed_bytes: float,
    before_bytes: int = 0,
    most: int | None = None,
) -> bytes:
    """The ``content`` of a file with this ending, or its first bytes, at ``most``.

    Refused if it, with the bytes before it, takes too much.
    """
    data = io.BytesIO()  # Its value is not copied, as joined chunks would be.
    read: Callable[[IO[bytes], int], Iterator[bytes]] = CODECS.get(ending, _chunks)
    for chunk in read(content, most or _CHUNK_BYTES):
        data.write(chunk)
        if most is not None and data.tell() >= most:
            break
        require_room(before_bytes + data.tell(), packed_bytes, where)
    return data.getvalue()[:most]


@dataclass(frozen=True)
class SourceFile:
    """One file of a source, unpacked.

    Args:
        name: path inside the folder or archive, or the file's own name; without ``.gz`` and the like.
        where: location, for messages.
        content: its content, or the path of a file that is not compressed.
        origins: the line of the original file from which each line was made; empty if it is the file itself.
    """

    name: str
    where: str
    content: bytes | Path
    origins: Sequence[int] = ()

    @cached_property
    def data(self) -> bytes:
        """The content."""
        return self.content.read_bytes() if isinstance(self.content, Path) else self.content

    def sha256(self) -> str:
        """The checksum of the content."""
        if isinstance(self.content, Path):
            return file_sha256(self.content)
        return hashlib.sha256(self.content).hexdigest()

    def head(self, size: int) -> bytes:
        """The first bytes of the content."""
        if not isinstance(self.content, Path):
            return self.content[:size]
        with self.content.open("rb") as file:
            return file.read(size)

    def require_text(self) -> None:
        """Refuse a byte 0: damage leaves blocks of them, and what is before and after one would become one row."""
        is_path, line = isinstance(self.content, Path), 1
        with open(self.content, "rb") if is_path else io.BytesIO(self.data) as file:
            for chunk in _chunks(file, 1 << 20):
                if (first := chunk.find(b"\0")) >= 0:
                    line += chunk[:first].count(b"\n")
                    hint = "give a text file in UTF-8, and unpack archives; if it was one, copy it again"
                    raise self.error("is not a text file: it has a byte 0", hint, line=line)
                line += chunk.count(b"\n")

    def text(self) -> str:
        """The content as text."""
        self.require_text()
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            message = f"is not a text file: {error.reason} at byte {error.start}"
            hint = "give a text file in UTF-8, and unpack archives"
            raise self.error(message, hint, line=line) from error

    def lines(self, skip: str | tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
        """The non-blank lines that do not start with ``skip``, each with its number from 1."""
        # Not str.splitlines, which also splits at characters that values may contain.
        for number, text in enumerate(io.StringIO(self.text(), newline=None), start=1):
            if text.strip() and not text.startswith(skip):
                yield number, text.removesuffix("\n")

    def json(self) -> Any:
        """The content as JSON."""
        return self._parsed(self.text(), None, "the file is truncated or of another format")

    def json_lines(self) -> Iterator[dict[str, Any]]:
        """The JSON object of each line."""
        hint = "write it again; JSON has one record per line, as from jq -c '.items[]'"
        for number, text in self.lines():
            row = self._parsed(text, number, hint)
            if not isinstance(row, dict):
                raise self.error("is not a JSON object", hint, line=number)
            yield row

    def _parsed(self, text: str, line: int | None, hint: str) -> Any:
        if half := _HALF_CHARACTER.search(text):
            begin, end = text.rfind('"', 0, half.start()), text.find('"', half.end()) + 1
            message = f"has half a character, {half[0]}, in {cut(text[begin:end])}"
            at = line or text.count("\n", 0, begin) + 1
            raise self.error(message, "write the whole character", line=at)
        try:
            return parsed(text)
        except json.JSONDecodeError as error:
            where = f"{self.where}:{line or error.lineno}:{error.colno}"
            raise UserError(f"is not JSON: {error.msg}", where=where, hint=hint) from error
        except ValueError as error:
            raise self.error(f"is not JSON: {error}", hint, line=line) from error

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
        by_id = {str(key): record for key, record in content.items()}
        if len(by_id) < len(content):
            twice = repeated(map(str, content))
            raise self.error(f"has the id {twice} twice, as text and as a number", "keep one")
        return by_id

    def line(self, number: int) -> str:
        """``file:line``, for messages."""
        return f"{self.where}:{self.origins[number - 1] if self.origins else number}"

    def error(self, message: str, hint: str | None = None, *, line: int | None = None) -> UserError:
        """The error for a mistake in the file, or in one of its lines."""
        where = self.where if line is None else self.line(line)
        return UserError(message, where=where, hint=hint)


class Sources:
    """The files at some paths, unpacked one at a time during iteration.

    They are in the order of the paths; those of folders and archives are sorted by name, without READMEs and the like.

    Args:
        paths: files, folders of files, or zip archives.
        head: number of bytes to read from each file; all by default.
    """

    def __init__(self, paths: Sequence[Path], *, head: int | None = None) -> None:
        self.paths = tuple(paths)
        self._head = head

    @property
    def where(self) -> str:
        """All paths, for messages."""
        return ", ".join(map(str, self.paths))

    def error(self, message: str, hint: str | None = None) -> UserError:
        """The error for a mistake in the files taken together."""
        return UserError(message, where=self.where or None, hint=hint)

    def describe(self) -> str:
        """Names of the files with their SHA-256, for the ``source`` of a manifest."""
        return ", ".join(
            f"{path.name} (sha256 {file_sha256(path)})" if path.is_file() else path.name
            for path in self.paths
        )

    def __iter__(self) -> Iterator[SourceFile]:
        """The files."""
        self._unpacked = self._packed = 0
        known = dict[str, str]()
        for path in self.paths:
            folder = path
            if path.is_dir():
                files = self._folder(path)
            elif path.suffix.lower() == ".zip" and path.exists():
                files = self._archive(path)
            else:
                files, folder = iter([self._file(path, path.name)]), path.parent
            for file in files:
                # Its rows would count twice: a link, or a compressed copy.
                place = os.path.realpath(folder / file.name)
                if place in known:
                    message = f"is given twice, also as {known[place]}"
                    raise file.error(message, "give one of them")
                known[place] = file.where
                yield file
        if not known:
            raise UserError("no files to import", where=self.where or None, hint="name a file")

    def _folder(self, path: Path) -> Iterator[SourceFile]:
        for file in sorted(item for item in path.rglob("*") if not item.is_dir()):
            if not _COMPANION.match(file.name):
                with refused("cannot be read", file):
                    require_regular(file)
                yield self._file(file, file.relative_to(path).as_posix())

    def _file(self, path: Path, name: str) -> SourceFile:
        with refused("cannot be read", path):
            self._packed += path.stat().st_size
            with path.open("rb") as content:
                if path.is_file() and self._head is None and path.suffix.lower() not in CODECS:
                    head = content.read(2)
                    return SourceFile(
                        name, str(path), path if _utf8(head) == head else _utf8(path.read_bytes())
                    )
                return self._source(name, str(path), content)

    def _archive(self, path: Path) -> Iterator[SourceFile]:
        hint = "unpack it with another program, and give the files"
        # A password, or a rare compression, is a RuntimeError.
        with refused("cannot be unpacked", path, hint, RuntimeError), _complete(".zip", str(path)):
            self._packed += path.stat().st_size
            with zipfile.ZipFile(path) as archive:
                if twice := repeated(archive.namelist()):
                    raise UserError(f"contains '{twice}' twice", where=path, hint=hint)
                # Of joined archives, only the last is read, and of a cut one, an archive that it contains.
                if min((one.header_offset for one in archive.infolist()), default=0):
                    message = "does not begin with the files that it lists"
                    raise UserError(message, where=path, hint=hint)
                for name in sorted(archive.namelist()):
                    if name.endswith("/") or _COMPANION.match(PurePosixPath(name).name):
                        continue
                    with archive.open(name) as member:
                        file = self._source(name, f"{path}!{name}", member)
                    yield file

    def _source(self, name: str, where: str, content: IO[bytes]) -> SourceFile:
        """One file, unpacked."""
        ending = PurePosixPath(name).suffix.lower()
        if ending not in CODECS:
            return SourceFile(name, where, self._content(content, ending, where))
        with _complete(ending, where):
            return SourceFile(name[: -len(ending)], where, self._content(content, ending, where))

    def _content(self, content: IO[bytes], ending: str, where: str) -> bytes:
        data = unpacked(content, ending, where, self._packed, self._unpacked, self._head)
        self._unpacked += len(data)
        return _utf8(data)
