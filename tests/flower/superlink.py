"""A SuperLink and SuperNodes of Flower as processes on this machine, quick enough for tests.

All of Flower's code and messages are its own. What takes its time in a deployment is shortened: a SuperNode looks for
messages every 200 ms instead of every 3 s, a node that is killed may be gone after 2 s instead of 60 s, and its
ClientApp lives as long as the node, instead of being imported for every message. No wait decides an outcome: the limits
of time are generous, and end a test that hangs.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.app import Message
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import SubStatus
from flwr.common.serde import context_from_proto, fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore import heartbeat
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid import HttpGrid
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.runtime import run_clientapp

from fedsim.flower import internals
from tests.flower.loopback import trained

_POLL_S = 0.2
_PATIENCE_S = 120.0
"""Seconds after which a SuperLink that does not answer is given up."""
_PROJECT = """
[project]
name = "served"
version = "1.0.0"
description = "An app without code"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "served:app"
clientapp = "served:app"
"""
_SUPERLINK = "flwr.superlink.cli.flower_superlink"
_SUPERNODE = "flwr.supernode.cli.flower_supernode"
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__, _SUPERLINK, _SUPERNODE, "fedsim.flower.serving"])


def _reserved() -> tuple[socket.socket, int]:
    """A port that no other process gets while the socket exists, but at which a server of this one can listen."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved, reserved.getsockname()[1]


def _runtime(port: int, name: str, token: str | None = None) -> RuntimeHttpClient:
    more = [] if token is None else [RuntimeTokenHttpInterceptor(token)]
    version = RuntimeVersionHttpInterceptor(component_name=name)
    return RuntimeHttpClient.from_server_address(f"127.0.0.1:{port}", True, None, [version, *more])


def _acquired(port: int, kind: str, limit_s: float = float("inf")) -> Iterator[str]:
    """Tokens of the tasks of one kind, for ``limit_s``."""
    end_s = time.monotonic() + limit_s
    with _runtime(port, "SuperExec") as client:
        while time.monotonic() < end_s:
            with contextlib.suppress(Exception):  # The server is not up yet.
                answer = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
                if answer.token:
                    yield answer.token
                    continue
            time.sleep(_POLL_S)


def _hurry() -> None:
    """Look again for what is still under way after 50 ms, not 1 s."""
    pull_objects.__kwdefaults__["initial_backoff"] = 0.05


# -- the processes ----------------------------------------------------------------------------------------------------


def _begin(home: str, *arguments: str) -> None:
    start_parent_process_monitor(os.getppid())
    sys.argv = [*arguments]
    os.environ |= {"FLWR_HOME": home, "FLWR_DISABLE_UPDATE_CHECK": "1"}
    log = os.open(f"{home}/{arguments[0]}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    _hurry()


def superlink(home: str, port: int) -> None:
    """The process of a SuperLink."""
    from flwr.superlink.cli.flower_superlink import flower_superlink

    address = ("--host", "127.0.0.1", "--port", str(port))
    _begin(home, "flower-superlink", "--insecure", "--isolation", "process", *address)
    fleet_handlers.HEARTBEAT_MIN_INTERVAL = 1
    flower_superlink()


def supernode(
    home: str, superlink_port: int, number: int, delay_s: float, heartbeat_s: int
) -> None:
    """The process of a SuperNode, and of its ClientApp."""
    from flwr.supernode.cli.flower_supernode import flower_supernode

    _socket, port = _reserved()  # Reserved as long as the process lives.
    address = ("--superlink", f"127.0.0.1:{superlink_port}", "--port", str(port))
    config = ("--node-config", f"partition-id={number}")
    _begin(home, "flower-supernode", "--insecure", "--isolation", "process", *address, *config)
    heartbeat.HEARTBEAT_DEFAULT_INTERVAL = heartbeat_s
    fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = heartbeat_s
    heartbeat.HEARTBEAT_CALL_TIMEOUT = 0
    start_client_internal.time = SimpleNamespace(sleep=lambda _: time.sleep(_POLL_S))
    threading.Thread(target=_clientapp, args=(port, delay_s), daemon=True).start()
    flower_supernode()


def _clientapp(port: int, delay_s: float) -> None:
    """What ``flwr-clientapp`` does, for one message after another."""
    for token in _acquired(port, "flwr-clientapp"):
        # Its process may fail, such as with the reply to a run that has ended; the next is another.
        with contextlib.suppress(Exception), _runtime(port, "flwr-clientapp", token) as client:
            message, context, _, _ = run_clientapp.pull_task_input(client)
            node = int(context.node_config["partition-id"])
            time.sleep(delay_s)
            reply = Message(trained(message, node), reply_to=message)
            run_clientapp.push_message(client, reply, context)
            run_clientapp.push_task_output(client, context, SubStatus.COMPLETED, "")


# -- the server -------------------------------------------------------------------------------------------------------


def serve(home: str, port: int, app: Any) -> None:
    """Start a run, and be its ServerApp, as ``flwr-serverapp`` is."""
    _start_run(Path(home), port)
    _hurry()
    token = next(_acquired(port, "flwr-serverapp", _PATIENCE_S))
    grid = HttpGrid(f"127.0.0.1:{port}", True, token=token)
    client = grid._runtime_client
    sender = heartbeat.HeartbeatSender(heartbeat.make_task_heartbeat_fn_http(client))
    sender.start()
    answer = client.PullTaskInput(PullTaskInputRequest())
    context = context_from_proto(answer.context)
    grid.set_run(run_from_proto(answer.run))
    try:
        with internals.identity(context.run_id, context.node_id):
            app(grid, context)
    finally:
        sender.stop()  # A heartbeat of a task that has ended would interrupt this process.
        client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED))
        grid.close()


def _serve_scenario(home: str, port: int, section: dict[str, Any], folder: Path) -> None:
    _begin(home, "flwr-serverapp")
    from fedsim.flower import server_app

    serve(home, port, server_app(section, output=folder))


def _start_run(home: Path, port: int) -> None:
    project = home / "project"
    project.mkdir(exist_ok=True)
    (project / "pyproject.toml").write_text(_PROJECT)
    (project / "served.py").write_text("")
    content = build_fab_from_disk(project)
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    version = RuntimeVersionHttpInterceptor(component_name="flwr")
    client = ControlHttpClient.from_server_address(f"127.0.0.1:{port}", True, None, [version])
    end_s = time.monotonic() + _PATIENCE_S
    with client:
        while time.monotonic() < end_s:
            with contextlib.suppress(Exception):
                client.StartRun(StartRunRequest(fab=fab_to_proto(fab)))
                return
            time.sleep(0.1)
        raise TimeoutError("the SuperLink does not answer")


# -- the deployment ---------------------------------------------------------------------------------------------------


class Deployment(contextlib.AbstractContextManager["Deployment"]):
    """A SuperLink, and a node for each of ``delays_s``, the seconds for which its ClientApp works.

    A node that dies is gone after twice ``heartbeat_s``. A busy machine may make one late, so a short time is only for
    tests in which nodes may come and go.
    """

    def __init__(self, home: Path, delays_s: Sequence[float], heartbeat_s: int = 30) -> None:
        self.home, self.delays_s, self.heartbeat_s = home, delays_s, heartbeat_s
        self._socket, self.port = _reserved()
        self._processes: list[Any] = []
        self._process(superlink)
        self.nodes = [self.node(number) for number in range(len(delays_s))]

    def _process(self, target: Any, *arguments: Any) -> Any:
        process = _PROCESSES.Process(
            target=target, args=(str(self.home), self.port, *arguments), daemon=True
        )
        process.start()
        self._processes.append(process)
        return process

    def node(self, number: int) -> Any:
        """Start a node."""
        return self._process(supernode, number, self.delays_s[number], self.heartbeat_s)

    def restart(self, number: int) -> None:
        """Kill a node, and start it again."""
        self.nodes[number].kill()
        self.nodes[number] = self.node(number)

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.join()
        self._socket.close()

    def serve(self, app: Any) -> None:
        """Run a ServerApp in this process."""
        serve(str(self.home), self.port, app)

    def serve_apart(self, section: dict[str, Any], folder: Path) -> Any:
        """Run the ServerApp of a scenario in a process, which is returned."""
        return self._process(_serve_scenario, section, folder)
