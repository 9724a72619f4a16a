"""Errors for the user where a limit of the system, or of numbers, ends a command."""

from __future__ import annotations

import contextlib
import errno
import os

from fedsim.errors import MORE_THREADS, UserError, lacks_threads

# Address space: a small run takes 2 to 3 GiB, by the number of threads, and libraries of CUDA are larger.
_ENOUGH_BYTES = 8 << 30


def by_limit(error: BaseException, *, is_users: bool = False) -> UserError | None:
    """The error for the user if memory, open files, threads or the range of numbers do not suffice; None for others.

    Code of users (``is_users``) shows its own errors, except for those of memory and files.
    """
    text = str(error)
    if _lacks_memory(error):
        detail = (text.splitlines() or [type(error).__name__])[0]
        return UserError(f"out of memory: {detail}", hint=more_memory())
    if is_of_files(error):
        return too_many_files()
    if is_users:
        return None
    if "to type float without overflow" in text:  # By torch, of 1 / 1e-300 in float32.
        message = "a factor is too large for the numbers of the model"
        return UserError(message, hint="choose parameters of the method that are nearer to 1")
    is_refused = isinstance(error, BlockingIOError) or lacks_threads(text)
    if text == "can't start new thread" or is_refused:
        return UserError(getattr(error, "strerror", None) or text, hint=MORE_THREADS)
    return None


def too_many_files() -> UserError:
    """The error for a process that may not open another file."""
    return UserError("too many open files", hint="raise the limit: ulimit -n 1024")


def more_memory() -> str:
    """A hint: the limit to raise, or what takes less memory."""
    with contextlib.suppress(ImportError):  # Windows.
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit in range(_ENOUGH_BYTES):
            raised = f"raise the limit of {limit >> 20} MiB: ulimit -v {_ENOUGH_BYTES >> 10}"
            return f"{raised}; if that is too little, use a smaller model, batch or population"
    return (
        "use a smaller model, batch or population, or a machine (or 'ulimit -v') with more memory"
    )


def is_of_files(error: BaseException | None) -> bool:
    """Whether no other file could be opened, which is no fault of the file."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def _lacks_memory(error: BaseException) -> bool:
    """Whether memory ran out; torch has a special error for a GPU only."""
    names = {kind.__name__ for kind in type(error).__mro__}
    ran_out = not names.isdisjoint(("MemoryError", "OutOfMemoryError"))
    said = (
        *("can't allocate memory", os.strerror(errno.ENOMEM).lower(), "failed to map segment"),
        *("maximum allowed dimension", "maximum allowed size", "array is too big"),  # Of NumPy.
        "storage size calculation overflowed",
    )
    return ran_out or any(text in str(error).lower() for text in said)
