"""Files that appear on disk completely or not at all, and survive a power cut.

A new file is written under an exclusive, random, hidden name beside its target (so that no symbolic link prepared
under a predictable name is followed), flushed to the disk, and renamed into place; the folder is flushed after that, so
that a power cut leaves the old file or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedsim.errors import UserError

TEMPORARY_PREFIX = ".fedsim-tmp-"
"""Prefix of files and folders that are still being written; those left behind by a killed process may be deleted."""

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL = "the disk is full, or a quota or file size limit has been reached"
# pyarrow and safetensors report the same errors only as text.
_SAID = tuple(os.strerror(code) for code in _FULL)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary, absolute path to write to, which replaces ``path`` when the block ends without an error.

    Args:
        path: the file to make or replace; a symbolic link there is replaced, not followed.

    Raises:
        OSError: the file cannot be written.
        UserError: a folder has its name, or the disk is full.
    """
    require_no_folder(path)
    temporary = _temporary(path)
    with in_room(path):
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o600))
        try:
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        flush_folder(path.parent)


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Give a new empty folder to fill, which becomes ``path`` when the block ends without an error.

    Every file in it is flushed first. ``path`` must not exist.

    Raises:
        OSError: the folder cannot be written.
    """
    temporary = _temporary(path)
    with in_room(path):
        temporary.mkdir(parents=True)
        try:
            yield temporary
            for folder, _, names in os.walk(temporary):
                for name in names:
                    with open(os.path.join(folder, name), "rb") as file:
                        os.fsync(file.fileno())
                flush_folder(Path(folder))
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        flush_folder(path.parent)


@contextlib.contextmanager
def in_room(path: Path) -> Iterator[None]:
    """Turn errors of a full disk inside into one that names ``path``, as others of its temporary file do."""
    try:
        yield
    except Exception as error:
        if is_disk_full(error) and not isinstance(error, UserError):
            raise UserError(FULL, where=path, hint="free space, then repeat the command") from error
        if isinstance(error, OSError) and TEMPORARY_PREFIX in str(error.filename):
            error.filename = str(path)
        raise


def write_text(path: Path, text: str) -> None:
    """Make or replace a text file (UTF-8)."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def require_no_folder(path: Path) -> None:
    """Refuse a folder in the place of a file."""
    if path.is_dir() and not path.is_symlink():
        raise UserError(
            "is a folder, but the name is that of a file of fedsim",
            where=path,
            hint="rename or remove the folder, and repeat the command",
        )


def require_new(path: Path, hint: str) -> None:
    """Refuse to write where there is something."""
    if os.path.lexists(path):
        if not (path.is_symlink() or path.is_file() or path.is_dir()):
            hint = "choose another path: this is not a regular file"
        raise UserError("the output already exists", where=path, hint=hint)


def named(path: Path) -> Path:
    """A path whose last part is its name: in place of ``.`` or ``..``, the folder that is meant."""
    return path.resolve() if path.name in ("", "..") else path


def flush_folder(path: Path) -> None:
    """Flush the names in a folder to the disk, on systems that can open a folder."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network and FUSE file systems have nothing to flush in a folder.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def remove_temporaries(folder: Path) -> None:
    """Remove the unfinished files that killed processes left in a folder; nothing may be writing to it."""
    _remove(folder.glob(f"{TEMPORARY_PREFIX}*"))


def remove_matching(folder: Path, patterns: Iterable[str]) -> None:
    """Remove what matches these patterns in a folder, and the folder if it is then empty; of a link, only the link."""
    if folder.is_symlink():
        folder.unlink()
        return
    _remove(path for pattern in patterns for path in [*folder.glob(pattern)])
    with contextlib.suppress(OSError):
        folder.rmdir()


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says that the disk, a quota or a limit on file sizes leaves no room."""
    while True:
        if getattr(error, "errno", None) in _FULL or any(text in str(error) for text in _SAID):
            return True
        if error.__cause__ is None:
            return False
        error = error.__cause__


def _temporary(path: Path) -> Path:
    # Absolute, because pyarrow and pandas take a folder named ~ for the home folder.
    return path.absolute().with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}{path.suffix}")
