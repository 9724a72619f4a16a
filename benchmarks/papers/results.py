"""Finished runs of the sweeps, and how their numbers are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "scenarios" / "papers"
CPU_TIMES = "cpu.json"

Scenario = Mapping[str, Any]


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


def read_yaml(path: Path) -> Any:
    """The content of a YAML file."""
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


class Results:
    """The finished runs of one sweep."""

    def __init__(self, sweep: str, runs: Path) -> None:
        self.sweep = sweep
        self.root = runs
        folders = (path.parent for path in sorted((runs / sweep).glob("*/run.json")))
        self.runs = [
            Result(read_yaml(folder / "scenario.yaml"), folder)
            for folder in folders
            if json.loads((folder / "run.json").read_text())["status"] == "complete"
        ]

    def where(self, test: Callable[[Scenario], bool]) -> list[Result]:
        """The runs whose scenario passes the test, by seed."""
        return sorted((r for r in self.runs if test(r.scenario)), key=lambda r: r.seed)

    @property
    def planned_seeds(self) -> list[int]:
        """The seeds of the sweep's file."""
        scenario = read_yaml(SCENARIOS / f"{self.sweep}.yaml")
        return list(scenario["sweep"].get("seeds", [scenario.get("seed", 0)]))

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
    cpu, planned = results.cpu_minutes, len(results.planned_seeds)
    spent = "" if np.isnan(cpu) else f", {number(cpu, 2)} minutes of CPU time"
    if planned == 1:
        return f"\n1 seed, {len(results.runs)} runs{spent}.\n"
    finished = f"{results.seeds} of {planned} seeds finished"
    return f"\n{finished}, {len(results.runs)} runs{spent}; mean and range over seeds.\n"


def best_in_bold(texts: Sequence[str], values: Sequence[float]) -> list[str]:
    """The texts, that of the smallest value in bold."""
    smallest = min(values)
    return [
        f"**{text}**" if value == smallest else text
        for text, value in zip(texts, values, strict=True)
    ]


Tables = Mapping[str, tuple[Callable[..., str], *tuple[str, ...]]]
"""By name of a table, the function that writes it and the sweeps whose results are its arguments."""
