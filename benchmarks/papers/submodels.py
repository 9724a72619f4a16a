"""Phones of unequal memory that train parts of a model: their table and claims."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd

from benchmarks.papers.claims import Claim
from benchmarks.papers.results import Result, Results, Scenario, Tables, footnote, spread
from benchmarks.tables import markdown

SWEEP = "submodels/memory_small"


_NAMES = {
    "whole": "the whole model",
    "heterofl": "HeteroFL",
    "heterofl without": "HeteroFL, no masked loss",
    "fedrolex": "FedRolex",
    "fjord": "FjORD",
    "depth": "DepthFL",
}


def _kind(scenario: Scenario) -> str:
    """The row of a run."""
    submodels = scenario["server"]["submodels"]
    is_plain = submodels["name"] == "heterofl" and submodels.get("masked_loss") is False
    return _NAMES["heterofl without" if is_plain else submodels["name"]]


def _clients(run: Result) -> pd.DataFrame:
    return pd.read_parquet(run.folder / "clients.parquet")


def _excluded(results: Results, seed: int) -> np.ndarray:
    """Clients that cannot hold the whole model."""
    (whole,) = (
        run for run in results.runs if run.seed == seed and _kind(run.scenario) == "the whole model"
    )
    return np.asarray(_clients(whole)["dispatches"] == 0)


def _accuracy(results: Results, run: Result, *, let_in: bool) -> float:
    """Mean accuracy, in percent, of the clients that only submodels let in, or of the others."""
    excluded = _excluded(results, run.seed)
    return 100 * float(_clients(run).loc[excluded == let_in, "last_accuracy"].mean())


def _seconds(run: Result) -> float:
    info = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
    return float(info["simulated_s"] / info["rounds"])


def memory_table(results: Results) -> str:
    """Participation, accuracy on both groups of clients, and time."""
    columns: dict[str, Callable[[Result], float]] = {
        "contributed": lambda run: float((_clients(run)["aggregated"] > 0).sum()),
        "accuracy, let in": lambda run: _accuracy(results, run, let_in=True),
        "accuracy, others": lambda run: _accuracy(results, run, let_in=False),
        "accuracy, test set": lambda run: 100 * float(run.metrics["accuracy"].iloc[-1]),
        "seconds per round": _seconds,
        "seconds to 75%": lambda run: run.first("accuracy", 0.75, "time_s"),
    }
    rows = []
    for kind in _NAMES.values():
        runs = results.where(lambda scenario, kind=kind: _kind(scenario) == kind)
        rows.append(
            [kind, *(spread([value(run) for run in runs], 3) for value in columns.values())]
        )
    return markdown(["clients train", *columns], rows) + footnote(results)


def _let_in(results: Results) -> str:
    texts = []
    for kind in _NAMES.values():
        runs = results.where(lambda scenario, kind=kind: _kind(scenario) == kind)
        values = [_accuracy(results, run, let_in=True) for run in runs]
        texts.append(f"{kind} {spread(values, 2)}")
    return "accuracy in percent on the clients that parts let in: " + "; ".join(texts)


CLAIMS = (
    Claim(
        "The model gains for clients that cannot hold it if they train parts of it",
        "confirmed",
        SWEEP,
        _let_in,
    ),
)

TABLES: Tables = {"submodels-memory": (memory_table, SWEEP)}
