"""Generalized FedAvg and waiting: their tables and claims."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
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
from fedsim.units import parse_duration_s

FloatArray = npt.NDArray[np.float64]


def smallest_loss(folder: Path) -> float:
    """The smallest objective of a run's softmax regression over all clients, by L-BFGS."""
    import torch
    from scipy.optimize import minimize

    from fedsim.api import read_scenario
    from fedsim.composition.build import build

    task: Any = build(read_scenario(folder / "scenario.yaml")).task
    samples = task.dataset.train_x
    x = np.asarray(task.inputs(torch.as_tensor(samples), torch.float64)).reshape(len(samples), -1)
    y = np.asarray(task.dataset.train_y)
    x = np.hstack([x, np.ones((len(x), 1))])
    counts = np.diff(task.offsets)
    weights = np.zeros(len(x))
    weights[task.rows] = np.repeat(1 / (np.count_nonzero(counts) * np.maximum(counts, 1)), counts)
    classes = int(y.max()) + 1

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        logits = x @ flat.reshape(-1, classes)
        logits -= logits.max(1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        gradient = np.exp(log_p)
        gradient[np.arange(len(y)), y] -= 1
        value = -(weights * log_p[np.arange(len(y)), y]).sum()
        return float(value), (x.T @ (gradient * weights[:, None])).ravel()

    result = minimize(
        objective,
        np.zeros(x.shape[1] * classes),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10},
    )
    return float(result.fun)


def waiting_label(scenario: Scenario) -> tuple[str, float]:
    """A row of the table of methods, and the learning rate after the warm-up."""
    method, training = scenario["server"]["method"], scenario["training"]
    points = training["lr_schedule"].get("points", [[0, 1]])
    rate = training["optimizer"]["lr"] * points[-1][1]
    if method["name"] == "generalized_fedavg":
        return "amplified, P = 100", rate
    if method["name"] == "fedavg":
        return "plain", rate
    if method["local"] == "frozen":
        return "waiting, one step (section 5)", rate
    full = training["batch_size"] > 100
    return f"wait-{'full' if full else 'minibatch'} (the code)", rate


@cache
def waiting_rows(
    results: Results, *, accuracy: bool = False
) -> dict[tuple[str, float], list[float]]:
    """f - f*, or the test accuracy, of each seed by row and learning rate."""
    rows: dict[tuple[str, float], list[float]] = {}
    smallest: dict[int, float] = {}
    for run in sorted(results.runs, key=lambda run: run.seed):
        value = run.tail("accuracy" if accuracy else "objective_loss")
        if not accuracy:
            if run.seed not in smallest:
                smallest[run.seed] = smallest_loss(run.folder)
            value -= smallest[run.seed]
        rows.setdefault(waiting_label(run.scenario), []).append(value)
    return rows


def waiting_table(results: Results) -> str:
    """f - f* of every method and rate."""
    losses = waiting_rows(results)
    best = {
        label: min(float(np.mean(v)) for (other, _), v in losses.items() if other == label)
        for label, _ in losses
    }
    rows = []
    for label in dict.fromkeys(label for label, _ in sorted(losses)):
        for (other, rate), values in sorted(losses.items()):
            if other == label:
                text = spread(values, 2)
                bold = np.mean(values) == best[label]
                rows.append([label, number(rate, 1), f"**{text}**" if bold else text])
    return markdown(["method", "rate after the warm-up", "f - f*"], rows) + footnote(results)


PILOT_BY_INTERVAL = {1: 0.0175, 20: 0.0203, 60: 0.0207, 100: 0.0010, 140: 0.070, 180: 0.091}
"""f - f* of our replica with 10,000 rounds, by the interval P."""


@cache
def _interval_rows(results: Results) -> dict[int, list[float]]:
    """f - f* of each seed by the interval P."""
    losses: dict[int, list[float]] = {}
    smallest = {run.seed: smallest_loss(run.folder) for run in results.runs}
    for run in results.runs:
        excess = run.tail("objective_loss") - smallest[run.seed]
        losses.setdefault(int(run.method["every_rounds"]), []).append(excess)
    return losses


def _interval_figure(results: Results) -> str:
    """f - f* and test accuracy of three intervals."""
    losses, shown = _interval_rows(results), (1, 100, 180)
    accuracies = {
        p: [run.tail("accuracy") for run in results.runs if run.method["every_rounds"] == p]
        for p in shown
    }
    parts = [
        ", ".join(f"{spread(values[p], digits)} (P = {p})" for p in shown)
        for values, digits in ((losses, 2), (accuracies, 3))
    ]
    return f"f - f*: {parts[0]}; test accuracy: {parts[1]}"


def window_table(results: Results) -> str:
    """f - f* by the interval P, the smallest in bold."""
    losses = _interval_rows(results)
    intervals = [interval for interval in PILOT_BY_INTERVAL if interval in losses]
    if not intervals:
        return ""
    values = [float(np.mean(losses[interval])) for interval in intervals]
    pilot = ["pilot", *(f"{PILOT_BY_INTERVAL[interval]:.4f}" for interval in intervals)]
    ours = ["ours", *best_in_bold([f"{value:.4f}" for value in values], values)]
    return markdown(["P", *map(str, intervals)], [pilot, ours]) + footnote(results)


def _imbalance(run: Result, window_s: float) -> float:
    """N times the sum of squares of mean weight - 1/N over windows of this length, mean over the windows."""
    clients = len(pd.read_parquet(run.folder / "clients.parquet"))
    done = pd.read_parquet(run.folder / "dispatches.parquet")
    done = done[done["outcome"] == "aggregated"]
    share = 1 / done.groupby("aggregated_version")["client_id"].transform("size")
    times = pd.read_parquet(run.folder / "aggregations.parquet").set_index("version")["time_s"]
    windows = (times.loc[done["aggregated_version"]].to_numpy() // window_s).astype(int)
    weights = np.zeros((windows.max() + 1, clients))
    np.add.at(weights, (windows, done["client_id"].to_numpy()), share.to_numpy())
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1)
    return float(np.mean(clients * ((weights - 1 / clients) ** 2).sum(axis=1)))


def phones_table(results: Results) -> str:
    """Training loss, accuracy and, for windows of amplification, how unequal the phones' weights are."""
    hour = 3600.0
    windows = {"6 h": 6 * hour, "one day": 24 * hour, "36 h": 36 * hour}
    kinds: dict[str, Callable[[Scenario], bool]] = {
        "plain": lambda method: method["name"] == "fedavg",
        **{
            f"amplified, P = {name}": lambda method, length=length: (
                parse_duration_s(method.get("every") or 0) == length
            )
            for name, length in windows.items()
        },
        "waiting, a day, at most two": lambda method: method["name"] == "wait",
    }
    lines = []
    for label, test in kinds.items():
        for run in results.where(lambda s, test=test: test(s["server"]["method"])):
            length = windows.get(label.removeprefix("amplified, P = "))
            unequal = f"{_imbalance(run, length):.1f}" if length else ""
            accuracy = f"{run.metrics['accuracy'].iloc[-1]:.3f}"
            lines.append((run.tail("objective_loss"), label, accuracy, unequal))
    if not lines:
        return ""
    losses = [loss for loss, *_ in lines]
    texts = best_in_bold([f"{loss:.3f}" for loss in losses], losses)
    rows = [[label, text, *rest] for text, (_, label, *rest) in zip(texts, lines, strict=True)]
    header = ["", "training loss", "accuracy", "B of the window"]
    return markdown(header, rows) + footnote(results)


def _waiting(*labels: str) -> Callable[[Results], str]:
    """f - f* of rows of the table of waiting at their best rates, and their test accuracies."""

    def figure(results: Results) -> str:
        losses, accuracies = waiting_rows(results), waiting_rows(results, accuracy=True)
        parts = []
        for label in labels:
            rates = [key for key in losses if key[0] == label]
            if rates:
                best = min(rates, key=lambda key: float(np.mean(losses[key])))
                parts.append(f"{label} {spread(losses[best], 2)}, {spread(accuracies[best], 3)}")
        return "f - f*, test accuracy: " + "; ".join(parts)

    return figure


WAITING = "generalized_fedavg/methods_small"
CLAIMS = (
    Claim(
        "amplified beats plain",
        "confirmed for the objective; the test accuracies are equal",
        WAITING,
        _waiting("amplified, P = 100", "plain"),
    ),
    Claim(
        "amplified beats waiting",
        "conditional: at the rate of the code, but not against waiting with large steps; the test accuracies are equal",
        WAITING,
        _waiting(
            "amplified, P = 100", "wait-minibatch (the code)", "waiting, one step (section 5)"
        ),
    ),
    Claim(
        "waiting beats plain",
        "conditional: in the form of section 5; the test accuracies are equal",
        WAITING,
        _waiting("waiting, one step (section 5)", "plain"),
    ),
    Claim(
        "wait-full is no better than wait-minibatch",
        "confirmed",
        WAITING,
        _waiting("wait-full (the code)", "wait-minibatch (the code)"),
    ),
    Claim(
        "an interval of one cycle is best, a longer one is worse",
        "confirmed for the objective; in test accuracy, only the longer one is worse",
        "generalized_fedavg/window_small",
        _interval_figure,
    ),
)

TABLES: Tables = {
    "waiting": (waiting_table, WAITING),
    "interval": (window_table, "generalized_fedavg/window_small"),
    "phones": (phones_table, "generalized_fedavg/trace_small"),
}
