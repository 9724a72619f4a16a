"""Compare the runs of :mod:`benchmarks.validation.series` with their simulation, and write the page's numbers."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.validation.configurations import load
from benchmarks.validation.deployment import Log, simulate
from benchmarks.validation.page import DOCS, replace_table

HERE = Path(__file__).parent
RESULTS = HERE / "results"
NUMBERS = HERE / "validation.json"
FIGURE = DOCS / "images" / "validation.svg"
GOALS = {"alone": 0.01, "shared": 0.03, "training": 0.05}
LINKS = {
    "alone": "Links not shared",
    "shared": "Links shared",
    "training": "Torch under CPU quotas, calibrated on the first fifth",
}
RANKED_BY = 20
"""Configurations are ranked by the time until this many updates have arrived."""
Work = dict[tuple[int, int], dict[str, Any]]
"""Rows of dispatches, by client and number of the client's dispatch."""


@dataclass(frozen=True)
class Comparison:
    """One configuration: its simulation against the repetitions of its deployment.

    Attributes:
        round_mape: mean absolute relative error of the durations of rounds (sync), otherwise of the times of versions.
        arrival_error: median absolute error of the times from dispatch to arrival, relative.
        arrival_p95: its 95th percentile.
        round_spread: the error of rounds of one repetition as the prediction of another; NaN with a single one.
        arrival_spread: the median error of arrivals of one repetition as the prediction of another.
        outcomes_equal: share of dispatches with the same outcome.
        late: updates that were late, in the simulation and in the deployments (mean).
        time_to_updates_s: time until 20 updates had arrived, in the simulation and in each deployment.
        unmatched: dispatches that only one of the two has, as a share.
        host_load: largest load of the host during a repetition.
        relay_late_ms: latest packet of the relay.
        pairs: durations (simulated, real) for the figure.
    """

    name: str
    repetitions: int
    round_mape: float
    arrival_error: float
    arrival_p95: float
    round_spread: float
    arrival_spread: float
    outcomes_equal: float
    late: tuple[int, float]
    time_to_updates_s: tuple[float, list[float]]
    unmatched: float
    host_load: float
    relay_late_ms: float
    pairs: list[tuple[float, float]]

    @property
    def links(self) -> str:
        """``alone`` or ``shared``; ``training`` for series ii."""
        if self.name.startswith("ii-"):
            return "training"
        return "shared" if "shared" in self.name else "alone"

    @property
    def misses(self) -> list[str]:
        """The goals that it misses."""
        goal = GOALS[self.links]
        return [
            f"{what} {value:.1%}"
            for what, value in (("rounds", self.round_mape), ("arrivals", self.arrival_error))
            if value > goal
        ]

    @property
    def regime(self) -> str:
        """Why a goal is missed, by the name that the page gives it; empty if none is."""
        if not self.misses:
            return ""
        goal = GOALS[self.links]
        if (self.round_mape <= max(goal, self.round_spread)) and (
            self.arrival_error <= max(goal, self.arrival_spread)
        ):
            return "not repeatable"
        if self.links == "training":
            return "compute"
        if self.unmatched > 0 or self.outcomes_equal < 1:
            return "near ties"
        return "few flows on a full link" if self.links == "shared" else "busy host"

    @property
    def time_to_updates_text(self) -> str:
        """Simulated time until that many updates, and the range of the deployments."""
        ours, real = self.time_to_updates_s
        low, high = min(real), max(real)
        return f"{ours:.1f} / {low:.1f}" + (f" to {high:.1f}" if high > low else "")


def compare(name: str, runs: Sequence[dict[str, Any]]) -> Comparison:
    """The simulation of a configuration against its deployments."""
    rounds, pairs, equal, unmatched = [], [], [], []
    simulated, ours = Log(), {}
    for number, run in enumerate(runs):
        # A calibrated scenario differs from run to run.
        if not number or run["scenario"] != runs[0]["scenario"]:
            simulated = simulate(load(run["scenario"]))
            ours = _by_work(simulated.dispatches)
        real = _by_work(run["dispatches"])
        common = ours.keys() & real.keys()
        unmatched.append(1 - len(common) / len(ours.keys() | real.keys()))
        equal += [ours[key]["outcome"] == real[key]["outcome"] for key in common]
        pairs += _durations(ours, real)
        rounds.append(_version_error(name, simulated.versions_s, run["versions_s"]))
    late = [sum(row["outcome"] == "late" for row in rows["dispatches"]) for rows in runs]
    conditions = [run["conditions"] for run in runs]
    arrivals = _relative_errors(pairs)
    repeated = list(permutations(runs, 2))
    return Comparison(
        name,
        len(runs),
        statistics.mean(rounds),
        float(np.median(arrivals)),
        float(np.quantile(arrivals, 0.95)),
        _mean(
            [_version_error(name, one["versions_s"], two["versions_s"]) for one, two in repeated]
        ),
        _median(
            [
                error
                for one, two in repeated
                for error in _relative_errors(
                    _durations(_by_work(one["dispatches"]), _by_work(two["dispatches"]))
                )
            ]
        ),
        statistics.mean(equal),
        (sum(row["outcome"] == "late" for row in simulated.dispatches), statistics.mean(late)),
        (
            _time_to_updates(simulated.dispatches),
            [_time_to_updates(run["dispatches"]) for run in runs],
        ),
        statistics.mean(unmatched),
        max(each["host_load"] for each in conditions),
        max(each["relay_late_ms"] for each in conditions),
        pairs,
    )


def _durations(ours: Work, real: Work) -> list[tuple[float, float]]:
    """Times from dispatch to arrival of the dispatches that arrived in both."""
    pairs = (
        tuple(row["arrived_s"] - row["dispatched_s"] for row in (ours[key], real[key]))
        for key in ours.keys() & real.keys()
    )
    return [(one, other) for one, other in pairs if not math.isnan(one + other)]


def _relative_errors(pairs: Iterable[tuple[float, float]]) -> list[float]:
    return [abs(ours / real - 1) for ours, real in pairs]


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values) if values else math.nan


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def _version_error(name: str, simulated: Sequence[float], real: Sequence[float]) -> float:
    """Mean relative error of the durations of rounds; of asynchronous versions, which may follow at once, of times."""
    if "sync-" in name and "async-" not in name:
        simulated, real = (
            [later - earlier for earlier, later in pairwise([0.0, *times])]
            for times in (simulated, real)
        )
    return statistics.mean(
        abs(ours / theirs - 1) for ours, theirs in zip(simulated, real, strict=False)
    )


def _by_work(rows: Sequence[dict[str, Any]]) -> Work:
    return {(row["client_id"], row["sequence"]): row for row in rows}


def _time_to_updates(rows: Sequence[dict[str, Any]]) -> float:
    times = sorted(row["arrived_s"] for row in rows if not math.isnan(row["arrived_s"]))
    return times[RANKED_BY - 1] if len(times) >= RANKED_BY else math.nan


def kendall_tau(comparisons: Sequence[Comparison]) -> tuple[float, int]:
    """Kendall's tau of the ranking by time to updates, and the pairs that count.

    A pair of configurations whose deployments overlap is a tie, and does not count.
    """
    concordant = pairs = 0
    known = [each for each in comparisons if not math.isnan(each.time_to_updates_s[0])]
    for one, other in combinations(known, 2):
        (ours, real), (their_ours, their_real) = one.time_to_updates_s, other.time_to_updates_s
        if max(real) < min(their_real) or max(their_real) < min(real):
            pairs += 1
            concordant += (ours < their_ours) == (max(real) < min(their_real))
    return (2 * concordant / pairs - 1 if pairs else math.nan), pairs


def collect() -> list[Comparison]:
    """All configurations that have results."""
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(RESULTS.glob("*.json")):
        runs[path.name.partition(".")[0]].append(json.loads(path.read_text()))
    return [compare(name, found) for name, found in sorted(runs.items())]


def results_text(comparisons: Sequence[Comparison]) -> str:
    """The results as Markdown."""
    lines = []
    for links in LINKS:
        chosen = [each for each in comparisons if each.links == links]
        if not chosen:
            continue
        arrivals = [error for each in chosen for error in _relative_errors(each.pairs)]
        spreads = [each for each in chosen if each.repetitions > 1]
        lines.append(
            f"- {LINKS[links]}: {len(chosen)} configurations,"
            f" {sum(each.repetitions for each in chosen)} runs, {len(arrivals)} arrivals. Time from dispatch to"
            f" arrival:"
            f" median error {np.median(arrivals):.2%}, 95th percentile {np.quantile(arrivals, 0.95):.2%}. Rounds or"
            f" versions: mean absolute error {statistics.mean(each.round_mape for each in chosen):.2%} (median over"
            f" configurations {statistics.median(each.round_mape for each in chosen):.2%}). Goal {GOALS[links]:.0%}."
            f" One deployment as the prediction of the next: arrivals"
            f" {_mean([each.arrival_spread for each in spreads]):.2%} (mean over configurations), rounds"
            f" {_mean([each.round_spread for each in spreads]):.2%}."
        )
    for series, is_training in (("i", False), ("ii", True)):
        ranked = [each for each in comparisons if (each.links == "training") == is_training]
        tau, pairs = kendall_tau(ranked)
        if pairs:
            lines.append(
                f"- Series {series}: ranking of {len(ranked)} configurations by the time until {RANKED_BY} updates:"
                f" Kendall's tau {tau:.3f} over {pairs} pairs that the deployments tell apart. Goal 0.95."
            )
    lines.append(
        f"- Same outcome of a dispatch: {statistics.mean(each.outcomes_equal for each in comparisons):.2%}."
    )
    lines += [
        "",
        "| configuration | runs | rounds | repeated | arrivals | repeated | 95th perc. | same outcome |"
        f" late, simulated / real | s to {RANKED_BY} updates, simulated / real | host load | misses | regime |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in comparisons:
        lines.append(
            f"| {each.name} | {each.repetitions} | {each.round_mape:.2%} | {each.round_spread:.2%} |"
            f" {each.arrival_error:.2%} | {each.arrival_spread:.2%} |"
            f" {each.arrival_p95:.2%} | {each.outcomes_equal:.1%} | {each.late[0]} / {each.late[1]:g} |"
            f" {each.time_to_updates_text} | {each.host_load:.0%} | {', '.join(each.misses) or '-'} |"
            f" {each.regime or '-'} |"
        )
    return "\n".join(lines)


def draw(comparisons: Sequence[Comparison]) -> None:
    """The figure: simulated against real time from dispatch to arrival."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fedsim"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(5.5, 5.0), layout="constrained")
    for links, color in (
        ("alone", "#2a6f97"),
        ("shared", "#c1666b"),
        ("training", "#5b8e7d"),
    ):
        pairs = np.array(
            [pair for each in comparisons if each.links == links for pair in each.pairs]
        )
        if len(pairs):
            label = LINKS[links].partition(",")[0]
            axes.plot(
                pairs[:, 1],
                pairs[:, 0],
                ".",
                ms=3,
                color=color,
                alpha=0.5,
                label=label,
                rasterized=True,
            )
    longest = max(max(pair) for each in comparisons for pair in each.pairs)
    axes.plot([0, longest], [0, longest], color="#888888", lw=0.8)
    axes.set(xlabel="real time from dispatch to arrival (s)", ylabel="simulated (s)")
    axes.legend(frameon=False)
    figure.savefig(FIGURE, metadata={"Date": None}, dpi=150)
    plt.close(figure)


def write_report() -> int:
    """Write the numbers, the figure, and the results of the page."""
    comparisons = collect()
    if not comparisons:
        print("there are no results: python -m benchmarks.validation.series run")
        return 1
    rows = [
        {key: value for key, value in asdict(each).items() if key != "pairs"}
        for each in comparisons
    ]
    NUMBERS.write_text(json.dumps(rows, indent=1) + "\n")
    draw(comparisons)
    text = results_text(comparisons)
    replace_table("results", text)
    print(text)
    return 0


__all__ = [
    "Comparison",
    "Log",
    "collect",
    "compare",
    "kendall_tau",
    "write_report",
]
