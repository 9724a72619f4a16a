"""Cost of the Flower bridge per message, compared with the app's own work.

Usage: python -m benchmarks.flower.cost [--nodes 1000] [--cohort 50] [--rounds 20] [--megabytes 1]

The app returns its input, so that almost all of the CPU time is that of the bridge and of Flower. The time that the
ServerApp, its strategy and the ClientApp spend in their own code is subtracted.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_LOG_LEVEL", "ERROR")
LIMIT_MS = 5.0


class Stopwatch:
    """CPU seconds spent in the app's own code; pauses while that code calls the bridge."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of a block."""
        began = time.process_time()
        try:
            yield
        finally:
            self.seconds += time.process_time() - began

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time counted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.running():
                return function(*args, **kwargs)

        return call


def measure(nodes: int, cohort: int, rounds: int, megabytes: float) -> dict[str, float]:
    import numpy as np
    from flwr.app import ArrayRecord, MetricRecord, RecordDict
    from flwr.app import Message as FlowerMessage
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    import fedsim.flower
    from fedsim.flower.grid import SimulatedGrid

    app_time = Stopwatch()
    client, server = ClientApp(), ServerApp()
    arrays = ArrayRecord([np.ones(int(megabytes * 2**20 / 4), dtype=np.float32)])

    @client.train()
    def train(message: Any, context: Any) -> Any:
        with app_time.running():
            metrics = MetricRecord({"num-examples": 10})
            content = RecordDict({"arrays": message.content["arrays"], "metrics": metrics})
            return FlowerMessage(content, reply_to=message)

    spent = {}

    @server.main()
    def main(grid: SimulatedGrid, context: Any) -> None:
        strategy = FedAvg(fraction_train=0.0001, min_train_nodes=cohort, fraction_evaluate=0.0)
        for name in ("configure_train", "aggregate_train"):
            setattr(strategy, name, app_time.timed(getattr(strategy, name)))
        began = time.process_time()
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds)
        spent["total_s"] = time.process_time() - began

    devices = {
        "task": {"clients": nodes, "unit": "example"},
        "devices": {"compute": {"name": "lognormal", "median": "1s"}},
    }
    with tempfile.TemporaryDirectory() as folder:
        fedsim.flower.run(server, client, devices, output=Path(folder) / "run")
    messages = rounds * cohort
    return {
        "messages": messages,
        "total_ms": spent["total_s"] / messages * 1e3,
        "app_ms": app_time.seconds / messages * 1e3,
        "bridge_ms": (spent["total_s"] - app_time.seconds) / messages * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--megabytes", type=float, default=1.0)
    arguments = parser.parse_args()
    cost = measure(arguments.nodes, arguments.cohort, arguments.rounds, arguments.megabytes)
    verdict = "within" if cost["bridge_ms"] < LIMIT_MS else "beyond"
    print(
        f"{cost['messages']:.0f} messages of {arguments.megabytes:g} MiB, {arguments.cohort} of {arguments.nodes} "
        f"nodes per round: {cost['bridge_ms']:.2f} ms of CPU time per message for the bridge ({verdict} the limit of "
        f"{LIMIT_MS:g} ms), {cost['app_ms']:.2f} ms for the app"
    )


if __name__ == "__main__":
    main()
