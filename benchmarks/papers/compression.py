"""Compressed uploads on slow and fast links: their tables and claims."""

from __future__ import annotations

import json
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

SWEEP = "compression/links_small"
LINKS = {1e5: "100 kbit/s", 1e6: "1 Mbit/s", 1e7: "10 Mbit/s", 1e8: "100 Mbit/s"}
"""Uplinks by rate in bits per second."""


def _kind(scenario: Scenario) -> str:
    """The row of a run."""
    up, down = (scenario["server"]["compression"][way] for way in ("up", "down"))
    names = {
        "none": "none",
        "cast": "bfloat16",
        "qsgd": "QSGD, 4 bits",
        "eden": "EDEN, 1 bit",
        "signsgd": "signs",
        "powersgd": "PowerSGD, rank 2",
        "topk": "top 1%",
        "randk": "random 1%",
        "sparseloco": "SparseLoCo, 1%",
    }
    name = names[up["name"]]
    if up.get("error_feedback") is False:
        name += ", no error feedback"
    return name if down["name"] == "factor" else f"{name}; downloads in 8 bits"


def _runs(results: Results, kind: str, rate: float) -> list[Result]:
    return results.where(
        lambda scenario: _kind(scenario) == kind and scenario["devices"]["network"]["up"] == rate
    )


def _until(results: Results, kind: str, rate: float, unit: str) -> list[float]:
    """When runs reached their target, in seconds or versions; infinite if they did not."""
    reached = (run.first("accuracy", 0.95, unit) for run in _runs(results, kind, rate))
    return [value if np.isfinite(value) else np.inf for value in reached]


def links_table(results: Results) -> str:
    """Bytes of an upload, rounds, and time to the target by link."""
    kinds = list(dict.fromkeys(_kind(run.scenario) for run in results.runs))
    kinds.sort(key=lambda kind: -_upload_bytes(results, kind))
    columns = [
        [f"{_upload_bytes(results, kind):,.0f}" for kind in kinds],
        [spread(_until(results, kind, 1e6, "version"), 2) for kind in kinds],
    ]
    for rate in LINKS:
        times = [_until(results, kind, rate, "time_s") for kind in kinds]
        means = [float(np.mean(each)) for each in times]
        columns.append(best_in_bold([spread(each, 2) for each in times], means))
    header = ["uploads", "bytes", "rounds to 95%", *(f"seconds, {name}" for name in LINKS.values())]
    rows = [[kind, *cells] for kind, *cells in zip(kinds, *columns, strict=True)]
    return markdown(header, rows) + footnote(results)


def _upload_bytes(results: Results, kind: str) -> float:
    run = _runs(results, kind, 1e6)[0]
    info = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
    return float(info["bytes_up_per_dispatch"])


def _compared(unit: str, rate: float, *kinds: str) -> Callable[[Results], str]:
    def figure(results: Results) -> str:
        word = {"version": "rounds", "time_s": f"seconds at {LINKS[rate]}"}[unit]
        values = {kind: _until(results, kind, rate, unit) for kind in kinds}
        return f"{word}: " + "; ".join(f"{kind} {spread(each, 2)}" for kind, each in values.items())

    return figure


CLAIMS = (
    Claim(
        "QSGD with 4 bits needs as many rounds as 32 bits, and saves time if transfers dominate",
        "confirmed",
        SWEEP,
        _compared("time_s", 1e5, "none", "QSGD, 4 bits"),
    ),
    Claim(
        "Error feedback lets signs converge as SGD does",
        "confirmed",
        SWEEP,
        _compared("version", 1e6, "none", "signs", "signs, no error feedback"),
    ),
    Claim(
        "Top-k with memory converges at the rate of SGD",
        "confirmed up to a constant; random entries need far more rounds",
        SWEEP,
        _compared("version", 1e6, "none", "top 1%", "top 1%, no error feedback", "random 1%"),
    ),
    Claim(
        "Compression does not pay off if computing dominates",
        "confirmed: nothing is gained, and what needs more rounds loses time",
        SWEEP,
        _compared("time_s", 1e8, "none", "top 1%", "SparseLoCo, 1%"),
    ),
)

TABLES: Tables = {"compression-links": (links_table, SWEEP)}
