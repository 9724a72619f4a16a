"""A ring all-reduce over the kernel's TCP through token buckets, between network namespaces of this machine.

Four processes, each in a namespace with ``tc tbf rate R burst 32768 latency 50ms`` on its interface and an MTU of 9,001
bytes, as in the measured runs of DiLoCo, pass a ring's chunks on over one or several connections per pair of members.
It needs root and the programs ``ip`` and ``tc``.
"""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing as mp
import socket
import subprocess
import threading
import time
from multiprocessing.synchronize import Barrier
from typing import Any

_CLONE_NEWNET = 0x40000000
_PORT = 5001
_SERIALS = itertools.count()
_SOCKETS = 16
"""Per channel, NCCL's default on AWS (NCCL_SOCKET_NTHREADS 2, NCCL_NSOCKS_PERTHREAD 8)."""
_SLICE_BYTES = 1 << 20
_SLICES = 2
"""Per chunk."""
_BUFFERS = 4
"""Slices in the buffer of a channel (NCCL_BUFFSIZE 4 MiB)."""


def _command(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


def own_namespace() -> None:
    """Leave the network of the machine."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise PermissionError("network namespaces need root")


def _ring(out: list[socket.socket], into: list[socket.socket], members: int, size: int) -> None:
    """The 2 (P - 1) steps of a ring, pipelined in slices over the connections of all channels, as NCCL does."""
    channels = -(-len(out) // _SOCKETS)
    slices = 2 * (members - 1) * size // (channels * members * _SLICE_BYTES)
    jobs = []
    for first in range(0, len(out), _SOCKETS):
        channel = slice(first, first + _SOCKETS)
        jobs += _channel(out[channel], into[channel], members, slices)
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()


def _channel(
    out: list[socket.socket], into: list[socket.socket], members: int, slices: int
) -> list[threading.Thread]:
    """The threads of a channel, one per connection and direction."""
    part = _SLICE_BYTES // len(out)
    block = bytes(part)
    sent, received = [0] * slices, [0] * slices
    changed = threading.Condition()

    def is_ready(number: int) -> bool:
        """Whether what a slice continues has arrived, and a buffer is free."""
        starts_loop = number % (2 * (members - 1) * _SLICES) < _SLICES
        arrived = starts_loop or received[number - _SLICES] == len(into)
        return arrived and (number < _BUFFERS or sent[number - _BUFFERS] == len(out))

    def noted(done: list[int], number: int) -> None:
        with changed:
            done[number] += 1
            if done[number] == len(out):
                changed.notify_all()

    def sender(connection: socket.socket) -> None:
        for number in range(slices):
            with changed:
                changed.wait_for(lambda number=number: is_ready(number))  # type: ignore[misc]
            connection.sendall(block)
            noted(sent, number)

    def receiver(connection: socket.socket) -> None:
        for number in range(slices):
            if len(connection.recv(part, socket.MSG_WAITALL)) < part:
                raise ConnectionError("a member has left")
            noted(received, number)

    threads = [threading.Thread(target=sender, args=(one,)) for one in out]
    return threads + [threading.Thread(target=receiver, args=(one,)) for one in into]


def _connected(address: tuple[str, int]) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    connection.connect(address)
    return connection


def _member(
    number: int, members: int, size: int, connections: int, ready: Barrier, results: Any, pipe: Any
) -> None:
    own_namespace()
    pipe.send(mp.current_process().pid)
    name, rate_bps = pipe.recv()
    _command("ip", "link", "set", "lo", "up")
    _command("ip", "addr", "add", f"10.9.0.{number + 1}/24", "dev", name)
    _command("ip", "link", "set", name, "mtu", 9001, "up")
    _command("tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", f"{rate_bps:.0f}bit",
             "burst", 32768, "latency", "50ms")  # fmt: skip
    server = socket.create_server(("", _PORT), backlog=connections)
    ready.wait()
    following = (f"10.9.0.{(number + 1) % members + 1}", _PORT)
    out = [_connected(following) for _ in range(connections)]
    into = [server.accept()[0] for _ in range(connections)]
    ready.wait()
    for repeat in range(len(results)):
        began = time.perf_counter()
        _ring(out, into, members, size)
        ready.wait()
        results[repeat] = time.perf_counter() - began  # the same for all, up to a barrier


def measure(
    rate_bps: float, size_bytes: int, connections: int, repeats: int, members: int = 4
) -> list[float]:
    """Seconds of all-reduces of ``size_bytes``, without a first that opens the windows; own_namespace() comes before.

    ``size_bytes`` is a multiple of 8 MiB per channel of at most 16 connections.
    """
    bridge = "fedsimbr0"
    fork = mp.get_context("fork")
    ready, results = fork.Barrier(members), fork.Array("d", repeats + 1)
    _command("ip", "link", "add", bridge, "mtu", 9001, "type", "bridge")
    processes = []
    try:
        _command("ip", "link", "set", bridge, "up")
        for number in range(members):
            here, there = fork.Pipe()
            process = fork.Process(
                target=_member,
                args=(number, members, size_bytes, connections, ready, results, there),
                daemon=True,
            )
            process.start()
            processes.append(process)
            serial = next(_SERIALS)
            inside, outside = f"fsr{serial}", f"fsx{serial}"
            _command(
                "ip", "link", "add", inside, "mtu", 9001, "type", "veth", "peer", "name", outside
            )
            _command("ip", "link", "set", outside, "mtu", 9001, "master", bridge, "up")
            _command("ip", "link", "set", inside, "netns", here.recv())
            here.send((inside, rate_bps))
        for process in processes:
            process.join(600)
    finally:
        for process in processes:
            process.kill()
            process.join()
        _command("ip", "link", "del", bridge)
    return [float(seconds) for seconds in results[1:]]
