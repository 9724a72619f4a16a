"""The same Flower app on Flower's own engine (Ray) and on fedsim: final weights, start-up and wall time side by side.

Usage, in an environment with ``flwr[simulation]==1.41.*``::

    python -m benchmarks.flower.against_ray [--nodes 10] [--rounds 3] [--cpus 2] [--strategies FedAvg Krum]

With replies sorted by node on both sides, the final weights must be equal bit for bit; without, within 1e-6.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ.setdefault("FLWR_LOG_LEVEL", "ERROR")
# By default, the workers of Ray have a lower priority than all other processes.
os.environ.setdefault("RAY_worker_niceness", "0")
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
import torch  # noqa: E402

import fedsim.flower  # noqa: E402
from fedsim.flower.grid import node_ids  # noqa: E402
from tests.flower import apps  # noqa: E402

_HOST_TIME = time.time


def on_ray(server: Any, client: Any, ids: tuple[int, ...], cpus: int) -> float:
    """Run on Flower's engine; wall seconds."""
    from flwr.server.superlink.linkstate import in_memory_linkstate
    from flwr.simulation.run_simulation import _run_simulation
    from flwr.supercore.telemetry import EventType

    began = _HOST_TIME()
    with mock.patch.object(in_memory_linkstate, "generate_rand_int_from_bytes", side_effect=ids):
        _run_simulation(
            num_supernodes=len(ids),
            exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
            client_app=client,
            server_app=server,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0},
                "init_args": {"num_cpus": cpus},
            },
        )
    return _HOST_TIME() - began


def on_fedsim(server: Any, client: Any, nodes: int) -> float:
    """Run on fedsim, in this process; wall seconds, with the run folder and its report."""
    began = _HOST_TIME()
    with tempfile.TemporaryDirectory() as folder:
        fedsim.flower.run(server, client, {"task": {"clients": nodes}}, output=Path(folder) / "run")
    return _HOST_TIME() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--strategies", nargs="*", choices=apps.STRATEGIES, default=apps.STRATEGIES)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ids = node_ids(arguments.nodes, 0)
    print(f"{arguments.nodes} nodes, {arguments.rounds} rounds, {arguments.cpus} processes of Ray")
    print("strategy    sorted  final weights          Ray       fedsim")
    for name, sort in itertools.product(arguments.strategies, (True, False)):
        results: list[Any] = []
        server = apps.strategy_server(
            apps.STRATEGIES[name],
            rounds=arguments.rounds,
            sort=sort,
            results=results,
            fraction_evaluate=0.0,
            min_train_nodes=arguments.nodes,
            min_available_nodes=arguments.nodes,
        )
        client = apps.torch_client()
        ray_s = on_ray(server, client, ids, arguments.cpus)
        fedsim_s = on_fedsim(server, client, arguments.nodes)
        theirs, ours = (result.arrays.to_numpy_ndarrays() for result in results)
        equal = all(np.array_equal(a, b) for a, b in zip(theirs, ours, strict=True))
        largest = max(
            float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(theirs, ours, strict=True)
        )
        verdict = "equal bits" if equal else f"differ by {largest:.1e}"
        print(f"{name:10}  {sort!s:6}  {verdict:18} {ray_s:8.1f} s {fedsim_s:8.1f} s", flush=True)
    start_up(arguments.nodes, arguments.cpus, ids)


def start_up(count: int, cpus: int, ids: tuple[int, ...]) -> None:
    """Print how long a run without rounds takes on both engines."""
    server, client = apps.strategy_server(rounds=0), apps.torch_client()
    ray_s, fedsim_s = on_ray(server, client, ids, cpus), on_fedsim(server, client, count)
    print(f"start-up and end (no rounds): Ray {ray_s:.1f} s, fedsim {fedsim_s:.1f} s")


if __name__ == "__main__":
    main()
