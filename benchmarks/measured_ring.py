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


def _command(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


def own_namespace() -> None:
    """Leave the network of the machine."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise PermissionError("network namespaces need root")


def _send(connection: socket.socket, size: int) -> None:
    block = memoryview(bytes(1 << 16))
    while size:
        size -= connection.send(block[: min(size, len(block))])


def _receive(connection: socket.socket, size: int) -> None:
    while size:
        received = len(connection.recv(min(size, 1 << 16)))
        if not received:
            raise ConnectionError("a member has left")
        size -= received


def _step(out: list[socket.socket], into: list[socket.socket], size: int) -> None:
    """Send and receive a chunk, in equal parts over all connections."""
    share = size // len(out)
    jobs = [threading.Thread(target=_send, args=(one, share)) for one in out]
    jobs += [threading.Thread(target=_receive, args=(one, share)) for one in into]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()


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
    out = [socket.create_connection(following) for _ in range(connections)]
    into = [server.accept()[0] for _ in range(connections)]
    ready.wait()
    for _ in range(2):  # the first one opens the windows
        began = time.perf_counter()
        for _ in range(2 * (members - 1)):
            _step(out, into, size // members)
        ready.wait()
        results[number] = time.perf_counter() - began


def measure(rate_bps: float, size_bytes: int, connections: int, members: int = 4) -> float:
    """Seconds of the second of two all-reduces of ``size_bytes``; call :func:`own_namespace` before."""
    bridge = "fedsimbr0"
    fork = mp.get_context("fork")
    ready, results = fork.Barrier(members), fork.Array("d", members)
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
    return max(float(results[number]) for number in range(members))
