"""FedAvg-P and Scaffold-P: their tables and claims."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.papers.claims import Claim
from benchmarks.papers.results import Results, Scenario, Tables, footnote, number, spread
from benchmarks.tables import markdown


@cache
def steps_rows(results: Results) -> dict[tuple[int, int, str], list[float]]:
    """G_u over the last quarter by m, K and method."""
    gradient_norms: dict[tuple[int, int, str], list[float]] = {}
    for run in sorted(results.runs, key=lambda run: run.seed):
        key = (
            int(run.scenario["server"]["selection"]["cohort"]),
            int(run.scenario["training"]["local_steps"]),
            str(run.method["name"]),
        )
        gradient_norms.setdefault(key, []).append(run.tail("gradient_norm_squared"))
    return gradient_norms


def steps_table(results: Results) -> str:
    """G_u by m and K."""
    gradient_norms = steps_rows(results)
    steps = (5, 25, 100)
    rows = [
        [
            str(m),
            NAMES[method],
            *(spread(gradient_norms.get((m, k, method), []), 3) for k in steps),
        ]
        for m in (2, 5, 9, 10)
        for method in ("fedavg_p", "scaffold_p")
        if any((m, k, method) in gradient_norms for k in steps)
    ]
    header = ["m", "G_u", *(f"K = {k}" for k in steps)]
    return markdown(header, rows) + footnote(results) if rows else ""


NAMES = {"fedavg_p": "FedAvg-P", "scaffold_p": "Scaffold-P"}
REPLICA = {
    "gamma = 0.004": "3.5e-6 / 2.4e-6",
    "gamma = 0.02": "1.7e-5 / 1.2e-5",
    "gamma = 0.1": "9.2e-5 / 6.0e-5",
    "m = 2 (10,000 samples per client)": "2.9e-4 / 8.8e-5",
    "m = 5": "8.0e-5 / 2.7e-5",
    "m = 9": "1.7e-5 / 1.2e-5",
    "m = 10": "9.6e-6 / 9.5e-6",
}
"""G_u of our replica of the paper's experiment, FedAvg-P / Scaffold-P."""
REPLICA_EVERYBODY = {
    ("FedAvg-P", 1): ("3.9e-8", "2.3e-6", "1.4e-4"),
    ("FedAvg-P", 10): ("3.4e-10", "1.2e-8", "2.6e-7"),
    ("FedAvg-P", 100): ("", "1.3e-10", ""),
    ("Scaffold-P", 1): ("", "< 1e-24", ""),
}
"""The same if all clients participate, by method and eta_u, for K = 5, 25 and 100."""


def _plateau(results: Results, method: str, test: Callable[[Scenario], bool]) -> list[float]:
    """G_u over the last quarter of each run of a method that passes a test."""
    runs = results.where(lambda s: s["server"]["method"]["name"] == method and test(s))
    return [run.tail("gradient_norm_squared") for run in runs or []]


def _has_gamma(gamma: float) -> Callable[[Scenario], bool]:
    return lambda s: s["training"]["optimizer"]["lr"] == gamma


def _has_cohort(m: int) -> Callable[[Scenario], bool]:
    return lambda s: s["server"]["selection"]["cohort"] == m


def plateau_table(by_gamma: Results, by_cohort: Results) -> str:
    """G_u by gamma and by the clients per round."""
    rows = []
    for label, replica in REPLICA.items():
        value = float(label.split()[2])
        if label.startswith("gamma"):
            results, test = by_gamma, _has_gamma(value)
        else:
            results, test = by_cohort, _has_cohort(int(value))
        ours = " / ".join(spread(_plateau(results, method, test), 2) for method in NAMES)
        rows.append([label, replica, ours])
    header = ["G_u, FedAvg-P / Scaffold-P", "replica", "ours"]
    return markdown(header, rows) + footnote(by_gamma) + footnote(by_cohort)


def _descent(results: Results, method: str, steps: int) -> float:
    """Rounds until G_u + G_v is below 5% of its initial value with m = 9, mean over seeds."""
    rounds = []
    for run in results.where(
        lambda s: (
            s["server"]["method"]["name"] == method
            and s["training"]["local_steps"] == steps
            and _has_cohort(9)(s)
        )
    ):
        metrics = run.metrics
        both = metrics["gradient_norm_squared"] + metrics["personal_gradient_norm_squared"]
        rounds.append(float(metrics["round"][both < 0.05 * both.iloc[0]].iloc[0]))
    return float(np.mean(rounds or [np.nan]))


def descent_table(results: Results) -> str:
    """Rounds to 5% of the initial gradients by K."""
    steps = (5, 25, 100)
    cells = [" / ".join(number(_descent(results, m, k), 2) for m in NAMES) for k in steps]
    label = "rounds until G_u + G_v < 5% of its initial value, FedAvg-P / Scaffold-P"
    rows = [["replica", "90 / 90", "20 / 20", "5 / 5"], ["ours", *cells]]
    return markdown([label, *(f"K = {k}" for k in steps)], rows)


def everybody_table(results: Results) -> str:
    """G_u by K and eta_u if all clients participate and there is no noise."""
    rows = []
    for (name, eta), replica in REPLICA_EVERYBODY.items():
        method = next(key for key, value in NAMES.items() if value == name)
        prefix = "" if name == "FedAvg-P" else f"{name}, "
        ours = []
        for steps in (5, 25, 100):
            value = _plateau(
                results,
                method,
                lambda s, steps=steps, eta=eta: (
                    s["training"]["local_steps"] == steps and s["server"]["method"]["eta_u"] == eta
                ),
            )
            ours.append(spread(value, 2).replace("–", ""))
        rows.append([f"replica, {prefix}eta_u = {eta}", *replica])
        rows.append([f"ours, {prefix}eta_u = {eta}", *ours])
    header = ["", "K = 5", "K = 25", "K = 100"]
    return markdown(header, rows) + footnote(results) if results.runs else ""


IMAGE_ROWS = {
    "fedavg_p": "FedAvg-P",
    "fedavg_p, 1.5": "FedAvg-P, eta_u = eta_v = 1.5",
    "fedper": "FedPer",
    "scaffold_p": "Scaffold-P",
    "fedrep": "FedRep (as many steps on the head)",
    "ditto": "Ditto",
    "fedavg": "FedAvg (one model)",
}


def image_table(results: Results) -> str:
    """Accuracy of the clients' own models, rounds and hours to 93%, and bytes, mean over seeds."""
    rows = []
    for key, label in IMAGE_ROWS.items():
        name, _, eta = key.partition(", ")
        runs = results.where(
            lambda s, name=name, eta=eta: (
                s["server"]["method"]["name"] == name
                and s["server"]["method"].get("eta_u", 1) == float(eta or 1)
            )
        )
        if runs:
            clients = [pd.read_parquet(run.folder / "clients.parquet") for run in runs]
            moved = [(c["bytes_down"] + c["bytes_up"]).sum() / 1e6 for c in clients]
            rounds, hours = (
                [run.first("client_accuracy", 0.93, unit) for run in runs]
                for unit in ("round", "time_s")
            )
            rows.append(
                [
                    label,
                    f"{np.mean([run.metrics['client_accuracy'].iloc[-1] for run in runs]):.3f}",
                    f"{np.mean([run.metrics['client_accuracy_worst'].iloc[-1] for run in runs]):.3f}",
                    "never" if np.isnan(rounds).any() else f"{np.mean(rounds):.0f}",
                    "never" if np.isnan(hours).any() else f"{np.mean(hours) / 3600:.1f}",
                    f"{np.mean(moved):.0f}",
                ]
            )
    header = ["", "own accuracy", "worst tenth", "rounds to 93%", "hours", "MB moved"]
    return markdown(header, rows) + footnote(results) if rows else ""


def _plateaus(m: int, method: str) -> Callable[[Results], str]:
    def figure(results: Results) -> str:
        gradient_norms = {k: steps_rows(results).get((m, k, method), []) for k in (5, 25, 100)}
        cells = [f"{spread(values, 2)} (K = {k})" for k, values in gradient_norms.items()]
        return f"G_u at m = {m}: " + ", ".join(cells) if all(gradient_norms.values()) else ""

    return figure


STEPS = "partial_personalization/steps_small"
CLAIMS = (
    Claim(
        "R1: a smaller gamma lowers the plateau",
        "confirmed",
        "partial_personalization/gamma_small",
        lambda results: (
            "G_u: "
            + ", ".join(
                f"{spread(_plateau(results, 'fedavg_p', _has_gamma(gamma)), 2)} ({gamma})"
                for gamma in (0.004, 0.02, 0.1)
            )
        ),
    ),
    Claim(
        "R2: more clients per round lower the plateau",
        "confirmed",
        "partial_personalization/clients_small",
        lambda results: (
            "G_u: "
            + ", ".join(
                f"{spread(_plateau(results, 'fedavg_p', _has_cohort(m)), 2)} (m = {m})"
                for m in (2, 5, 9)
            )
        ),
    ),
    Claim(
        "R3: more local steps speed up the descent per round",
        "confirmed",
        STEPS,
        lambda results: (
            ", ".join(number(_descent(results, "fedavg_p", k), 2) for k in (5, 25, 100))
            + " rounds to 5% of the initial gradients (K = 5, 25, 100)"
        ),
    ),
    Claim(
        "R4: with m < n, more local steps raise the plateau of FedAvg-P",
        "confirmed",
        STEPS,
        _plateaus(9, "fedavg_p"),
    ),
    Claim(
        "R5: with m < n, the plateau of Scaffold-P does not depend on K",
        "confirmed for the most part",
        STEPS,
        _plateaus(9, "scaffold_p"),
    ),
    Claim(
        "R6: with m = n, the plateau of FedAvg-P does not depend on K",
        "confirmed with noise",
        STEPS,
        _plateaus(10, "fedavg_p"),
    ),
)

TABLES: Tables = {
    "partial-steps": (steps_table, STEPS),
    "partial-plateaus": (
        plateau_table,
        "partial_personalization/gamma_small",
        "partial_personalization/clients_small",
    ),
    "partial-descent": (descent_table, STEPS),
    "partial-everybody": (everybody_table, "partial_personalization/everybody_small"),
    "partial-image": (image_table, "partial_personalization/image_trace_small"),
}
