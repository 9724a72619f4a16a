"""The papers' sweeps: runs them, and writes the tables of the READMEs and of docs/papers/index.md from the runs.

    python -m benchmarks.papers run [--long] [--jobs N]     # resumable; one seed of every sweep, then the next seed
    python -m benchmarks.papers tables                      # no runs: only the tables, from finished runs

A table is between ``<!-- table NAME -->`` and ``<!-- end -->``. Every number in it comes from a run folder, so that
text and data cannot drift apart; the sentences around it are written by hand. Tables of sweeps without any finished run
stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ruamel.yaml import YAML

from benchmarks.tables import markdown

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = ROOT / "scenarios" / "papers"
PAGES = [*sorted(SCENARIOS.glob("*/README.md")), ROOT / "docs" / "papers" / "index.md"]
SMALL = (
    "generalized_fedavg/methods_small",
    "fedsum/patterns_small",
    "fedlga/drawn_work_small",
    "fedlga/tau_max_small",
    "fedlga/deadline_small",
    "partial_personalization/steps_small",
    "fedcompass/table1_small",
)
"""The sweeps of ``make papers``, the most informative first."""
LONG = ("fedcompass/cnn_long", "fedlga/fashion_long", "fedcompass/table1_mnist")
"""The sweeps of ``make papers-long``."""
SEEDS = 3
CPU_TIMES = "cpu.json"
MARKED = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Scenario = Mapping[str, Any]


# -- running -----------------------------------------------------------------------------------------------------------


def run_sweeps(sweeps: Iterable[str], runs: Path, jobs: int) -> None:
    """Run the sweeps, seed by seed, so that every one has its first seed before any has its second."""
    for seeds in range(1, SEEDS + 1):
        for sweep in sweeps:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            finished = len(Results(sweep, runs).runs)
            subprocess.run(
                [
                    *(
                        sys.executable,
                        "-m",
                        "fedsim.cli",
                        "sweep",
                        str(SCENARIOS / f"{sweep}.yaml"),
                    ),
                    *("-s", f"sweep.seeds={list(range(seeds))}", "-o", str(runs / sweep)),
                    *("-j", str(jobs)),
                ],
                check=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = sum(after[:2]) - sum(before[:2])
            _add_cpu_time(runs, sweep, spent, len(Results(sweep, runs).runs) - finished)


def _add_cpu_time(runs: Path, sweep: str, seconds: float, count: int) -> None:
    """Add the CPU time of ``count`` finished runs to the record."""
    if not count:
        return
    path = runs / CPU_TIMES
    record = json.loads(path.read_text()) if path.exists() else {}
    old = record.get(sweep, {"seconds": 0.0, "runs": 0})
    record[sweep] = {"seconds": old["seconds"] + seconds, "runs": old["runs"] + count}
    path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """One finished run: its complete scenario and its folder."""

    scenario: Scenario
    folder: Path

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.scenario["seed"])

    @property
    def method(self) -> Scenario:
        """The method with its parameters."""
        method: Scenario = self.scenario["server"]["method"]
        return method

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per evaluation."""
        return pd.read_parquet(self.folder / "metrics.parquet")

    def first(self, metric: str, target: float, unit: str, *, below: bool = False) -> float:
        """When ``metric`` first reaches the target, in column ``unit``; NaN if it never does."""
        values = self.metrics[metric]
        reached = self.metrics[values <= target if below else values >= target]
        return float(reached[unit].iloc[0]) if len(reached) else float("nan")

    def tail(self, metric: str) -> float:
        """Mean over the evaluations of the last quarter of the run."""
        end = self.metrics["time_s"].iloc[-1]
        return float(self.metrics.loc[self.metrics["time_s"] > 0.75 * end, metric].mean())


def _read_yaml(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


class Results:
    """The finished runs of one sweep."""

    def __init__(self, sweep: str, runs: Path) -> None:
        self.sweep = sweep
        self.root = runs
        folders = (path.parent for path in sorted((runs / sweep).glob("*/run.json")))
        self.runs = [
            Result(_read_yaml(folder / "scenario.yaml"), folder)
            for folder in folders
            if json.loads((folder / "run.json").read_text())["status"] == "complete"
        ]

    def where(self, test: Callable[[Scenario], bool]) -> list[Result]:
        """The runs whose scenario passes the test, by seed."""
        return sorted((r for r in self.runs if test(r.scenario)), key=lambda r: r.seed)

    @property
    def seeds(self) -> int:
        """Seeds with at least one finished run."""
        return len({run.seed for run in self.runs})

    @property
    def cpu_minutes(self) -> float:
        """CPU time of all finished runs: the mean of the measured runs times their number; NaN if none was measured."""
        path = self.root / CPU_TIMES
        measured = json.loads(path.read_text()).get(self.sweep) if path.exists() else None
        if not measured:
            return float("nan")
        return float(measured["seconds"] / measured["runs"] * len(self.runs) / 60)


# -- writing numbers ---------------------------------------------------------------------------------------------------


def number(value: float, digits: int = 3) -> str:
    """A number with this many significant digits; an en dash for NaN."""
    if not np.isfinite(value):
        return "–"
    if value and abs(value) < 1e-3:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    places = max(0, digits - 1 - int(np.floor(np.log10(abs(value))))) if value else 0
    return f"{value:,.{places}f}"


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean, with the smallest and largest value in brackets if there are several; how many are finite, if not all."""
    finite = [value for value in values if np.isfinite(value)]
    if not finite:
        return "–"
    text = number(float(np.mean(finite)), digits)
    if len(finite) > 1:
        text += f" ({number(min(finite), digits)} to {number(max(finite), digits)})"
    return text if len(finite) == len(values) else f"{text}, {len(finite)} of {len(values)}"


def footnote(results: Results) -> str:
    """Seeds, runs and CPU time of a sweep, below its table."""
    cpu = results.cpu_minutes
    spent = "" if np.isnan(cpu) else f", {number(cpu, 2)} minutes of CPU time"
    finished = f"{results.seeds} of {SEEDS} seeds finished"
    return f"\n{finished}, {len(results.runs)} runs{spent}; mean and range over seeds.\n"


# -- FedCompass --------------------------------------------------------------------------------------------------------


def sign_of(method: Scenario) -> str:
    """The exponent of (s + 1) as printed: -0.5 in the paper, +0.5 in the authors' code; empty without one."""
    exponent = method.get("staleness", {}).get("exponent")
    return "" if exponent is None else f"{-exponent:+g}"


def compass_label(scenario: Scenario) -> str:
    """A row of FedCompass's tables."""
    method, schedule = scenario["server"]["method"], scenario["server"]["schedule"]
    name = {
        "fedavg": "FedAvg",
        "fedavgm": "FedAvgM",
        "fedasync": "FedAsync",
        "fedbuff": "FedBuff",
        "fedat": "FedAT",
        "fedcompass": "FedCompass",
    }[method["name"]]
    if method["name"] == "fedcompass":
        name += "+M" * bool(method["momentum"]) + "+N" * bool(method["normalized"])
        name += ", authors' schedule" * (schedule["create_ref"] == "latest")
    sign = sign_of(method)
    return f"{name}, {sign}" if sign else name


COMPASS_ROWS = (
    "FedCompass, +0.5",
    "FedCompass, -0.5",
    "FedCompass, authors' schedule, +0.5",
    "FedCompass, authors' schedule, -0.5",
    "FedCompass+M, +0.5",
    "FedCompass+M, -0.5",
    "FedCompass+N, +0.5",
    "FedCompass+N, -0.5",
    "FedAvg",
    "FedAvgM",
    "FedAsync, +0.5",
    "FedAsync, -0.5",
    "FedBuff, +0.5",
    "FedBuff, -0.5",
    "FedAT",
)
SPEEDS = {"values": "alike", "normal": "normal", "exponential": "exponential"}


@cache
def _paper_ratios(partition: str, speeds: str) -> Mapping[str, float]:
    """The paper's times relative to FedCompass, m = 5, MNIST."""
    reference = _read_yaml(SCENARIOS / "fedcompass" / "reference.yaml")
    kind = {"class_partition": "class", "dual_dirichlet": "Dirichlet"}[partition]
    speed = {"values": "homogeneous"}.get(speeds, speeds)
    values: Mapping[str, float] = reference["tables"][0]["values"][f"{kind}, {speed}"]
    return values


def compass_table(results: Results, partition: str, target: float) -> str:
    """Seconds to the target, the paper's ratio to FedCompass, and the best accuracy, by kind of speeds."""
    header = ["method, exponent of (s + 1)"]
    for speeds in SPEEDS.values():
        header += [f"{speeds}: s to {target:.0%}", "paper, relative to FedCompass", "best accuracy"]
    rows = []
    for label in COMPASS_ROWS:
        row, has_runs = [label], False
        for speeds in SPEEDS:
            runs = results.where(
                lambda s, speeds=speeds, label=label: (
                    compass_label(s) == label
                    and s["devices"]["compute"]["name"] == speeds
                    and s["task"]["partition"]["name"] == partition
                )
            )
            has_runs |= bool(runs)
            ratio = _paper_ratios(partition, speeds).get(label.split(",")[0])
            paper = f"{ratio:.2f}" if ratio and "authors" not in label else ""
            row += [
                spread([run.first("accuracy", target, "time_s") for run in runs], 2),
                paper,
                spread([run.metrics["accuracy"].max() for run in runs]),
            ]
        if has_runs:
            rows.append(row)
    return markdown(header, rows) + footnote(results) if rows else ""


def compass_weights(results: Results) -> str:
    """Shares of the server's weight under exponential speeds: of the slowest and of the fastest client."""
    rows = []
    for sign in (0.5, -0.5):
        runs = results.where(
            lambda s, sign=sign: (
                compass_label(s) == f"FedCompass, {-sign:+g}"
                and s["devices"]["compute"]["name"] == "exponential"
                and s["task"]["partition"]["name"] == "class_partition"
            )
        )
        shares = []
        for run in runs:
            clients = pd.read_parquet(run.folder / "clients.parquet").set_index("client_id")
            done = pd.read_parquet(run.folder / "dispatches.parquet")
            done = done[done["outcome"] == "aggregated"]
            weights = (done["staleness"] + 1.0) ** -sign * clients["samples"].loc[
                done["client_id"]
            ].to_numpy()
            share = weights.groupby(done["client_id"]).sum() / weights.sum()
            order = clients["step_s"].sort_values().index
            shares.append((100 * share[order[-1]], 100 * share[order[0]]))
        if shares:
            slow, fast = zip(*shares, strict=True)
            source = "the paper's text" if sign > 0 else "the authors' code"
            rows.append([f"{-sign:+g} ({source})", spread(slow, 2), spread(fast, 2)])
    return markdown(["exponent", "slowest client, %", "fastest client, %"], rows)


def cnn_table(results: Results) -> str:
    """The paper's CNN: seconds to 80, 85 and 90%."""
    paper = {"normal": 2.82, "exponential": 4.32}
    rows = []
    for speeds in ("exponential", "normal"):
        for label in ("FedCompass, +0.5", "FedCompass, -0.5", "FedAvg"):
            runs = results.where(
                lambda s, speeds=speeds, label=label: (
                    compass_label(s) == label and s["devices"]["compute"]["name"] == speeds
                )
            )
            if runs:
                times = [
                    spread([run.first("accuracy", target, "time_s") for run in runs], 2)
                    for target in (0.8, 0.85, 0.9)
                ]
                best = spread([run.metrics["accuracy"].max() for run in runs])
                ratio = f"{paper[speeds]:.2f}" if label == "FedAvg" else "1.00"
                rows.append([speeds, label, str(len(runs)), *times, best, ratio])
    header = ["speeds", "method, exponent", "seeds", "s to 80%", "to 85%", "to 90%"]
    return markdown([*header, "best accuracy", "paper, to 90%, relative"], rows)


# -- Generalized FedAvg ------------------------------------------------------------------------------------------------


def smallest_loss(folder: Path) -> float:
    """The smallest objective of a run's softmax regression over all clients, by L-BFGS."""
    import torch
    from scipy.optimize import minimize

    from fedsim.api import read_scenario
    from fedsim.composition.assembly import assemble

    task: Any = assemble(read_scenario(folder / "scenario.yaml")).task
    samples = task.dataset.train_x
    x = np.asarray(task.inputs(torch.as_tensor(samples), torch.float64)).reshape(len(samples), -1)
    y = np.asarray(task.dataset.train_y)
    x = np.hstack([x, np.ones((len(x), 1))])
    counts = np.diff(task.offsets)
    weights = np.zeros(len(x))
    weights[task.rows] = np.repeat(1 / (np.count_nonzero(counts) * np.maximum(counts, 1)), counts)
    classes = int(y.max()) + 1

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        logits = x @ flat.reshape(-1, classes)
        logits -= logits.max(1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        gradient = np.exp(log_p)
        gradient[np.arange(len(y)), y] -= 1
        value = -(weights * log_p[np.arange(len(y)), y]).sum()
        return float(value), (x.T @ (gradient * weights[:, None])).ravel()

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
    start = np.zeros(x.shape[1] * classes)
    return float(minimize(objective, start, jac=True, method="L-BFGS-B", options=options).fun)


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
def waiting_rows(results: Results) -> dict[tuple[str, float], list[float]]:
    """f - f* by row and learning rate."""
    found: dict[tuple[str, float], list[float]] = {}
    smallest: dict[int, float] = {}
    for run in sorted(results.runs, key=lambda run: run.seed):
        if run.seed not in smallest:
            smallest[run.seed] = smallest_loss(run.folder)
        excess = run.tail("objective_loss") - smallest[run.seed]
        found.setdefault(waiting_label(run.scenario), []).append(excess)
    return found


def waiting_table(results: Results) -> str:
    """f - f* of every method and rate."""
    found = waiting_rows(results)
    best = {
        label: min(float(np.mean(v)) for (other, _), v in found.items() if other == label)
        for label, _ in found
    }
    rows = []
    for label in dict.fromkeys(label for label, _ in sorted(found)):
        for (other, rate), values in sorted(found.items()):
            if other == label:
                text = spread(values, 2)
                bold = np.mean(values) == best[label]
                rows.append([label, number(rate, 1), f"**{text}**" if bold else text])
    return markdown(["method", "rate after the warm-up", "f - f*"], rows) + footnote(results)


# -- FedSUM ------------------------------------------------------------------------------------------------------------

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
    found: dict[str, dict[str, list[float]]] = {}
    for run in sorted(results.runs, key=lambda run: run.seed):
        row = found.setdefault(FAMILY[run.method["name"]], {})
        rounds = run.first("loss", 0.3, "round", below=True)
        row.setdefault(pattern_of(run.scenario), []).append(rounds)
    return found


def pattern_table(results: Results) -> str:
    """Rounds to a test loss of 0.3."""
    found = pattern_rows(results)
    rows = [
        [label, *(spread(found[label].get(pattern, []), 2) for pattern in PATTERNS)]
        for label in FAMILY.values()
        if label in found
    ]
    return markdown(["", *PATTERNS], rows) + footnote(results) if rows else ""


# -- FedLGA ------------------------------------------------------------------------------------------------------------

LGA_ROWS = {
    "FedLGA": 60,
    "FedLGA, limited correction": None,
    "FedLGA, sign -1": None,
    "FedLGA, unit gradient": None,
    "FedLGA, unit gradient, sign -1": None,
    "FedAvg": 116,
    "FedAvg, drops partial work": None,
    "FedAvg, zeros for partial work": None,
    "Rescaled": None,
    "FedProx": 96,
    "FedNova": 100,
    "Scaffold": 72,
    "FedDyn": 71,
}
"""Rows, and the paper's rounds to 65% on Fashion-MNIST (table V)."""


def lga_label(scenario: Scenario) -> str:
    """A row of FedLGA's tables."""
    method = scenario["server"]["method"]
    name = method["name"].rpartition(":")[2].casefold()
    if name in ("fedlga", "loggedfedlga"):
        return (
            "FedLGA"
            + ", limited correction" * method["clip"]
            + ", unit gradient" * method["unit_gradient"]
            + ", sign -1" * (method["sign"] == -1)
        )
    if name == "fedavg":
        partial = {"drop": ", drops partial work", "zero": ", zeros for partial work"}
        return "FedAvg" + partial.get(method["partial"], "")
    return {
        "rescale": "Rescaled",
        "fedprox": "FedProx",
        "fednova": "FedNova",
        "scaffold": "Scaffold",
        "feddyn": "FedDyn",
    }[name]


def lga_runs(results: Results, label: str, test: Callable[[Scenario], bool]) -> list[Result]:
    """The runs of a row that pass a test."""
    return results.where(lambda s: lga_label(s) == label and test(s))


def lga_table(results: Results) -> str:
    """Rounds to 65 and 80% with rho = 0.5, and to 65% with rho = 0."""
    rows = []
    for label, paper in LGA_ROWS.items():
        half = lga_runs(results, label, lambda s: s["training"]["limited"]["share"] == 0.5)
        none = lga_runs(results, label, lambda s: s["training"]["limited"]["share"] == 0)
        if half:
            rows.append(
                [
                    label,
                    "" if paper is None else str(paper),
                    spread([run.first("accuracy", 0.65, "round") for run in half], 2),
                    spread([run.first("accuracy", 0.8, "round") for run in half], 2),
                    spread([run.metrics["accuracy"].iloc[-1] for run in half]),
                    spread([run.first("accuracy", 0.65, "round") for run in none], 2),
                ]
            )
    header = ["", "paper, to 65%", "rounds to 65%", "to 80%", "accuracy after 200 rounds"]
    return markdown([*header, "rho = 0: to 65%"], rows) + footnote(results) if rows else ""


def tau_table(results: Results) -> str:
    """Rounds to 65% by tau_max."""
    labels = [label for label in LGA_ROWS if lga_runs(results, label, lambda s: True)]
    paper = {4: 60, 3: 54, 2: 41, 1: 29}
    rows = []
    for tau in (4, 3, 2, 1):
        cells = [
            spread(
                [
                    run.first("accuracy", 0.65, "round")
                    for run in lga_runs(
                        results,
                        label,
                        lambda s, tau=tau: s["training"]["limited"]["tau_max"] == tau,
                    )
                ],
                2,
            )
            for label in labels
        ]
        rows.append([f"{tau / 5:.1f} E", str(paper[tau]), *cells])
    if not labels:
        return ""
    return markdown(["tau_max", "paper, FedLGA", *labels], rows) + footnote(results)


def deadline_table(results: Results) -> str:
    """Simulated time to 85 and 90%, and the last accuracy, where partial work results from a deadline."""

    def label(scenario: Scenario) -> str:
        server = scenario["server"]
        if server["partial_work"] == "send":
            return lga_label(scenario)
        waits = server["schedule"]["deadline"] is None
        return "FedAvg, waits for all" if waits else "FedAvg, late clients left out"

    rows = []
    for row in [*LGA_ROWS, "FedAvg, late clients left out", "FedAvg, waits for all"]:
        runs = results.where(lambda s, row=row: label(s) == row)
        if runs:
            rows.append(
                [
                    row,
                    spread([run.first("accuracy", 0.85, "time_s") for run in runs], 4),
                    spread([run.first("accuracy", 0.9, "time_s") for run in runs], 4),
                    spread([run.metrics["accuracy"].iloc[-1] for run in runs]),
                ]
            )
    header = ["", "seconds to 85%", "seconds to 90%", "accuracy after 2 h"]
    return markdown(header, rows) + footnote(results) if rows else ""


def fashion_table(results: Results) -> str:
    """Fashion-MNIST at the paper's size, by optimizer."""
    rows = []
    for momentum in (0.0, 0.5):
        for label, paper in LGA_ROWS.items():
            runs = lga_runs(
                results,
                label,
                lambda s, momentum=momentum: s["training"]["optimizer"]["momentum"] == momentum,
            )
            if runs:
                setting = "lr 0.1, momentum 0.5" if momentum else "lr 0.01"
                rows.append(
                    [
                        setting,
                        label,
                        "" if paper is None else str(paper),
                        str(len(runs)),
                        spread([run.first("accuracy", 0.65, "round") for run in runs], 2),
                        spread([run.metrics["accuracy"].max() for run in runs]),
                        spread([gradient_square(run) for run in runs], 2),
                    ]
                )
    header = ["setting", "", "paper", "seeds", "rounds to 65%", "best accuracy"]
    return markdown([*header, "median of g squared"], rows)


def gradient_square(run: Result) -> float:
    """Median of |g|^2 over the corrections of a run, as scenarios/papers/fedlga/logged.py wrote it; NaN without it."""
    momentum = run.scenario["training"]["optimizer"]["momentum"]
    path = ROOT / run.method.get("folder", "") / f"seed{run.seed}-momentum{momentum:g}.csv"
    if "folder" not in run.method or not path.exists():
        return float("nan")
    return float(pd.read_csv(path).drop_duplicates()["squared"].median())


# -- FedAvg-P and Scaffold-P -------------------------------------------------------------------------------------------


@cache
def steps_rows(results: Results) -> dict[tuple[int, int, str], list[float]]:
    """G_u over the last quarter by m, K and method."""
    found: dict[tuple[int, int, str], list[float]] = {}
    for run in sorted(results.runs, key=lambda run: run.seed):
        key = (
            int(run.scenario["server"]["selection"]["cohort"]),
            int(run.scenario["training"]["local_steps"]),
            str(run.method["name"]),
        )
        found.setdefault(key, []).append(run.tail("gradient_norm_squared"))
    return found


def steps_table(results: Results) -> str:
    """G_u by m and K."""
    found = steps_rows(results)
    steps = (5, 25, 100)
    rows = [
        [
            str(m),
            {"fedavg_p": "FedAvg-P", "scaffold_p": "Scaffold-P"}[method],
            *(spread(found.get((m, k, method), []), 3) for k in steps),
        ]
        for m in (2, 5, 9, 10)
        for method in ("fedavg_p", "scaffold_p")
        if any((m, k, method) in found for k in steps)
    ]
    header = ["m", "G_u", *(f"K = {k}" for k in steps)]
    return markdown(header, rows) + footnote(results) if rows else ""


# -- all claims --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A row of the table of claims.

    Attributes:
        text: the paper's claim.
        verdict: confirmed, refuted, conditional or open.
        sweep: the sweep that shows it, below ``scenarios/papers``.
        figure: the decisive number, from the runs, or written here for sweeps that ``make papers`` does not run.
        seeds: seeds of a figure that is written here.
    """

    text: str
    verdict: str
    sweep: str
    figure: Callable[[Results], str] | str
    seeds: int = 0


def _compass_ratio(
    label: str, against: str, speeds: str, target: float
) -> Callable[[Results], str]:
    """Time to the target of one row over that of another, seed by seed, in the class partition."""

    def figure(results: Results) -> str:
        times: list[dict[int, float]] = []
        for row in (label, against):
            runs = results.where(
                lambda s, row=row: (
                    compass_label(s) == row
                    and s["devices"]["compute"]["name"] == speeds
                    and s["task"]["partition"]["name"] == "class_partition"
                )
            )
            times.append({run.seed: run.first("accuracy", target, "time_s") for run in runs})
        both = sorted(times[0].keys() & times[1].keys())
        if not both:
            return ""
        ratios = [times[0][seed] / times[1][seed] for seed in both]
        if not any(np.isfinite(ratios)):
            never = label if not any(np.isfinite(times[0][seed]) for seed in both) else against
            return f"{never} never reaches {target:.0%}"
        return f"{label}: {spread(ratios, 2)} times the time of {against} to {target:.0%}"

    return figure


def _best_rate(results: Results, label: str) -> list[float]:
    """f - f* of a row of the table of waiting at its best rate."""
    rows = [values for (name, _), values in waiting_rows(results).items() if name == label]
    return min(rows, key=lambda values: float(np.mean(values))) if rows else []


def _waiting(*labels: str) -> Callable[[Results], str]:
    def figure(results: Results) -> str:
        found = {label: _best_rate(results, label) for label in labels}
        return "f - f*: " + "; ".join(f"{label} {spread(v, 2)}" for label, v in found.items())

    return figure


def _rounds(pattern: str, *labels: str) -> Callable[[Results], str]:
    def figure(results: Results) -> str:
        found = pattern_rows(results)
        cells = (f"{label} {spread(found[label].get(pattern, []), 2)}" for label in labels)
        return f"rounds to loss 0.3, {pattern}: " + ", ".join(cells)

    return figure


def _lga_rounds(*labels: str) -> Callable[[Results], str]:
    def figure(results: Results) -> str:
        cells = []
        for label in labels:
            runs = lga_runs(results, label, lambda s: s["training"]["limited"]["share"] == 0.5)
            rounds = spread([run.first("accuracy", 0.65, "round") for run in runs], 2)
            cells.append(f"{label} {rounds if rounds != '–' else 'never'}")
        return "rounds to 65%: " + "; ".join(cells)

    return figure


def _fashion(results: Results) -> str:
    cells = []
    for run in results.where(lambda s: lga_label(s) in ("FedLGA", "FedAvg")):
        setting = run.scenario["training"]["optimizer"]
        rounds = number(run.first("accuracy", 0.65, "round"), 2)
        cells.append(f"{lga_label(run.scenario)} {rounds} (lr {setting['lr']:g})")
    squares = [gradient_square(run) for run in results.runs]
    return f"rounds to 65%: {', '.join(cells)}; g squared {spread([x for x in squares if np.isfinite(x)], 1)}"


def _plateaus(m: int, method: str) -> Callable[[Results], str]:
    def figure(results: Results) -> str:
        found = {k: steps_rows(results).get((m, k, method), []) for k in (5, 25, 100)}
        cells = [f"{spread(values, 2)} (K = {k})" for k, values in found.items()]
        return f"G_u at m = {m}: " + ", ".join(cells) if all(found.values()) else ""

    return figure


COMPASS, WAITING = "fedcompass/table1_small", "generalized_fedavg/methods_small"
PATTERN, DRAWN = "fedsum/patterns_small", "fedlga/drawn_work_small"
STEPS = "partial_personalization/steps_small"
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "FedCompass": (
        Claim(
            "exponential speeds: a fifth of FedAvg's time to 90% (paper's CNN)",
            "confirmed with the code's weights (s + 1)^+0.5",
            "fedcompass/cnn_long",
            _compass_ratio("FedAvg", "FedCompass, +0.5", "exponential", 0.9),
        ),
        Claim(
            "the same with the weights of the paper's text",
            "open at full size, refuted in the small one",
            COMPASS,
            _compass_ratio("FedCompass, -0.5", "FedAvg", "exponential", 0.8),
        ),
        Claim(
            "normal speeds: a third of FedAvg's time",
            "confirmed, but by less",
            COMPASS,
            _compass_ratio("FedAvg", "FedCompass, +0.5", "normal", 0.8),
        ),
        Claim(
            "ahead of FedAsync",
            "conditional: on MNIST, but not in the small size with equal signs",
            COMPASS,
            _compass_ratio("FedAsync, +0.5", "FedCompass, +0.5", "exponential", 0.8),
        ),
        Claim(
            "ahead of FedBuff",
            "conditional: on MNIST, but not in the small size with equal signs",
            COMPASS,
            _compass_ratio("FedBuff, +0.5", "FedCompass, +0.5", "exponential", 0.8),
        ),
        Claim(
            "further ahead of FedAT than of FedAsync",
            "open: we found no code for the authors' FedAT",
            COMPASS,
            _compass_ratio("FedAT", "FedCompass, +0.5", "exponential", 0.8),
        ),
        Claim(
            "Q_min / Q_max of 0.05 to 0.2 is best",
            "confirmed for normal speeds",
            "fedcompass/q_ratio_small",
            "time at 0.8 relative to 0.2: 3.09",
            2,
        ),
        Claim(
            "lambda of 1.2 or more lets nearly all clients of a group arrive",
            "confirmed",
            "fedcompass/timing/lambda",
            "updates per version, normal speeds: 3.73 (1.0), 4.77 (1.2)",
            5,
        ),
    ),
    "FedLGA": (
        Claim(
            "fewer rounds than FedAvg, in the printed form",
            "refuted in the small size (diverges)",
            DRAWN,
            _lga_rounds("FedLGA", "FedAvg"),
        ),
        Claim(
            "the same at the paper's size",
            "refuted for the mean gradient (inert)",
            "fedlga/fashion_long",
            _fashion,
        ),
        Claim(
            "half of FedAvg's rounds (60 against 116)",
            "conditional: sign -1, and zeros for partial work in FedAvg",
            DRAWN,
            _lga_rounds("FedLGA, sign -1", "FedAvg", "FedAvg, zeros for partial work"),
        ),
        Claim(
            "fewer rounds than Scaffold and FedDyn",
            "refuted in the small size, and at the paper's with one seed",
            DRAWN,
            _lga_rounds("FedLGA, sign -1", "Scaffold", "FedDyn"),
        ),
    ),
    "FedSUM": (
        Claim(
            "faster than methods without control variates under every pattern",
            "confirmed, except for fixed blocks (case 3), where the gain is small",
            PATTERN,
            _rounds(PATTERNS[0], "FedSUM", "FedAvg", "MIFA", "FedVARP", "FedAU", "FedAWE"),
        ),
        Claim(
            "faster than SCAFFOLD",
            "open: about as fast here",
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
            "tau_max 41 (P1), below the bound of 198",
            2,
        ),
    ),
    "Generalized FedAvg": (
        Claim(
            "amplified beats plain",
            "confirmed",
            WAITING,
            _waiting("amplified, P = 100", "plain"),
        ),
        Claim(
            "amplified beats waiting",
            "conditional: at the rate of the code, but not against waiting with large steps",
            WAITING,
            _waiting(
                "amplified, P = 100", "wait-minibatch (the code)", "waiting, one step (section 5)"
            ),
        ),
        Claim(
            "waiting beats plain",
            "conditional: in the form of section 5",
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
            "confirmed",
            "generalized_fedavg/window_small",
            "f - f*: 0.0172 (P = 1), 0.0008 (100), 0.0198 (180)",
            1,
        ),
    ),
    "FedAvg-P, Scaffold-P": (
        Claim(
            "R1: a smaller gamma lowers the plateau",
            "confirmed",
            "partial_personalization/gamma_small",
            "G_u: 5.1e-7 (0.004), 1.2e-6 (0.02), 5.5e-6 (0.1)",
            1,
        ),
        Claim(
            "R2: more clients per round lower the plateau",
            "confirmed",
            "partial_personalization/clients_small",
            "G_u: 5.2e-5 (m = 2), 8.3e-6 (5), 1.7e-6 (9)",
            1,
        ),
        Claim(
            "R3: more local steps speed up the descent per round",
            "confirmed",
            "partial_personalization/gamma_small",
            "345, 70, 20 rounds (K = 5, 25, 100)",
            1,
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
    ),
}


def claims_table(read: Callable[[str], Results]) -> str:
    """Every claim with its verdict, figure, seeds, CPU time and command."""
    rows = []
    for paper, claims in CLAIMS.items():
        for claim in claims:
            results = read(claim.sweep)
            measured = not isinstance(claim.figure, str)
            if isinstance(claim.figure, str):
                figure = claim.figure
            else:
                figure = claim.figure(results) if results.runs else ""
            cpu = results.cpu_minutes if measured else float("nan")
            rows.append(
                [
                    paper,
                    claim.text,
                    claim.verdict if figure else "open: not yet run",
                    figure or "–",
                    str((results.seeds if measured else claim.seeds) if figure else 0),
                    number(cpu, 2),
                    f"`fedsim sweep scenarios/papers/{claim.sweep}.yaml`",
                ]
            )
            paper = ""
    header = [
        "paper",
        "claim",
        "verdict",
        "figure (range over seeds)",
        "seeds",
        "CPU min",
        "command",
    ]
    return markdown(header, rows)


TABLES: dict[str, tuple[str, Callable[[Results], str]]] = {
    "fedcompass-class": (
        "fedcompass/table1_small",
        lambda results: compass_table(results, "class_partition", 0.8),
    ),
    "fedcompass-dirichlet": (
        "fedcompass/table1_small",
        lambda results: compass_table(results, "dual_dirichlet", 0.7),
    ),
    "fedcompass-mnist": (
        "fedcompass/table1_mnist",
        lambda results: compass_table(results, "class_partition", 0.8),
    ),
    "fedcompass-weights": ("fedcompass/table1_small", compass_weights),
    "fedcompass-cnn": ("fedcompass/cnn_long", cnn_table),
    "waiting": ("generalized_fedavg/methods_small", waiting_table),
    "fedsum-patterns": ("fedsum/patterns_small", pattern_table),
    "fedlga-drawn-work": ("fedlga/drawn_work_small", lga_table),
    "fedlga-tau-max": ("fedlga/tau_max_small", tau_table),
    "fedlga-deadline": ("fedlga/deadline_small", deadline_table),
    "fedlga-fashion": ("fedlga/fashion_long", fashion_table),
    "partial-steps": ("partial_personalization/steps_small", steps_table),
}
"""By name of a table, the sweep that it is made from and the function that writes it."""


def write_tables(runs: Path, pages: Iterable[Path] = PAGES) -> None:
    """Replace every marked table whose sweep has finished runs."""
    read = cache(lambda sweep: Results(sweep, runs))
    for page in pages:
        text = page.read_text()

        def replaced(match: re.Match[str]) -> str:
            if match["name"] == "claims":
                table = claims_table(read)
            else:
                sweep, write = TABLES[match["name"]]
                table = write(read(sweep))
            return f"{match[1]}\n{table}\n{match[3]}" if table.strip() else match[0]

        page.write_text(MARKED.sub(replaced, text))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=["run", "tables"])
    parser.add_argument(
        "--long", action="store_true", help="the sweeps that take hours, not minutes"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "papers")
    options = parser.parse_args()
    if options.command == "run":
        options.runs.mkdir(parents=True, exist_ok=True)
        run_sweeps(LONG if options.long else SMALL, options.runs.resolve(), options.jobs)
    write_tables(options.runs)


if __name__ == "__main__":
    main()
