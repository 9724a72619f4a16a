"""The validation in seconds, for the test suite: a transfer by the kernel, and two deployments of three clients.

``python -m benchmarks.validation.smoke`` prints the relative errors of the model as JSON; it needs namespaces.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence

from benchmarks.validation.configurations import TCP, load
from benchmarks.validation.deployment import deploy, simulate
from benchmarks.validation.netns import inside
from benchmarks.validation.relay import raise_priority
from benchmarks.validation.tcp_oracle import Case, measure, predicted_s, tcp

SCENARIO = {
    "name": "smoke",
    "seed": 1,
    "task": {"name": "timing", "clients": 3, "parameters": 50_000},
    "training": {"local_steps": 5},
    "devices": {
        "compute": {"name": "values", "step": ["0.05s", "0.1s", "0.15s"]},
        "network": {
            "name": "static",
            "latency": "20ms",
            "down": "8Mbps",
            "up": "4Mbps",
            "transport": TCP,
        },
    },
    "server": {"method": "fedavg", "schedule": {"name": "sync"}},
    "stop": {"rounds": 3},
}

LEAVING = {
    "name": "leaving",
    "seed": 1,
    "task": {"name": "timing", "clients": 3, "parameters": 50_000},
    "training": {"local_steps": 5},
    "devices": {
        "compute": {"name": "values", "step": "0.1s"},
        "availability": {"name": "windows.py:Windows", "period": "3s", "online": 0.6},
        "network": {
            "name": "shared",
            "latency": "200ms",
            "down": "16Mbps",
            "up": "16Mbps",
            "server_up": "8Mbps",
            "transport": TCP,
        },
    },
    "server": {
        "method": "fedasync",
        "selection": {"name": "uniform", "cohort": 2},
        "schedule": {"name": "async"},
        "failure_detection": "200ms",
    },
    "stop": {"simulated_time": "6s"},
}
"""Clients that leave in the middle of their work, which the server learns one latency later."""


def errors() -> dict[str, float]:
    """Relative errors of a transfer of 300 kB and of the durations of dispatches; and the largest difference between
    the instants at which work is given out where clients leave, in seconds.
    """
    raise_priority(10)
    case = Case("single", "cubic", 8e6, (0.04,), (300_000,), (0.0,))
    measured = statistics.median(flow[0] for flow in measure(case))
    loaded = load(SCENARIO)
    real, simulated = deploy(loaded)[0], simulate(loaded)
    spans = [
        {
            (row["client_id"], row["sequence"]): row["arrived_s"] - row["dispatched_s"]
            for row in log.dispatches
        }
        for log in (simulated, real)
    ]
    return {
        "transfer": predicted_s(case, tcp(case))[0] / measured - 1,
        "dispatch": statistics.median(spans[0][key] / spans[1][key] - 1 for key in spans[1]),
        "dispatches": len(spans[1]),
        **leaving(),
    }


def leaving() -> dict[str, float]:
    """The lost dispatches of a simulation, and how far its hand-outs are from those of a deployment, in seconds."""
    loaded = load(LEAVING)
    real, simulated = deploy(loaded)[0].dispatches, simulate(loaded).dispatches
    instants = [sorted(row["dispatched_s"] for row in rows) for rows in (real, simulated)]
    return {
        "lost": sum(row["outcome"] == "dropped" for row in simulated),
        "hand_outs": max(abs(ours - theirs) for theirs, ours in zip(*instants, strict=False)),
    }


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    if arguments != ["inside"]:
        return inside("benchmarks.validation.smoke", ["inside"])
    print(json.dumps(errors()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
