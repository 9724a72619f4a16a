"""The cores of this machine, and the connection to a Ray cluster."""

import importlib.util
import os
import socket
from pathlib import Path
from threading import Thread

import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.processes import cluster
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
@pytest.mark.parametrize("answer", [None, "silence", b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_an_address_where_nothing_answers_is_refused(
    answer: bytes | str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a check, Ray would try forever, also if something else listens."""
    monkeypatch.setattr(cluster, "_ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        if answer is None:
            server.close()
        elif isinstance(answer, bytes):
            Thread(target=_answer, args=(server, answer), daemon=True).start()
        with pytest.raises(UserError, match=f"no Ray cluster answers at {address}"):
            fedsim.sweep(SMALL, tmp_path / "sweep", engine=Ray(address))


def _answer(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(answer)
