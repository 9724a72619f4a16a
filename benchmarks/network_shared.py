"""The cost of transfers: shared links under load, and transfer times in closed form against a bare SimPy timeout.

Run ``python benchmarks/network_shared.py``. Stated limit: 2,000 completions per second with 1,000 concurrent flows
over a tree of three levels. Seconds are those of the process, so that other work on the machine hardly counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np
import simpy

from fedsim.network.base import Direction, NetworkContext
from fedsim.network.graphs import Tree
from fedsim.network.shared import SharedNetwork
from fedsim.network.static import StaticNetwork
from fedsim.network.traced import RateSeries, Ride, TracedNetwork
from fedsim.randomness import Purpose, Stream

S = 1_000_000_000
LIMIT_COMPLETIONS_PER_S = 2_000
FLOWS = 1_000


def tree(clients: int, fan_out: list[int], capacities_bps: list[float]) -> SharedNetwork:
    """A tree whose clients have lognormal access links, like the phones of FedScale."""
    context = NetworkContext(clients, None, np.arange(clients), 0, Path())
    topology = Tree(name="tree", fan_out=fan_out, capacity=capacities_bps[1:]).topology(context)
    rates_bps = 5.4e6 * np.exp(1.16 * Stream(0, Purpose.ANALYSIS).normals(np.arange(clients)))
    return SharedNetwork(
        topology,
        attachment=np.arange(clients) % len(topology.access),
        down_bps=rates_bps,
        up_bps=rates_bps,
        latency_s=0.04,
        server_up_bps=capacities_bps[0],
    )


def completions_per_s(network: SharedNetwork, clients: int, flows: int, count: int) -> float:
    """Uploads that end per second, each of which is followed by an upload of a client drawn at random."""
    draws = Stream(1, Purpose.ANALYSIS)
    order = np.argsort(draws.uniforms(np.arange(clients))).tolist()
    picks = (draws.uniforms(np.arange(count + flows), 1) * (clients - flows)).astype(int).tolist()
    sizes = (2e6 * np.exp(0.5 * draws.normals(np.arange(count + flows), 2))).tolist()
    idle, owner = order[flows:], dict(enumerate(order[:flows]))
    for transfer, client in owner.items():
        network.start_transfer(transfer, client, Direction.UP, sizes[transfer], 0)
    network.next_event_ns()
    finished = 0
    started = flows
    begin = time.process_time()
    while finished < count:
        now_ns = network.next_event_ns()
        for transfer in network.pop_finished(now_ns):
            finished += 1
            pick = picks[started % len(picks)]
            client, idle[pick] = idle[pick], owner.pop(transfer)
            owner[started] = client
            network.start_transfer(
                started, client, Direction.UP, sizes[started % len(sizes)], now_ns
            )
            started += 1
    return finished / (time.process_time() - begin)


def microseconds(call: Callable[[], object], count: int) -> float:
    """Best of five, for one of ``count`` repetitions inside ``call``."""
    best = float("inf")
    for _ in range(5):
        begin = time.process_time()
        call()
        best = min(best, time.process_time() - begin)
    return best / count * 1e6


def timeouts(count: int) -> None:
    environment = simpy.Environment()

    def process() -> Generator[simpy.Event, None, None]:
        for _ in range(count):
            yield environment.timeout(1)

    environment.process(process())
    environment.run()


def transfers(network: StaticNetwork | TracedNetwork, size_bytes: float, count: int) -> None:
    end_ns, down = network.transfer_end_ns, Direction.DOWN
    for client in range(count):
        end_ns(client % 1000, down, size_bytes, client * 1_000_003)


def main() -> None:
    count = 100_000
    timeout_us = microseconds(lambda: timeouts(count), count)
    rng = np.random.default_rng(0)
    seconds, series = 3600, 100
    traces = RateSeries(
        series=np.repeat(np.arange(series), seconds),
        start_ns=np.tile(np.arange(seconds) * S, series),
        duration_ns=np.full(series * seconds, S),
        rate_bps=rng.lognormal(15, 1, series * seconds) * (rng.random(series * seconds) > 0.1),
        on_end="wrap",
        names=[str(name) for name in range(series)],
    )
    ride = Ride(rng.integers(0, series, 1000), rng.integers(0, 3600 * S, 1000), np.ones(1000))
    static = StaticNetwork(latency_s=0.04, down_bps=1e7, up_bps=1e7, clients=1000)
    traced = TracedNetwork(traces, down=ride, up=ride, latency_s=0.04)
    result: dict[str, object] = {"simpy_timeout_us": round(timeout_us, 3)}
    for name, network, size_bytes in (
        ("static", static, 1e6),
        ("traced_1MB", traced, 1e6),
        ("traced_100MB", traced, 1e8),
    ):
        cost_us = microseconds(lambda n=network, b=size_bytes: transfers(n, b, count), count)
        result[f"transfer_end_{name}_us"] = round(cost_us, 3)
        result[f"transfer_end_{name}_timeouts"] = round(cost_us / timeout_us, 2)

    clients = 2 * FLOWS
    loads = {
        "ingress_is_narrow": [1e9, 1e9, 2e8, 6e7],
        "edges_are_narrow": [1e11, 1e11, 1e9, 3e7],
        "access_is_narrow": [1e11, 1e11, 1e11, 1e11],
    }
    slowest = float("inf")
    for name, capacities_bps in loads.items():
        shared = tree(clients, [4, 5, 5], capacities_bps)
        speed = completions_per_s(shared, clients, FLOWS, 5000)
        result[f"shared_{name}_per_s"] = round(speed)
        slowest = min(slowest, speed)
    result["shared_share_of_limit"] = round(slowest / LIMIT_COMPLETIONS_PER_S, 2)
    crowd = tree(20_000, [10, 10, 10], [2e10, 2e10, 4e9, 5e8])
    result["shared_10000_flows_per_s"] = round(completions_per_s(crowd, 20_000, 10_000, 1000))
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
