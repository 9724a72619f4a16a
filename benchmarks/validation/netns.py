"""A small network of namespaces: a server, a router, and clients behind links with given rate, delay and loss.

::

    server == veth (server's link) == router -- TUN .. relay .. TUN -- client 0
                                             -- TUN .. relay .. TUN -- client 1 ...

Every queue is a kernel token bucket (``tc tbf``) of one packet and 0.3 ms, with a drop-tail buffer. Nothing leaves the
namespaces: they have no route to the host, and vanish with the process that holds them.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import math
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.validation.relay import Hop, relay

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_TIMER_S = 0.0003  # how late a timer of the kernel may be
_ETHERNET_BYTES = 14
_LIBC = ctypes.CDLL(None, use_errno=True)
_SETTINGS = {
    # No connection may reuse metrics of an earlier one.
    "net/ipv4/tcp_no_metrics_save": "1",
    # Socket buffers that never limit the grid: 4 MB at first, 32 MB at most.
    "net/ipv4/tcp_rmem": "4096 4194304 33554432",
    "net/ipv4/tcp_wmem": "4096 4194304 33554432",
}


@dataclass(frozen=True)
class Link:
    """A client's link.

    Attributes:
        down_bps, up_bps: rates; infinite: unlimited.
        delay_s: one-way delay.
        loss: share of packets lost, each way.
        buffer_bytes: drop-tail buffer of each direction's queue.
    """

    down_bps: float
    up_bps: float
    delay_s: float
    loss: float = 0.0
    buffer_bytes: int = 1_000_000


def _unshare() -> list[str]:
    """The command that makes a network namespace; with a user namespace only if necessary.

    The host's root user keeps its right to real-time priority, which a user namespace would remove.
    """
    plain = ["unshare", "-n"]
    allowed = subprocess.run([*plain, "true"], capture_output=True, check=False).returncode == 0
    return plain if allowed else ["unshare", "-Urn"]


def unavailable() -> str | None:
    """Why namespaces cannot be made here; None if they can."""
    for program in ("ip", "tc", "unshare"):
        if shutil.which(program) is None:
            return f"there is no program {program} (Debian: iproute2, util-linux)"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    script = (
        "ip link add name v0 type veth peer name v1 && ip link set v0 up && ip tuntap add dev t0 mode tun"
        " && tc qdisc add dev v0 root tbf rate 1mbit burst 2kb limit 10kb"
    )
    probe = subprocess.run(
        [*_unshare(), "sh", "-c", script], capture_output=True, text=True, check=False
    )
    return None if probe.returncode == 0 else f"namespaces are refused: {probe.stderr.strip()}"


def inside(module: str, arguments: Sequence[str]) -> int:
    """Run a module in a fresh network namespace; returns its exit status."""
    command = [*_unshare(), sys.executable, "-m", module, *arguments]
    return subprocess.run(command, check=False).returncode


class Net:
    """The namespaces of a server, a router and clients; sockets are made in them with :meth:`entered`.

    Args:
        links: the clients' links.
        server_down_bps, server_up_bps: rates of the server's own link; infinite: unlimited.
        server_buffer_bytes: drop-tail buffer of the server's link, each way.
        seed: seed of the losses.
    """

    SERVER = "10.0.0.1"

    def __init__(
        self,
        links: Sequence[Link],
        *,
        server_down_bps: float = math.inf,
        server_up_bps: float = math.inf,
        server_buffer_bytes: int = 1_000_000,
        seed: int = 1,
    ) -> None:
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.server, self._router = _new_namespace(), _new_namespace()
        self.clients = [_new_namespace() for _ in links]
        self._open = [self._home, self.server, self._router, *self.clients]
        with self.entered(self._router):
            _run("ip link set lo up")
            _write("net/ipv4/ip_forward", "1")
            _run("ip link add name core type veth peer name edge")
            _run(f"ip link set edge netns /proc/self/fd/{self.server}", self.server)
            _run("ip addr add 10.0.0.2/30 dev core")
            _run("ip link set core up")
        with self.entered(self.server):
            _run("ip link set lo up")
            _run("ip addr add 10.0.0.1/30 dev edge")
            _run("ip link set edge up")
            _run("ip route add 10.1.0.0/16 via 10.0.0.2")
            _shape("edge", server_down_bps, server_buffer_bytes, _ETHERNET_BYTES)
        with self.entered(self._router):
            _shape("core", server_up_bps, server_buffer_bytes, _ETHERNET_BYTES)
        hops = []
        for number, (link, client) in enumerate(zip(links, self.clients, strict=True)):
            net = f"10.1.{number}"
            with self.entered(self._router):
                far = _tun(f"t{number}")
                _run(f"ip addr add {net}.1/30 dev t{number}")
                _run(f"ip link set t{number} up")
                _shape(f"t{number}", link.down_bps, link.buffer_bytes)
            with self.entered(client):
                near = _tun("net")
                _run("ip link set lo up")
                _run(f"ip addr add {net}.2/30 dev net")
                _run("ip link set net up")
                _run(f"ip route add default via {net}.1")
                _shape("net", link.up_bps, link.buffer_bytes)
            hops += [
                Hop(far, near, link.delay_s, link.down_bps, link.loss),
                Hop(near, far, link.delay_s, link.up_bps, link.loss),
            ]
            self._open += [far, near]
        for space in (self.server, self._router, *self.clients):
            with self.entered(space):
                for key, value in _SETTINGS.items():
                    _write(key, value)
        self._stop, until = os.pipe()[::-1]
        result, report = os.pipe()
        self._result = result
        self._relay = os.fork()
        if self._relay == 0:
            os.close(self._stop)
            status = 1
            try:
                counts = relay(hops, seed, until)
                os.write(report, json.dumps(counts).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(until)
        os.close(report)

    @contextlib.contextmanager
    def entered(self, namespace: int) -> Iterator[None]:
        """Run the block, in this thread, in a namespace; sockets that it makes stay there."""
        _enter(namespace)
        try:
            yield
        finally:
            _enter(self._home)

    def join(self, namespace: int) -> None:
        """Move this process, a fork of the one that made the network, into a namespace permanently."""
        _enter(namespace)
        os.close(self._stop)

    def close(self) -> dict[str, int]:
        """Stop the relay and give up the namespaces; returns the relay's counts."""
        os.close(self._stop)
        counts: dict[str, int] = json.loads(os.read(self._result, 65536) or b"{}")
        os.waitpid(self._relay, 0)
        for descriptor in (self._result, *self._open):
            os.close(descriptor)
        return counts


def tcp_socket(congestion: str) -> socket.socket:
    """A TCP socket with this congestion control, read back to be sure."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    used = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    if used != congestion:
        raise RuntimeError(f"the socket uses {used}, not {congestion}")
    return made


def _new_namespace() -> int:
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    if _LIBC.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    made = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    _enter(home)
    os.close(home)
    return made


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _tun(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def _shape(device: str, rate_bps: float, buffer_bytes: int, frame_bytes: int = 0) -> None:
    """Limit the outgoing rate of a device in IP packets; the device adds ``frame_bytes`` to each packet."""
    if rate_bps < math.inf:
        # With a bucket of one packet, the link would be idle while the kernel's timer is late.
        bucket = 1540 + round(rate_bps * _TIMER_S / 8)
        rate_bps *= (1500 + frame_bytes) / 1500
        limit = max(buffer_bytes, bucket + 1540)
        _run(
            f"tc qdisc add dev {device} root tbf rate {rate_bps:.0f}bit burst {bucket} limit {limit}"
        )


def _run(command: str, *descriptors: int) -> None:
    done = subprocess.run(
        command.split(), capture_output=True, text=True, check=False, pass_fds=descriptors
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")


def _write(key: str, value: str) -> None:
    Path("/proc/sys", key).write_text(value)
