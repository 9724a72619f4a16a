"""Methods that are optimal in time, and few long rounds over slow links: their tables and claims."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.papers.claims import Claim
from benchmarks.papers.results import (
    Result,
    Results,
    Scenario,
    Tables,
    best_in_bold,
    footnote,
    spread,
)
from benchmarks.tables import markdown

METHODS = {
    "fedavg": "synchronous",
    "async_sgd": "asynchronous",
    "rennala": "Rennala, batches of 20",
    "ringmaster": "Ringmaster, threshold 20, stops",
    "mindflayer": "MindFlayer",
}
WORLDS = {
    "speeds": "speeds sqrt(i)",
    "straggler": "one straggler",
    "tails": "heavy tails",
    "changing": "changing speeds",
    "network": "network, speeds sqrt(i)",
}


def _reached_s(run: Result) -> float:
    """When a run met its target; infinite if it did not."""
    ((metric, target),) = run.scenario["stop"]["target"].items()
    reached_s = run.first(metric, target, "time_s", below=metric == "gradient_norm")
    return reached_s if np.isfinite(reached_s) else np.inf


def best_times_s(results: Results, method: str) -> list[float]:
    """The times to the target at the learning rate with the smallest mean, one per seed."""
    by_rate: dict[float, list[float]] = {}
    for run in results.where(lambda scenario: scenario["server"]["method"]["name"] == method):
        rate = run.scenario["training"]["optimizer"]["lr"]
        by_rate.setdefault(rate, []).append(_reached_s(run))
    return min(by_rate.values(), key=lambda times: float(np.mean(times)), default=[])


def times_table(*sweeps: Results) -> str:
    """The time to the target of every method in every world, at its best learning rate."""
    columns = []
    for results in sweeps:
        times = [best_times_s(results, method) for method in METHODS]
        means = [float(np.mean(each)) for each in times]
        columns.append(best_in_bold([spread(each, 2) for each in times], means))
    rows = [[name, *cells] for name, *cells in zip(METHODS.values(), *columns, strict=True)]
    return markdown(["seconds to the target", *WORLDS.values()], rows) + footnote(sweeps[0])


LINKS = {1e6: "1 Mbit/s", 1e7: "10 Mbit/s", 1e8: "100 Mbit/s", 1e9: "1 Gbit/s"}
"""By rate in bits per second."""
KINDS = {
    ("fedavg", 1): "data-parallel SGD",
    ("fedavg", 50): "FedAvg, 50 steps",
    ("diloco", 50): "DiLoCo, 50 steps",
    ("streaming_diloco", 10): "Streaming DiLoCo, 5 fragments, 10 steps each",
}


def _link_times_s(results: Results, method: str, steps: int, rate: float) -> list[float]:
    def matches(scenario: Scenario) -> bool:
        return bool(
            scenario["server"]["method"]["name"] == method
            and scenario["training"]["local_steps"] == steps
            and scenario["devices"]["network"]["up"] == rate
        )

    return [_reached_s(run) for run in results.where(matches)]


def links_table(results: Results) -> str:
    """The time to the target by link."""
    columns = []
    for rate in LINKS:
        times = [_link_times_s(results, *kind, rate) for kind in KINDS]
        means = [float(np.mean(each)) for each in times]
        columns.append(best_in_bold([spread(each, 2) for each in times], means))
    rows = [[name, *cells] for name, *cells in zip(KINDS.values(), *columns, strict=True)]
    return markdown(["seconds to 95%", *LINKS.values()], rows) + footnote(results)


def _against(*methods: str) -> Callable[[Results], str]:
    def figure(results: Results) -> str:
        times = {METHODS[method]: best_times_s(results, method) for method in methods}
        return "seconds: " + "; ".join(f"{name} {spread(each, 2)}" for name, each in times.items())

    return figure


def _links(rate: float) -> Callable[[Results], str]:
    def figure(results: Results) -> str:
        times = {name: _link_times_s(results, *kind, rate) for kind, name in KINDS.items()}
        return f"seconds at {LINKS[rate]}: " + "; ".join(
            f"{name} {spread(each, 2)}" for name, each in times.items()
        )

    return figure


CLAIMS = (
    Claim(
        "Rennala and Ringmaster do not wait for a straggler",
        "confirmed",
        "time/straggler_small",
        _against("fedavg", "rennala", "ringmaster"),
    ),
    Claim(
        "Ringmaster is at least as fast as asynchronous SGD",
        "conditional: equal with one straggler, a little slower with changing speeds",
        "time/speeds_small",
        _against("async_sgd", "ringmaster"),
    ),
    Claim(
        "MindFlayer is faster than Rennala if compute times have heavy tails",
        "confirmed; so is Ringmaster, if it stops old work",
        "time/tails_small",
        _against("rennala", "mindflayer", "ringmaster"),
    ),
    Claim(
        "DiLoCo is faster than data-parallel SGD on slow links",
        "confirmed, and than FedAvg; on fast links by less; Streaming DiLoCo is a little faster still",
        "time/links_small",
        _links(1e6),
    ),
)

TABLES: Tables = {
    "time-to-target": (times_table, *(f"time/{world}_small" for world in WORLDS)),
    "links": (links_table, "time/links_small"),
}
