"""A client of the deployment: receives a model, computes, sends an update, over one kept connection.

The process imports neither fedsim nor torch (series ii imports torch), and knows nothing about the simulation: a job
says how long to compute, how many bytes to send back, and when the device will vanish.
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable

from benchmarks.validation.netns import tcp_socket

JOB = struct.Struct("!qqqqqq")
"""Dispatch, bytes that follow, steps, nanoseconds of computing, bytes to send back, instant of vanishing or -1."""
REPORT = struct.Struct("!qqq")
"""Dispatch, instants of the end of the download and of the local steps (CLOCK_MONOTONIC)."""
HELLO = struct.Struct("!q")

Compute = Callable[[int, int], None]
"""Does the local steps of a job, given their number and their nominal nanoseconds."""


class Vanished(Exception):
    """The device went offline in the middle of its work."""


def connect(number: int, address: tuple[str, int], congestion: str) -> socket.socket:
    """A connection to the server, introduced."""
    made = tcp_socket(congestion)
    made.connect(address)
    made.sendall(HELLO.pack(number))
    return made


def sleep_until(instant_ns: int, vanishes_ns: int) -> None:
    """Sleep until an instant.

    Raises:
        Vanished: the device goes offline before that.
    """
    end_ns = instant_ns if vanishes_ns < 0 else min(instant_ns, vanishes_ns)
    while (left_ns := end_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)
    if end_ns < instant_ns:
        raise Vanished


def work(connection: socket.socket, compute: Compute | None) -> None:
    """Do jobs until the server closes the connection; sleep instead of computing if there is no ``compute``.

    Raises:
        Vanished: the device has gone offline in the middle of a job.
    """
    buffer = memoryview(bytearray(1 << 20))
    while True:
        header = receive(connection, JOB.size, buffer, -1)
        if header is None:
            return
        dispatch, size, steps, work_ns, reply, vanishes_ns = JOB.unpack(header)
        receive(connection, size, buffer, vanishes_ns)
        downloaded_ns = time.monotonic_ns()
        if compute is None:
            sleep_until(downloaded_ns + work_ns, vanishes_ns)
        else:
            compute(steps, work_ns)
        computed_ns = time.monotonic_ns()
        connection.sendall(REPORT.pack(dispatch, downloaded_ns, computed_ns) + bytes(reply))
        if vanishes_ns >= 0:
            _wait_until_sent(connection, vanishes_ns)


def receive(
    connection: socket.socket, size: int, buffer: memoryview, vanishes_ns: int
) -> bytes | None:
    """Read ``size`` bytes; returns the last of them, None at the end of the connection.

    Raises:
        Vanished: the device goes offline before that.
    """
    left, got = size, b""
    while left:
        if vanishes_ns >= 0:
            patience_ns = vanishes_ns - time.monotonic_ns()
            if patience_ns <= 0:
                raise Vanished
            connection.settimeout(patience_ns / 1e9)
        try:
            count = connection.recv_into(buffer[: min(left, len(buffer))])
        except TimeoutError:
            raise Vanished from None
        finally:
            connection.settimeout(None)
        if count == 0:
            return None
        got = bytes(buffer[:count]) if size <= 64 else b""
        left -= count
    return got


def _wait_until_sent(connection: socket.socket, vanishes_ns: int) -> None:
    """Wait until all bytes are acknowledged, or the device vanishes with some that are not."""
    unsent = bytearray(4)
    while True:
        fcntl.ioctl(connection, termios.TIOCOUTQ, unsent)
        if not int.from_bytes(unsent, sys.byteorder):
            return
        left_ns = vanishes_ns - time.monotonic_ns()
        if left_ns <= 0:
            raise Vanished
        # The next job, if any, comes only after the server has all bytes of this one.
        if select.select([connection], [], [], min(left_ns / 1e9, 0.02))[0]:
            return


def main(number: int, address: tuple[str, int], congestion: str, compute: Compute | None) -> None:
    """Work until the server ends; after vanishing, connect again for work after the device's return."""
    while True:
        try:
            connection = connect(number, address, congestion)
            work(connection, compute)
            return
        except Vanished:
            # Unsent bytes are lost with the device: the connection is reset, not closed.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        except OSError:
            return
