"""Records: the JSON documents that say what a folder holds, such as ``run.json``, and the files that they list.

A record appears whole or not at all, and carries its format and a checksum of its content. One function reads them all;
it checks both, and the type of every entry, so that nothing downstream needs to.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, with_config

from fedsim.errors import MORE_THREADS, Unreadable, UserError, lacks_threads, printable, reason
from fedsim.files.checksums import file_sha256, is_unchanged, later_format, require_regular, stamped
from fedsim.files.documents import json_text, parsed
from fedsim.files.durable import replacing, write_text
from fedsim.vocabulary.formatting import format_word

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False)] | None
"""A number; null if it was not finite."""
_PROSE = ("error", "notes", "asked")
"""Entries whose text may have several lines."""
_MOST_BYTES = 100_000_000
_NOT_OF_THE_FILE = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE)
"""Errors of the system that say nothing about what is in a file."""


@functools.lru_cache
def _inside(name: str) -> str:
    """Refuse a name that leads outside the folder of a record."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{name!r} is not the name of a file in the folder")
    return name


Checksums = dict[Annotated[str, AfterValidator(_inside)], str]
"""SHA-256 of files by name; also the one before, after a space, because a process may end between two writes."""

entries = with_config(ConfigDict(strict=True, extra="allow"))
"""Marks the typed dictionary of a record's entries; a record may have others, of any type."""


@dataclass(frozen=True)
class Record:
    """A kind of record.

    Attributes:
        file: its name.
        format: its format; raised when the meaning of an entry changes.
        entries: their types.
        beside: names of the other files and folders that belong to the folder, besides runs.
        hint: how to continue if it, or a file that it lists, is damaged; ``{path}``, after ``rm``, is that file.
    """

    file: str
    format: int
    entries: Any
    beside: tuple[str, ...] = ()
    hint: str = (
        "restore it from a copy; or continue without it: rm {path}, then repeat the command that wrote it, which "
        "reads the runs that are there"
    )

    def write(self, folder: Path, content: Mapping[str, Any]) -> None:
        """Replace the record in ``folder``."""
        document = stamped({**content, "format": self.format})
        write_text(folder / self.file, json_text(document, indent=1, sort_keys=True) + "\n")

    def write_listed(
        self,
        folder: Path,
        content: dict[str, Any],
        files: Mapping[str, str | Callable[[Path], Any]],
    ) -> None:
        """Replace files in ``folder`` that the entry ``files`` of the record lists, and the record.

        Args:
            folder: the folder.
            content: the content of the record, whose entry ``files`` is updated.
            files: the text of each file, or a function that writes it to a path.
        """
        listed = content["files"] = dict(content.get("files", {}))
        with contextlib.ExitStack() as all_written:
            for name, write in files.items():
                temporary = all_written.enter_context(replacing(folder / name))
                if isinstance(write, str):
                    temporary.write_text(write, encoding="utf-8")
                else:
                    write(temporary)
                latest = listed.get(name, "").split(" ")[:1]
                listed[name] = " ".join([file_sha256(temporary), *latest]).strip()
            self.write(folder, content)

    def is_in(self, folder: Path) -> bool:
        """Whether a folder has the record; :class:`Unreadable` is raised if the folder may not be opened."""
        try:
            os.stat(folder / self.file)
        except PermissionError as error:
            raise self._unreadable(folder / self.file, error) from error
        except OSError:
            return False
        return True

    def read(self, folder: Path) -> dict[str, Any]:
        """The content of the record in ``folder``, without control characters.

        Raises:
            FileNotFoundError: there is none.
            UserError: it is damaged, or a later fedsim wrote it.
        """
        path = folder / self.file
        try:
            require_regular(path)
            if path.stat().st_size > _MOST_BYTES:
                raise ValueError(f"it is larger than {_MOST_BYTES} bytes")
            text = path.read_text(encoding="utf-8")
            document = parsed(text)
            if (
                not isinstance(document, dict)
                or type(document.get("format")) is not int
                or document["format"] < 1
            ):
                raise ValueError("it has no format")
            if document["format"] > self.format:
                raise later_format(document["format"], path)
            if not is_unchanged(document):
                raise ValueError("it has changed since fedsim wrote it")
            _adapter(self.entries).validate_python(document)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise self._unreadable(path, error) from error
        # Without escapes, no text in it can have invisible characters. Thousands of runs are read for a comparison.
        is_plain = text.isascii() and "\\" not in text and "\x7f" not in text
        if is_plain:
            return document
        content: dict[str, Any] = {}
        for name, value in document.items():
            content |= printable({name: value}, lines=name in _PROSE)
        return content

    @contextlib.contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Turn any error inside into that of a file that the record lists and that cannot be read."""
        try:
            yield
        except (UserError, MemoryError):
            raise
        except Exception as error:  # Decoders fail on damaged files in many ways.
            raise self._unreadable(path, error) from error

    def _unreadable(self, path: Path, error: Exception) -> UserError:
        text = f"cannot be read: {reason(error)}"
        if lacks_threads(text):
            return Unreadable(text, where=path, hint=MORE_THREADS)
        if getattr(error, "errno", None) in _NOT_OF_THE_FILE:
            return Unreadable(text, where=path)
        return self.damaged(path, text)

    def damaged(self, path: Path, problem: str) -> UserError:
        """The error for the record or a file that it lists, with the way to continue without it."""
        quoted = format_word(str(path))
        hint = self.hint.format(path=f"-r {quoted}" if path.is_dir() else quoted)
        if not os.path.lexists(path):
            hint = hint.replace(f"rm {quoted}, then ", "")
        return UserError(problem, where=path, hint=hint)

    def require_intact(self, folder: Path, content: Mapping[str, Any], name: str) -> None:
        """Refuse a file that the record lists and that is missing or has changed."""
        expected, path = content.get("files", {}).get(name), folder / name
        if expected is None:
            return
        with self.reading(path):
            intact = file_sha256(path) in expected.split(" ")
        if not intact:
            raise self.damaged(path, "it has changed since fedsim wrote it")


@functools.cache
def _adapter(types: Any) -> TypeAdapter[Any]:
    return TypeAdapter(types)
