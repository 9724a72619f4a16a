"""The answer of ``fedsim decide``, and the files of its folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.targets import FEW, THROUGHPUT
from fedsim.analysis.precision import students_half_width
from fedsim.decisions.goal import QUANTITIES, Measured
from fedsim.decisions.search import RULED_OUT, Tried
from fedsim.decisions.space import Setting, Space
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.own_code import as_data
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.formatting import (
    ABSENT,
    Kind,
    format_names,
    format_probability,
    format_value,
)

BEST, PAGE, SETTINGS = "best.yaml", "decide.html", "settings.csv"
"""Files of the folder: the chosen scenario, the page, and all settings."""
HOPELESS = 0.1
"""Share of the updates with which the scenario as given reaches the target, below which a setting is ruled out."""


@dataclass(frozen=True)
class Finalist:
    """A setting that was run with fresh seeds.

    Attributes:
        setting: its values; empty for the scenario as given.
        words: the setting in words.
        runs: what each run showed.
        objectives: names of the objectives.
        probability: that it is good (:func:`probability_good`); NaN for the scenario as given if it misses the target
            or a limit, and for several objectives.
    """

    setting: Setting
    words: str
    runs: tuple[Measured, ...]
    objectives: tuple[str, ...]
    probability: float = math.nan

    @property
    def values(self) -> Floats:
        """The objectives by seed, shape (objectives, seeds), in base units; infinite if the run missed the target."""
        if self.objectives == (THROUGHPUT,):
            return np.array([[run.rate for run in self.runs]])

        def of(name: str) -> list[float]:
            return [run.costs[name] if run.reached else math.inf for run in self.runs]

        return np.array(list(map(of, self.objectives)))

    def interval(self, objective: int = 0) -> tuple[float, float, float]:
        """Mean of an objective, and its 95% interval, which does not go below 0; NaN if a run missed the target."""
        values = self.values[objective]
        if np.isinf(values).any():
            return math.nan, math.nan, math.nan
        mean, half = values.mean(), students_half_width(values)
        return float(mean), max(float(mean) - half, 0.0), float(mean) + half

    def middle(self, objective: int = 0) -> float:
        """The mean of an objective; the median if a run missed the target, infinite if half of them did."""
        mean = self.interval(objective)[0]
        return float(np.median(self.values[objective])) if math.isnan(mean) else mean

    def described(self, objective: int = 0) -> tuple[str, str]:
        """The :meth:`middle` of an objective in words, and its interval."""
        middle, (mean, *ends) = self.middle(objective), self.interval(objective)
        if math.isinf(middle):
            return ABSENT, ABSENT
        words = [format_objective(self.objectives[objective], each) for each in (middle, *ends)]
        return words[0], "median" if math.isnan(mean) else f"{words[1]} to {words[2]}"

    @property
    def chance(self) -> str:
        """The probability in words, with one digit from few seeds."""
        return format_probability(self.probability, 1 if len(self.runs) <= FEW else 2)

    @property
    def missed(self) -> int:
        """Number of runs that missed the target."""
        return sum(not run.reached for run in self.runs)


def joined(finalists: Sequence[Finalist]) -> list[Finalist]:
    """The finalists as tables show them: those with the same values with every seed are one, which names the others."""
    rows: dict[bytes, list[Finalist]] = {}
    for each in finalists:
        rows.setdefault(each.values.tobytes(), []).append(each)

    def named(first: Finalist, *others: Finalist) -> Finalist:
        if not others:
            return first
        names = format_names([each.words for each in others])
        return replace(first, words=f"{first.words} (same results with {names})")

    return [named(*same) for same in rows.values()]


def better_by_chance(finalists: Sequence[Finalist]) -> list[Finalist]:
    """The rivals of the choice, the first finalist, that did better with the fresh seeds alone."""
    sign = -1 if finalists[0].objectives == (THROUGHPUT,) else 1
    return [
        each
        for each in finalists[1:]
        if math.isfinite(each.probability) and sign * each.middle() < sign * finalists[0].middle()
    ]


@dataclass(frozen=True)
class Decision:
    """The answer.

    Attributes:
        path: its folder.
        sentence: the answer in words.
        scenario: the chosen scenario, also in ``best.yaml``.
        finalists: the chosen setting, its rivals, and the scenario as given (last, if it is not the choice), over
            fresh seeds; for several objectives, the Pareto front.
        tried: every setting of the search, in order.
        objectives: names of the objectives.
        space: the settings among which was decided.
        importance: share of the variation of the first objective that each key explains (fANOVA; Hutter et al., 2014),
            of keys that all settings have; empty if there are too few settings.
        within: the end of the runs of the search, and the limits, in words.
        binding: which limits bind, of the scenario and of the question, in words.
    """

    path: Path
    sentence: str
    scenario: LoadedScenario
    finalists: tuple[Finalist, ...]
    tried: tuple[Tried, ...]
    objectives: tuple[str, ...]
    space: Space
    importance: Mapping[str, float]
    within: str
    binding: str

    @property
    def table(self) -> pd.DataFrame:
        """One row per finalist: ``words``, mean, low and high of each objective, ``missed``, ``probability``.

        If a run missed the target, there is no mean; the median is that of all runs, if less than half did.
        """
        rows = []
        for each in self.finalists:
            row: dict[str, Any] = {"words": each.words}
            for number, name in enumerate(self.objectives):
                median = float(np.median(each.values[number]))
                shown = (*each.interval(number), median if math.isfinite(median) else math.nan)
                ends = ("", "_low", "_high", "_median")
                row |= {f"{name}{end}": value for end, value in zip(ends, shown, strict=True)}
            rows.append({**row, "missed": each.missed, "probability": each.probability})
        return pd.DataFrame(rows)

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings of the first run of the choice."""
        return self.finalists[0].runs[0].notes

    @property
    def settings(self) -> pd.DataFrame:
        """One row per setting of the search: its values, ``state``, objectives, ``shortfall`` and ``problem``."""
        rows = [
            {
                **as_data(dict(each.setting)),
                "state": each.state,
                **dict(zip(self.objectives, shown(each), strict=True)),
                "shortfall": each.measured.shortfall if each.measured else math.nan,
                "violation": each.violation,
                "problem": each.problem,
            }
            for each in self.tried
        ]
        return pd.DataFrame(rows)

    @property
    def ruled_out(self) -> str:
        """How many settings were not trained, in words; empty if all were."""
        count = sum(each.state == RULED_OUT for each in self.tried)
        return (
            f"{count} of {len(self.tried)} settings were ruled out by timing alone: within {self.within}, fewer than "
            f"{HOPELESS:.0%} of the client updates arrive with which the scenario as given reaches the target"
            if count
            else ""
        )

    def __repr__(self) -> str:
        return f"<Decision {str(self.path)!r}: {self.sentence}>"


def shown(tried: Tried) -> list[float]:
    """The objectives of a setting as they are written: a throughput is positive; NaN if it missed the target."""
    reached = tried.measured is not None and tried.measured.reached
    return [abs(value) if reached else math.nan for value in tried.values]


def label_of(name: str) -> tuple[str, Kind]:
    """Label and kind of an objective."""
    if name == THROUGHPUT:
        return "client updates per hour", "number"
    return QUANTITIES[name].label, QUANTITIES[name].kind


def format_objective(name: str, value: float) -> str:
    """An objective with its unit."""
    label, kind = label_of(name)
    return f"{format_value(value, kind)}{f' {label}' if name == THROUGHPUT else ''}"
