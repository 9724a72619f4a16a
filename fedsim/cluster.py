"""The way to a Ray cluster, for sweeps and for local training. Ray is an extra, imported when it is asked for."""

from __future__ import annotations

import importlib.util
import logging
import socket
from typing import Any

from fedsim.errors import UserError

_ANSWER_S = 5.0


def require_ray(where: str) -> None:
    """Whether Ray is installed, without importing it.

    Args:
        where: what has asked for it.

    Raises:
        UserError: it is not.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            "Ray is not installed",
            where=where,
            hint='install it with: pip install "fedsim-des[ray]"; or leave the option out',
        )


def connect_to_ray(address: str | None, where: str, **options: Any) -> Any:
    """Connect this process to a cluster; ``ray.shutdown()`` ends that, and the cluster if it was started here.

    Args:
        address: of a cluster (``auto`` for the one on this machine, ``host:port``, ``ray://host:port``); starts one on
            this machine where None.
        where: what has asked for it.
        options: of ``ray.init``; those of a new cluster alone must only be given where ``address`` is None.

    Returns:
        The module ``ray``.

    Raises:
        UserError: Ray is not installed, or there is no cluster at the address.
    """
    require_ray(where)
    if address is not None:
        _require_answer(address, where)
    import ray

    new = {"include_dashboard": False} if address is None else {}
    try:
        ray.init(
            address=address if address is not None else "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **new,
            **options,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(
            f"cannot connect to Ray: {error}",
            where=where,
            hint="start a cluster with `ray start --head`, or leave the address out to use this machine",
        ) from error
    return ray


def _require_answer(address: str, where: str) -> None:
    """Ray itself asks for ever where nobody answers.

    Raises:
        UserError: the address names a host and a port, and nothing answers there.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at {address}: {error}",
            where=where,
            hint="give the address that `ray start --head` printed, or leave it out to use this machine",
        ) from error
