"""The cores of this machine and those of a Ray cluster. Ray is an optional extra, imported on first use."""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
from typing import Any

from fedsim.errors import UserError, refused

_ANSWER_S = 5.0
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"  # Of HTTP/2, and so of gRPC.


def machine_bytes() -> int | None:
    """Bytes of memory of this machine; None on Windows."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def usable_cores() -> int:
    """Cores of this machine that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def connect_to_ray(address: str | None, where: str, **options: Any) -> Any:
    """Connect this process to a cluster; ``ray.shutdown()`` disconnects, and stops a cluster that was started here.

    Args:
        address: address of the cluster (``auto`` for the one on this machine, ``host:port``, ``ray://host:port``); None
            starts one on this machine.
        where: the option or key that requests it.
        options: arguments of ``ray.init``; those of a new cluster require that ``address`` is None.

    Returns:
        The module ``ray``.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            "Ray is not installed",
            where=where,
            hint='install it with: pip install "fedsim-des[ray]"; or leave the option out',
        )
    if address is not None:
        _require_answer(address, where)
    import ray

    new = {"include_dashboard": False} if address is None else {}
    hint = "start a cluster with 'ray start --head', or omit the address to use this machine"
    with refused("cannot connect to Ray", where, hint, (ConnectionError, ValueError, RuntimeError)):
        ray.init(
            address=address if address is not None else "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **new,
            **options,
        )
    return ray


def _require_answer(address: str, where: str) -> None:
    """Check that a host answers as gRPC does, because Ray itself would retry forever."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    hint = "give the address that 'ray start --head' printed, or omit it to use this machine"
    silence = refused(f"no Ray cluster answers at {address}", where, hint)
    with silence, socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S) as connection:
        if os.environ.get("RAY_USE_TLS", "0") == "0":  # With TLS, only Ray can speak to it.
            connection.sendall(_HELLO)
            if connection.recv(9)[3:4] != b"\x04":  # The type of the first frame, as in _HELLO.
                raise ConnectionError("another program listens there")
