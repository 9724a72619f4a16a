"""What a limit ends is an error that says how to raise it."""

import errno
import os

import pytest

from fedsim.processes.limits import by_limit

OVERFLOW = "value cannot be converted to type float without overflow"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "out of memory: MemoryError"),
        (RuntimeError("can't allocate memory: 9 bytes\nat x.cpp"), "out of memory: can't allocate"),
        (OSError(errno.EMFILE, "x"), "too many open files"),
        (RuntimeError("can't start new thread"), "can't start new thread\n  raise the limit"),
        (OSError(os.strerror(errno.EAGAIN)), f"{os.strerror(errno.EAGAIN)}\n  raise the limit"),
        (RuntimeError(OVERFLOW), "a factor is too large for the numbers of the model"),
        (RuntimeError("x"), "None"),
        (OSError(errno.ENOENT, "x"), "None"),
    ],
)
def test_what_each_limit_says(error: Exception, message: str) -> None:
    assert str(by_limit(error)).startswith(message)
    of_users = by_limit(error, is_users=True)
    assert (of_users is not None) == message.startswith(("out of memory", "too many"))
