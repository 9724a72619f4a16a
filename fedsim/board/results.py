"""What the rows of a board say: ratios to FedAvg, rankings, and why the fastest entry is the fastest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from fedsim.analysis.precision import students_half_width
from fedsim.board.running import FIGURES
from fedsim.board.suite import BASELINE, MEASURED, Question, Suite

SHIPPED = Path(__file__).with_name("board_1.parquet")
"""The rows of the suite's own entries, which come with fedsim."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of paired times with its 95% interval (Student's t on the logarithms; 0 to infinity for two seeds)."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: pd.Series[float], baseline: pd.Series[float]) -> Ratio:
        """The ratio of the geometric means over the seeds (the index) of both."""
        ratios = (values / baseline).dropna()
        logs = np.log(ratios.to_numpy())
        # With one degree of freedom an interval spans orders of magnitude.
        width = students_half_width(logs) if len(logs) > 2 else math.inf
        mean = float(logs.mean())
        return cls(math.exp(mean), math.exp(mean - width), math.exp(mean + width))


@dataclass(frozen=True)
class Standing:
    """An entry in one scenario.

    Attributes:
        entry: its name.
        reached, runs: how many of its runs reached the target, of how many.
        time_s: geometric mean of the times to the target; a run that missed it counts with the horizon.
        ratio: of these times to those of FedAvg; None if fewer than half of the runs reached the target.
        not_worse: whether its interval of the ratio to the fastest entry includes 1, or it is the fastest.
        medians: medians over the runs of the other figures of a row, by name; of costs to the target over the runs
            that reached it.
        disturbed: by disturbance, the ratio of the times with it to those without it; NaN if most runs miss the target.
    """

    entry: str
    reached: int
    runs: int
    time_s: float
    ratio: Ratio | None
    not_worse: bool
    medians: dict[str, float]
    disturbed: dict[str, float]


@dataclass(frozen=True)
class Table:
    """The standings in one scenario, the fastest first.

    Attributes:
        question: the scenario.
        standings: of the entries that work there.
        refused: those that do not, with the reason.
        tau: Kendall's rank correlation between times and numbers of server updates to the target, over the entries all
            of whose runs reached it; NaN for fewer than three.
    """

    question: Question
    standings: Sequence[Standing]
    refused: dict[str, str]
    tau: float

    @property
    def fastest(self) -> Standing:
        """The entry with the least time."""
        return self.standings[0]

    def of(self, entry: str) -> Standing:
        """The standing of an entry."""
        return next(standing for standing in self.standings if standing.entry == entry)


def table(rows: pd.DataFrame, question: Question) -> Table:
    """The standings of all entries in a scenario."""
    here = rows[rows["scenario"] == question.name]
    failed = here[here["error"] != ""]
    refused = {str(row.entry): str(row.error) for row in failed.itertuples()}
    measured = here[(here["kind"] == MEASURED) & ~here["entry"].isin(refused)]
    times = {
        str(entry): _times(runs, question) for entry, runs in measured.groupby("entry", sort=False)
    }
    order = sorted(times, key=lambda entry: float(np.log(times[entry]).mean()))
    standings = [
        _standing(entry, here[here["entry"] == entry], question, times, order[0]) for entry in order
    ]
    sure = [standing for standing in standings if standing.reached == standing.runs]
    by_time = [standing.time_s for standing in sure]
    by_versions = [standing.medians["versions"] for standing in sure]
    tau = float(kendalltau(by_time, by_versions).statistic) if len(sure) > 2 else math.nan
    return Table(question, standings, refused, tau)


def _times(runs: pd.DataFrame, question: Question) -> pd.Series[float]:
    return runs.set_index("seed")["time_s"].fillna(question.horizon_s)


def _standing(
    entry: str,
    rows: pd.DataFrame,
    question: Question,
    times: dict[str, pd.Series[float]],
    fastest: str,
) -> Standing:
    runs = rows[rows["kind"] == MEASURED]
    reached = int(runs["time_s"].notna().sum())
    time_s = math.exp(np.log(times[entry]).mean())
    to_fastest = Ratio.of(times[entry], times[fastest])
    enough = 2 * reached >= len(runs)
    disturbed = dict.fromkeys(question.disturbances, math.nan)
    for name in disturbed:
        changed = rows[rows["kind"] == name]
        if 2 * changed["time_s"].notna().sum() >= len(changed) > 0:
            disturbed[name] = Ratio.of(_times(changed, question), times[entry]).value
    return Standing(
        entry,
        reached,
        len(runs),
        time_s,
        Ratio.of(times[entry], times[BASELINE]) if enough else None,
        enough and (entry == fastest or to_fastest.low <= 1),
        {name: float(runs[name].median()) for name in (*FIGURES, "setting")},
        disturbed,
    )


def why(table: Table) -> str:
    """Why the fastest entry is faster than FedAvg, or why none is, in numbers of the table."""
    first, base = table.fastest, table.of(BASELINE)
    if first.entry == BASELINE:
        rivals = [
            f"; {standing.entry} comes next and takes {standing.ratio.value:.2f} times as long"
            for standing in table.standings[1:2]
            if standing.ratio is not None
        ]
        return f"Nothing beats FedAvg here{''.join(rivals)}."
    needed = first.medians["updates"] / base.medians["updates"]
    rate = first.medians["updates_per_h"] / base.medians["updates_per_h"]
    ratio = first.ratio
    place = "is the fastest"
    if ratio is None or ratio.high >= 1:
        place = f"has the lowest mean time, but {first.runs} seeds do not separate it from FedAvg"
    return (
        f"{first.entry} {place}. It needs {needed:.2f} times as many client updates as FedAvg, and gets "
        f"{rate:.2f} times as many per hour; an update is {first.medians['staleness']:.1f} versions old on average and "
        f"{first.medians['lost']:.0%} of the local steps are lost (FedAvg: {base.medians['lost']:.0%})."
    )


def verdict(table: Table, entry: str) -> str:
    """Where an entry stands in a scenario, as a sentence."""
    name, (metric, value) = table.question.name, table.question.target
    if entry in table.refused:
        return f"{entry} does not work in {name}."
    standing = table.of(entry)
    ratio, runs = standing.ratio, standing.runs
    ranks = [one.entry for one in table.standings]
    rank = f"{entry} ranks {ranks.index(entry) + 1} of {len(ranks)} in {name}"
    if ratio is None:
        return f"{rank}: only {standing.reached} of {runs} runs reached {metric} {value:g}."
    takes = f"{rank} and takes {ratio.value:.2f} times as long as {BASELINE}"
    if not math.isfinite(ratio.high):
        return f"{takes}, but {runs} seeds are too few for an interval."
    interval = f"95% interval {ratio.low:.2f} to {ratio.high:.2f}"
    if ratio.low <= 1 <= ratio.high and entry != BASELINE:
        return f"{takes}, but {runs} seeds do not separate the two ({interval})."
    return f"{takes} ({interval})."


def cost_s(suite: Suite) -> float | None:
    """Estimated processor time of all runs of a suite, by those that come with fedsim; None for a scenario without."""
    medians = pd.read_parquet(SHIPPED, columns=["scenario", "wall_s"]).groupby("scenario").median()
    if not set(suite.scenarios) <= set(medians.index):
        return None
    wall_s = medians["wall_s"]
    return float(sum(wall_s[name] * suite.size(q) for name, q in suite.scenarios.items()))


def shipped(suite: Suite) -> pd.DataFrame:
    """The rows that come with fedsim of those scenarios of a suite that have not changed since."""
    rows = pd.read_parquet(SHIPPED)
    digests = {name: question.digest() for name, question in suite.scenarios.items()}
    return rows[rows["scenario"].map(digests) == rows["digest"]]
