"""The 40 configurations of the validation: schedule x cohort and links x availability; twelve with real training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedsim.scenario.loading import LoadedScenario, load_scenario_dict

HERE = Path(__file__).parent
SECONDS = {"i": 40, "ii": 58}
"""Length of a run by series; most clients of series ii participate in its first fifth, on which they are fitted."""
TRAINING_STEPS = 200
TCP = {"name": "tcp", "congestion": "cubic", "connection": "reuse"}


def _schedules(clients: int) -> dict[str, dict[str, Any]]:
    cohort = clients // 2
    return {
        "sync": {
            "method": "fedavg",
            "selection": {"name": "uniform", "cohort": cohort},
            "schedule": {"name": "sync", "deadline": "8s", "over_selection": 1.2},
        },
        "buffered": {
            "method": "fedbuff",
            "selection": {"name": "uniform", "cohort": cohort},
            "schedule": {"name": "buffered", "buffer_size": max(cohort // 2, 2)},
        },
        "async": {
            "method": "fedasync",
            "selection": {"name": "uniform", "cohort": cohort},
            "schedule": {"name": "async"},
        },
        "compass": {"method": "fedcompass", "schedule": {"name": "compass"}},
    }


def _links() -> dict[str, tuple[int, dict[str, Any]]]:
    """Number of clients and network, by name."""
    mixed = {"name": "lognormal", "median": "10Mbps", "sigma": 0.6}
    slow = {"name": "lognormal", "median": "4Mbps", "sigma": 0.5}
    return {
        "mixed-10": (10, {"name": "static", "latency": "20ms", "down": mixed, "up": mixed}),
        "far-10": (10, {"name": "static", "latency": "100ms", "down": mixed, "up": slow}),
        "mixed-30": (30, {"name": "static", "latency": "10ms", "down": mixed, "up": slow}),
        "shared-10": (
            10,
            {
                "name": "shared",
                "latency": "20ms",
                "down": "20Mbps",
                "up": "20Mbps",
                "server_down": "20Mbps",
                "server_up": "20Mbps",
            },
        ),
        "shared-30": (
            30,
            {
                "name": "shared",
                "latency": "20ms",
                "down": mixed,
                "up": mixed,
                "server_down": "60Mbps",
                "server_up": "60Mbps",
            },
        ),
    }


def configurations(seconds: float = SECONDS["i"]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and scenario of each configuration."""
    for links, (clients, network) in _links().items():
        for schedule, server in _schedules(clients).items():
            for availability in ("always", "windows"):
                scenario: dict[str, Any] = {
                    "name": f"{schedule}-{links}-{availability}",
                    "seed": 1,
                    "task": {"name": "timing", "clients": clients, "parameters": 250_000},
                    "training": {"local_steps": 10},
                    "devices": {
                        "compute": {
                            "name": "lognormal",
                            "median": "0.15s",
                            "sigma": 0.6,
                            "jitter": {"cv": 0.1},
                        },
                        "network": {**network, "transport": TCP},
                    },
                    # A client that leaves resets its connection, which the server learns one latency later.
                    "server": {**server, "failure_detection": network["latency"]},
                    "stop": {"simulated_time": f"{seconds}s"},
                }
                if availability == "windows":
                    scenario["devices"]["availability"] = {
                        "name": "windows.py:Windows",
                        "period": "25s",
                        "online": 0.7,
                    }
                yield scenario["name"], scenario


def training_configurations(seconds: float = SECONDS["ii"]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Series ii: the configurations of ten clients that are always online, with many short steps of real training."""
    for name, scenario in configurations(seconds):
        if "-10-always" in name:
            scenario["training"] = {"local_steps": TRAINING_STEPS}
            scenario["devices"]["compute"] = {"name": "values", "step": "5ms"}
            yield f"ii-{name}", {**scenario, "name": f"ii-{name}"}


def load(scenario: dict[str, Any]) -> LoadedScenario:
    """The scenario, validated."""
    return load_scenario_dict(scenario, HERE)
