"""Files and folders that appear whole or not at all, even after a crash or a power cut.

New content is written under a random name beside its destination, in a file that must not exist before and that is
never reached through a symbolic link. It is flushed to the disk, renamed into place, and the folder is flushed as well.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_EXCLUSIVE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``path`` when the block ends, or is removed when the block raises.

    A symbolic link at ``path`` is replaced, not followed.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = _beside(path)
    # The kernel applies the umask: the file has the same permissions as any other new file.
    descriptor = os.open(temporary, _EXCLUSIVE | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_file(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, replacing what is there; see :func:`new_file`."""
    with new_file(path) as file:
        file.write(data)


@contextlib.contextmanager
def new_folder(path: Path, remove_old: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """Make a folder under a temporary name that is renamed to ``path`` when the block ends, or removed when it raises.

    Args:
        path: name of the folder.
        remove_old: called with the folder that was at ``path``, once the new one is in place and the old one has a
            temporary name; it should delete the files that may be deleted. Without it, nothing may be at ``path`` but
            an empty folder.

    Raises:
        OSError: the folder cannot be written.
    """
    temporary, old = _beside(path), None
    temporary.mkdir()
    try:
        yield temporary
        sync_tree(temporary)
        if remove_old is not None and path.exists():
            old = _beside(path)
            os.rename(path, old)
        try:
            os.rename(temporary, path)
        except BaseException:
            if old is not None:
                os.rename(old, path)
            raise
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(path.parent)
    if remove_old is not None and old is not None:
        remove_old(old)


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below ``folder`` to the disk, and ``folder`` itself."""
    for name, _, files in os.walk(folder, topdown=False):
        for file in files:
            sync_file(Path(name) / file)
        sync_folder(Path(name))


def sync_file(path: Path) -> None:
    """Flush a file's content to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Flush a folder's list of names to the disk, if its file system supports that."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        # Some network file systems cannot flush a folder; its files have been flushed.
        pass
    finally:
        os.close(descriptor)


def _beside(path: Path) -> Path:
    """A name in the folder of ``path`` that nobody can predict."""
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.part")
