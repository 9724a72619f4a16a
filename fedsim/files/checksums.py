"""SHA-256 checksums of files, and of JSON documents that contain their checksum.

A file that cannot be read is an :class:`OSError`.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedsim.errors import UserError
from fedsim.files.documents import json_text

_KEY = "sha256"
PATHS_ARE_RELATIVE = "relative paths refer to the scenario's folder"
"""Hint for a file that a scenario names and that does not exist."""


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    value = hashlib.sha256()
    for piece in _pieces(path):
        value.update(piece)
    return value.hexdigest()


def file_crc32(path: Path) -> str:
    """The CRC-32 of a file's bytes, in hexadecimal: finds damage, at a fraction of the time of SHA-256."""
    value = 0
    for piece in _pieces(path):
        value = zlib.crc32(piece, value)
    return f"{value:08x}"


def _pieces(path: Path) -> Iterator[bytes]:
    require_regular(path)
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def kept_sha256(path: Path) -> str:
    """:func:`file_sha256`, computed once per process until the file changes."""
    state = os.stat(path)
    return _sha256_of_state(path, state.st_size, state.st_mtime_ns)


def data_sha256(path: Path) -> str:
    """The SHA-256 of a data file; of a folder's manifest, which has the checksums of its files; else of all files."""
    if not path.is_dir():
        return kept_sha256(path)
    manifest = path / "manifest.json"
    if manifest.is_file():
        return kept_sha256(manifest)
    files = sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())
    lines = (f"{kept_sha256(path / file)} {file.as_posix()}\n" for file in files)
    return hashlib.sha256(os.fsencode("".join(lines))).hexdigest()  # Names need not be UTF-8.


@functools.cache
def _sha256_of_state(path: Path, size: int, modified_ns: int) -> str:
    return file_sha256(path)


def require_regular(path: Path) -> None:
    """Refuse a device, a pipe or a link to one, which a folder from somebody else may contain instead of a file.

    Raises:
        OSError: the path is one of these or does not exist.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def require_file(path: Path) -> None:
    """Refuse a file named by the user that does not exist or is not one."""
    if not path.is_file():
        if path.exists():
            raise UserError("is not a regular file", where=path)
        raise UserError("no such file", where=path, hint=PATHS_ARE_RELATIVE)


def text_sha256(text: str) -> str:
    """The SHA-256 of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def stamped(document: Mapping[str, Any], key: str = _KEY) -> dict[str, Any]:
    """The document with the checksum of its other content under ``key``."""
    # Through JSON and back, so that a document has the same checksum before it is written and after it is read.
    return {**document, key: _content_sha256(json.loads(json_text(document)), key)}


def is_unchanged(document: Mapping[str, Any], key: str = _KEY) -> bool:
    """Whether a document that was read from JSON still has the content for which :func:`stamped` made the checksum."""
    return document.get(key) == _content_sha256(document, key)


def later_format(written: int, path: Path) -> UserError:
    """The error for a document of a format that this version does not know."""
    return UserError(
        f"was written by a later version of fedsim (format {written})",
        where=path,
        hint="update fedsim: pip install --upgrade fedsim-des",
    )


def _content_sha256(document: Mapping[str, Any], key: str) -> str:
    content = {name: value for name, value in document.items() if name != key}
    return text_sha256(json_text(content, sort_keys=True))
