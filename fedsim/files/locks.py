"""Locks a folder so that only one process at a time works in it.

The lock is the operating system's (``flock`` or its equivalent) on the file ``.lock``: it is released when the process
that holds it ends, for any reason. The holder is recorded in ``.owner.json``, for the message that a second
process shows.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from fedsim.errors import UserError
from fedsim.files.documents import parsed
from fedsim.files.durable import in_room, require_no_folder, write_text

LOCK_NAMES = (".lock", ".owner.json")
"""Files of the lock, hidden in the folder that it guards."""

_UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)
_warned: set[Path] = set()


@contextlib.contextmanager
def locked(folder: Path, *, kept: bool = True) -> Iterator[None]:
    """Hold the lock of a folder, which is made if it does not exist.

    On a file system without locks, the work continues after a warning, given once per folder. The file of the lock
    stays unless ``kept`` is false.

    Raises:
        UserError: another process holds it, the folder cannot be written to, or the disk is full.
    """
    lock_path, owner_path = (folder / name for name in LOCK_NAMES)
    lock = FileLock(lock_path, timeout=0, fallback_to_soft=False, thread_local=False)
    with in_room(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            require_no_folder(lock_path)
            lock.acquire()
        except Timeout:
            raise UserError(
                f"another fedsim process is using this folder: {_owner(owner_path)}",
                where=folder,
                hint="wait for it to end, or use another folder",
            ) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                is_link = error.errno == errno.ELOOP
                raise UserError(
                    f"cannot be written: {error.strerror}",
                    where=error.filename or folder,
                    hint="remove the link" if is_link else "choose a folder that you may write to",
                ) from error
            if folder not in _warned:
                _warned.add(folder)
                warnings.warn(
                    f"{folder}: this file system does not support locks; do not start a second fedsim in this folder",
                    stacklevel=3,
                )
        try:
            owner = {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "since": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "started": _started(os.getpid()),
            }
            write_text(owner_path, json.dumps(owner) + "\n")
            yield
        finally:
            with contextlib.suppress(OSError):
                owner_path.unlink()
                if not kept:
                    lock_path.unlink()
            lock.release()


def is_owned(folder: Path) -> bool:
    """Whether a process is working in a folder, without touching its lock.

    A process of another host counts as alive if it has not released the folder.
    """
    try:
        owner = parsed((folder / LOCK_NAMES[1]).read_text(encoding="utf-8"))
        if owner["host"] == socket.gethostname():
            with contextlib.suppress(PermissionError):  # It is alive and belongs to another user.
                os.kill(int(owner["pid"]), 0)
            return _started(int(owner["pid"])) in (owner["started"], "")
        return isinstance(owner["host"], str)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return False


def _started(pid: int) -> str:
    """When a process started, in ticks since the machine did, because ids are used again; empty if unknown.

    On Linux, "ended" for a process that only keeps its id until its parent waits for it.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The state follows the name, which is in parentheses and may contain some.
    state, *fields = status.rpartition(")")[2].split()
    return "ended" if state == "Z" else fields[18]


def _owner(path: Path) -> str:
    try:
        owner = parsed(path.read_text(encoding="utf-8"))
        return f"process {int(owner['pid'])} on {owner['host']!r}, since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "its id is unknown"
