"""A real deployment of a scenario: the server's rules of fedsim in real time, and clients as processes behind TCP.

Schedule and selection are fedsim's own, driven by the wall clock; everything that the simulation computes (transfers,
local steps, the order of arrivals) really happens: bytes cross the kernel's TCP stack and queues, and clients sleep
or train.
"""

from __future__ import annotations

import contextlib
import os
import queue
import resource
import socket
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any

from typing_extensions import override

from benchmarks.validation import client as clients
from benchmarks.validation.netns import Link, Net, tcp_socket
from benchmarks.validation.relay import raise_priority
from fedsim.composition.build import build
from fedsim.composition.planes import build_server
from fedsim.composition.world import World
from fedsim.devices.battery import Power
from fedsim.network.base import Direction
from fedsim.network.shared import SharedNetwork
from fedsim.scenario.loading import LoadedScenario
from fedsim.scheduling.base import Dispatch
from fedsim.simulation.dispatch_process import Plan
from fedsim.simulation.dispatches import Dispatches, OnEnd
from fedsim.simulation.engine import Engine
from fedsim.simulation.story import Server
from fedsim.simulation.updates import Ended, dispatch_columns
from fedsim.simulation.workload import Workloads
from fedsim.units import NEVER, NS_PER_S
from fedsim.vocabulary.outcomes import Ending
from fedsim.vocabulary.timeline import Aggregate

CONGESTION = "cubic"


@dataclass
class Log:
    """The rows of a run, simulated or real."""

    power: InitVar[Power]
    dispatches: list[dict[str, Any]] = field(default_factory=list)
    versions_s: list[float] = field(default_factory=list)

    def __post_init__(self, power: Power) -> None:
        self._power = power

    def append_dispatch(self, ended: Ended) -> None:
        """Record a dispatch."""
        row = {
            name: column.item() for name, column in dispatch_columns(self._power, [ended]).items()
        }
        row["outcome"] = ended.outcome.label
        self.dispatches.append(row)

    def append_aggregation(self, aggregate: Aggregate) -> None:
        """Record a version."""
        self.versions_s.append(aggregate.time_s)


def simulate(loaded: LoadedScenario) -> Log:
    """The simulated run."""
    world = build(loaded, timing_only=True)
    log = Log(world.population.power)
    build_server(world, None, log).run()
    return log


class WallEngine(Engine):
    """Makes the server's calls when they are due by the wall clock, and in between what the clients' events cause."""

    def __init__(self) -> None:
        super().__init__()
        self.events: queue.SimpleQueue[tuple[int, Callable[[], None], int]] = queue.SimpleQueue()
        self.origin_ns = 0

    @override
    def run(self, until_ns: int | None) -> None:
        if until_ns is not None:
            self.call_at(until_ns, self.stop)
        origin_ns = self.origin_ns
        while not self.stopped:
            due_ns, now_ns = self.env.peek(), time.monotonic_ns() - origin_ns
            if due_ns <= now_ns:
                self.env.step()
                continue
            with contextlib.suppress(queue.Empty):
                wait_s = min((due_ns - now_ns) / NS_PER_S, 1.0)
                at_ns, action, order = self.events.get(timeout=wait_s)
                self.call_at(max(at_ns - origin_ns, self.now_ns), action, order)


class RealClients(Dispatches):
    """Clients whose bytes cross sockets and whose steps take real time: :class:`fedsim.simulation.simulation.Live`.

    Args:
        world: the scenario.
        listener: socket to which clients connect.
    """

    server: Server

    def __init__(self, world: World, listener: socket.socket) -> None:
        self._time = WallEngine()
        self.engine: Engine = self._time
        self._population = world.population
        down, up = world.traffic_bytes()
        self._bytes = round(down), round(up)
        self._payload = bytes(round(down))
        self._listener = listener
        self._connections: dict[int, socket.socket] = {}
        self._under_way: dict[int, Dispatch] = {}
        self._of_client: dict[int, Dispatch] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def dispatches(self, workloads: Workloads, on_end: OnEnd) -> Dispatches:
        """Itself."""
        self.on_end = on_end
        return self

    @override
    def all(self) -> list[Dispatch]:
        return [self._under_way[number] for number in sorted(self._under_way)]

    def wait_for_clients(self) -> None:
        """Block until all clients have connected."""
        while len(self._connections) < self._population.clients:
            time.sleep(0.01)
        time.sleep(0.2)
        self._time.origin_ns = time.monotonic_ns()

    def close(self) -> None:
        """Close the connections, which ends the clients."""
        # Closing would not wake the threads that wait for these sockets.
        for used in (self._listener, *self._connections.values()):
            with contextlib.suppress(OSError):
                used.shutdown(socket.SHUT_RDWR)

    @override
    def begin(self, dispatch: Dispatch, deadline_ns: int | None, online_until_ns: int) -> None:
        client = dispatch.client
        self._under_way[dispatch.dispatch_id] = self._of_client[client] = dispatch
        step_ns = self._population.compute.step_ns(
            client, dispatch.sequence, dispatch.dispatched_ns
        )
        vanishes_ns = -1 if online_until_ns >= NEVER else self._time.origin_ns + online_until_ns
        job = clients.JOB.pack(
            dispatch.dispatch_id,
            len(self._payload),
            dispatch.steps,
            step_ns * dispatch.steps,
            self._bytes[Direction.UP],
            vanishes_ns,
        )
        self._connections[client].sendall(job + self._payload)

    @override
    def stop(self, dispatch: Dispatch) -> Plan:
        del self._under_way[dispatch.dispatch_id]
        self._of_client.pop(dispatch.client, None)
        return self._lost(self.engine.now_ns, Ending.STOPPED)

    @staticmethod
    def _lost(end_ns: int, ending: Ending) -> Plan:
        return Plan(end_ns, ending, -1, -1, 0, 0.0, 0.0, 0, 0, 0)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._listen, args=(connection,), daemon=True).start()

    def _listen(self, connection: socket.socket) -> None:
        """Receive a client's updates until its connection ends."""
        buffer = memoryview(bytearray(1 << 20))
        hello = clients.receive(connection, clients.HELLO.size, buffer, -1)
        if hello is None:
            return
        (number,) = clients.HELLO.unpack(hello)
        self._connections[number] = connection
        try:
            while header := clients.receive(connection, clients.REPORT.size, buffer, -1):
                dispatch_id, downloaded_ns, computed_ns = clients.REPORT.unpack(header)
                if clients.receive(connection, self._bytes[Direction.UP], buffer, -1) is None:
                    break
                self._arrived(dispatch_id, downloaded_ns, computed_ns, time.monotonic_ns())
        except OSError:
            pass
        gone_ns = time.monotonic_ns()
        self._time.events.put((gone_ns, lambda: self._gone(number, gone_ns), number))

    def _arrived(
        self, dispatch_id: int, downloaded_ns: int, computed_ns: int, arrived_ns: int
    ) -> None:
        def handle() -> None:
            dispatch = self._under_way.pop(dispatch_id, None)
            if dispatch is None:
                return
            self._of_client.pop(dispatch.client, None)
            origin_ns, (down, up) = self._time.origin_ns, self._bytes
            began_ns = origin_ns + dispatch.dispatched_ns
            plan = Plan(
                arrived_ns - origin_ns,
                Ending.ARRIVED,
                downloaded_ns - origin_ns,
                computed_ns - origin_ns,
                dispatch.steps,
                float(down),
                float(up),
                downloaded_ns - began_ns,
                computed_ns - downloaded_ns,
                arrived_ns - computed_ns,
            )
            self.on_end(dispatch, plan)

        self._time.events.put((arrived_ns, handle, dispatch_id))

    def _gone(self, client: int, gone_ns: int) -> None:
        dispatch = self._of_client.pop(client, None)
        if dispatch is not None and self._under_way.pop(dispatch.dispatch_id, None) is not None:
            self.on_end(dispatch, self._lost(gone_ns - self._time.origin_ns, Ending.OFFLINE))


def links_of(world: World) -> tuple[list[Link], dict[str, float]]:
    """The clients' links and the server's link, as the scenario describes them."""
    network, params = world.population.network, world.scenario.devices.network.params
    server = {
        "server_down_bps": getattr(params, "server_down", None) or float("inf"),
        "server_up_bps": getattr(params, "server_up", None) or float("inf"),
    }
    links = []
    for client in range(world.population.clients):
        down, up = (
            network.access_bps(client, direction)
            if isinstance(network, SharedNetwork)
            else network.rate_bps(client, direction)
            for direction in Direction
        )
        delay_s = network.latency_ns(client) / 1e9
        buffer = round(max(2 * delay_s * max(down, up) / 8, 48_000))
        links.append(Link(down, up, delay_s, buffer_bytes=buffer))
    return links, server


def deploy(
    loaded: LoadedScenario,
    compute: Callable[[int], clients.Compute] | None = None,
) -> tuple[Log, dict[str, Any]]:
    """Run a scenario for real, inside a network namespace; returns its log and the conditions.

    Args:
        loaded: the scenario; its run ends by ``stop.simulated_time`` or ``stop.rounds``.
        compute: called in a client's own process with its number; returns what it computes. If None, clients sleep.
    """
    # A reset connection really takes the link's latency; the simulation takes it from this setting.
    world = build(loaded.changed(["server.failure_detection=0s"]), timing_only=True)
    links, server_link = links_of(world)
    shared_bps = min(server_link["server_up_bps"], 1e9)
    buffer = round(max(2 * links[0].delay_s * shared_bps / 8, 48_000))
    net = Net(
        links,
        server_down_bps=server_link["server_down_bps"],
        server_up_bps=server_link["server_up_bps"],
        server_buffer_bytes=buffer,
    )
    processes: list[int] = []
    real_time = raise_priority(10)
    try:
        with net.entered(net.server):
            listener = tcp_socket(CONGESTION)
            listener.bind((net.SERVER, 0))
            listener.listen(len(links))
        address = net.SERVER, listener.getsockname()[1]
        for number, namespace in enumerate(net.clients):
            process = os.fork()
            if process == 0:
                _client(net, namespace, number, address, listener, compute)
            processes.append(process)
        live = RealClients(world, listener)
        log = Log(world.population.power)
        # The server is that of the simulation, with these clients and their time.
        simulation = build_server(world, None, log, live=live)
        live.wait_for_clients()
        load = os.times()
        began = time.monotonic()
        simulation.run()
        live.close()
        for process in processes:
            os.waitpid(process, 0)
        used = os.times()
        seconds = time.monotonic() - began
    finally:
        counts = net.close()
    conditions = {
        "load": os.getloadavg()[0] / (os.cpu_count() or 1),
        "own_cpu": (used.user + used.system - load.user - load.system) / seconds,
        "children_cpu_s": resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime,
        "relay_late_ms": counts.get("late_ns", 0) / 1e6,
        "packets": counts.get("packets", 0),
        "real_time_priority": real_time,
    }
    return log, conditions


def _client(
    net: Net,
    namespace: int,
    number: int,
    address: tuple[str, int],
    listener: socket.socket,
    compute: Callable[[int], clients.Compute] | None,
) -> None:
    """The client's process, from fork to exit."""
    try:
        listener.close()
        net.join(namespace)
        clients.main(number, address, CONGESTION, None if compute is None else compute(number))
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)
