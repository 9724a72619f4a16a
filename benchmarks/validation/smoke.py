"""The validation in seconds, for the test suite: one transfer by the kernel, and three clients in a deployment.

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


def errors() -> dict[str, float]:
    """Relative errors of a transfer of 300 kB, and of the durations of at least three dispatches."""
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
    }


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    if arguments != ["inside"]:
        return inside("benchmarks.validation.smoke", ["inside"])
    print(json.dumps(errors()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
