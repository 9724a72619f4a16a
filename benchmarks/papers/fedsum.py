"""The FedSUM family: its tables and claims."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.papers.claims import Claim
from benchmarks.papers.results import (
    Result,
    Results,
    Scenario,
    Tables,
    best_in_bold,
    footnote,
    number,
    spread,
)
from benchmarks.tables import markdown

FAMILY = {
    "fedsum": "FedSUM",
    "fedsum_cr": "FedSUM-CR",
    "fedsum_b": "FedSUM-B",
    "scaffold": "SCAFFOLD",
    "mifa": "MIFA",
    "fedvarp": "FedVARP",
    "fedavg": "FedAvg",
    "fedau": "FedAU",
    "fedawe": "FedAWE",
}
PATTERNS = ("P1 = case 1", "P2 = case 2", "P3", "case 3", "case 4", "biased (H.8)")


def pattern_of(scenario: Scenario) -> str:
    """The column of a run in FedSUM's table."""
    selection = scenario["server"]["selection"]
    named = {"uniform": PATTERNS[0], "cyclic": "case 3", "reshuffled_cyclic": "case 4"}
    if selection["name"] in named:
        return named[selection["name"]]
    if isinstance(selection["probability"], list):
        return PATTERNS[5]
    return PATTERNS[2] if selection.get("sine") else PATTERNS[1]


@cache
def pattern_rows(results: Results) -> dict[str, dict[str, list[float]]]:
    """Rounds to a test loss of 0.3, by method and pattern."""
    rounds_by_label: dict[str, dict[str, list[float]]] = {}
    for run in sorted(results.runs, key=lambda run: run.seed):
        row = rounds_by_label.setdefault(FAMILY[run.method["name"]], {})
        rounds = run.first("loss", 0.3, "round", below=True)
        row.setdefault(pattern_of(run.scenario), []).append(rounds)
    return rounds_by_label


def pattern_table(results: Results) -> str:
    """Rounds to a test loss of 0.3."""
    rounds = pattern_rows(results)
    rows = [
        [label, *(spread(rounds[label].get(pattern, []), 2) for pattern in PATTERNS)]
        for label in FAMILY.values()
        if label in rounds
    ]
    return markdown(["", *PATTERNS], rows) + footnote(results) if rows else ""


def _by_pattern(results: Results, value: Callable[[Result], float]) -> dict[tuple[str, str], float]:
    """Mean over seeds by method and pattern."""
    values_by_key: dict[tuple[str, str], list[float]] = {}
    for run in results.runs:
        key = (FAMILY[run.method["name"]], pattern_of(run.scenario))
        values_by_key.setdefault(key, []).append(value(run))
    return {key: float(np.mean(values)) for key, values in values_by_key.items()}


def convex_table(results: Results) -> str:
    """Test loss after the last round, mean over seeds; the smallest of each column in bold."""
    losses = _by_pattern(results, lambda run: float(run.metrics["loss"].iloc[-1]))
    labels = [label for label in FAMILY.values() if (label, PATTERNS[0]) in losses]
    columns = []
    for pattern in PATTERNS if labels else ():
        values = [losses[label, pattern] for label in labels]
        columns.append(best_in_bold([f"{value:.5f}" for value in values], values))
    rows = [[label, *cells] for label, *cells in zip(labels, *columns, strict=True)]
    return markdown(["", *PATTERNS], rows) + footnote(results) if rows else ""


def _delays(run: Result) -> np.ndarray:
    """tau_t of the paper's section 2.2 in every round of a run."""
    return pd.read_parquet(run.folder / "aggregations.parquet")["delay_max"].to_numpy(float)


def _bound(pattern: str, clients: int = 100, cohort: int = 20, rounds: int = 200) -> float:
    """The paper's bound on E[tau_max] (appendix F); the least likely client's probability is delta."""
    log = np.log(clients * rounds)
    delta = {
        PATTERNS[1]: 0.2,
        PATTERNS[2]: 0.2 * (0.7 + 0.3 * np.sin(1.4 * np.pi)),
        PATTERNS[5]: 0.05,
    }
    if pattern in delta:
        return float(4 / delta[pattern] * log)
    blocks = clients / cohort
    return float(
        {PATTERNS[0]: 4 * blocks * log, "case 3": 2 * blocks, "case 4": 4 * blocks}[pattern]
    )


def delay_table(convex: Results, trace: Results) -> str:
    """tau_avg and tau_max by pattern, and the bound on E[tau_max]; participation is the same for all methods."""
    rows = []
    for name, value in (("tau_avg", np.mean), ("tau_max", np.max)):
        delays = _by_pattern(convex, lambda run, value=value: float(value(_delays(run))))
        last = [float(value(_delays(run))) for run in trace.runs]
        cells = [delays.get(("FedSUM", pattern), float("nan")) for pattern in PATTERNS]
        rows.append([name, *(number(cell) for cell in [*cells, float(np.mean(last))])])
    rows.append(["bound", *(number(_bound(pattern)) for pattern in PATTERNS), ""])
    return markdown(["", *PATTERNS, "trace"], rows)


def trace_table(results: Results) -> str:
    """Test loss and accuracy after the last round on a trace, by loss."""
    last: dict[str, list[tuple[float, float]]] = {}
    for run in results.runs:
        end = run.metrics.iloc[-1]
        last.setdefault(FAMILY[run.method["name"]], []).append((end["loss"], end["accuracy"]))
    means = sorted((*np.mean(values, axis=0), label) for label, values in last.items())
    losses = [loss for loss, _, _ in means]
    texts = best_in_bold([f"{loss:.5f}" for loss in losses], losses) if losses else []
    rows = [
        [label, text, f"{accuracy:.4f}"]
        for text, (_, accuracy, label) in zip(texts, means, strict=True)
    ]
    header = ["", "test loss after 200 rounds (four days)", "accuracy"]
    return markdown(header, rows) + footnote(results) if rows else ""


def _rounds(pattern: str, *labels: str) -> Callable[[Results], str]:
    def figure(results: Results) -> str:
        rounds = pattern_rows(results)
        cells = (f"{label} {spread(rounds[label].get(pattern, []), 2)}" for label in labels)
        return f"rounds to loss 0.3, {pattern}: " + ", ".join(cells)

    return figure


def _longest(results: Results) -> float:
    """tau_max under P1, mean over seeds."""
    return _by_pattern(results, lambda run: float(_delays(run).max()))["FedSUM", PATTERNS[0]]


PATTERN = "fedsum/patterns_small"
CLAIMS = (
    Claim(
        "faster than methods without control variates under every pattern",
        "confirmed, except for fixed blocks (case 3), where the gain is small",
        PATTERN,
        _rounds(PATTERNS[0], "FedSUM", "FedAvg", "MIFA", "FedVARP", "FedAU", "FedAWE"),
    ),
    Claim(
        "faster than SCAFFOLD",
        "open: about as fast here, and behind in fixed blocks (case 3)",
        PATTERN,
        _rounds("case 3", "FedSUM", "SCAFFOLD"),
    ),
    Claim(
        "FedSUM-CR as good, with one vector down",
        "conditional: not in blocks (cases 3 and 4)",
        PATTERN,
        _rounds("case 3", "FedSUM", "FedSUM-CR", "FedSUM-B"),
    ),
    Claim(
        "biased participation does not hurt it",
        "confirmed",
        PATTERN,
        _rounds(PATTERNS[5], "FedSUM", "FedAvg"),
    ),
    Claim(
        "bounds on the delay tau",
        "confirmed",
        "fedsum/convex_small",
        lambda results: (
            f"tau_max {number(_longest(results), 2)} (P1), below the bound of {_bound(PATTERNS[0]):.0f}"
        ),
    ),
)

TABLES: Tables = {
    "fedsum-patterns": (pattern_table, PATTERN),
    "fedsum-convex": (convex_table, "fedsum/convex_small"),
    "fedsum-delays": (delay_table, "fedsum/convex_small", "fedsum/trace_small"),
    "fedsum-trace": (trace_table, "fedsum/trace_small"),
}
