"""What the limits of the operating system on memory and open files refuse, as errors for the user."""

from __future__ import annotations

import contextlib
import errno
import os

from fedsim.errors import UserError

# Address space: a small run takes 2 to 3 GiB, by the number of threads, and libraries of CUDA are larger.
_ENOUGH_BYTES = 8 << 30
TOO_MANY_FILES = UserError("too many open files", hint="raise the limit: ulimit -n 1024")


def by_limit(error: BaseException) -> UserError | None:
    """The error for the user if memory ran out, or no other file could be opened; None for others."""
    if _lacks_memory(error):
        detail = (str(error).splitlines() or [type(error).__name__])[0]
        return UserError(f"out of memory: {detail}", hint=more_memory())
    return TOO_MANY_FILES if is_of_files(error) else None


def more_memory() -> str:
    """How to have more memory."""
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
