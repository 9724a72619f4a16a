"""The cores of this machine, and the connection to a Ray cluster."""

import importlib.util
import os
import socket
from pathlib import Path

import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.processes.cluster import usable_cores
from fedsim.sweeps import Ray
from tests.sweeps.worlds import SMALL


def test_cores_that_the_process_may_not_use_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 64


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_an_address_where_nothing_answers_is_refused(tmp_path: Path) -> None:
    """Without a check, Ray would try forever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(UserError, match=f"no Ray cluster answers at {address}"):
        fedsim.sweep(SMALL, tmp_path / "sweep", engine=Ray(address))
