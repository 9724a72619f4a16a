"""Compare the runs of :mod:`benchmarks.validation.series` with their simulation, and write the page's numbers."""

from __future__ import annotations

import json
import lzma
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import markdown
from benchmarks.validation.configurations import load
from benchmarks.validation.deployment import simulate
from benchmarks.validation.page import DOCS, replace_table

HERE = Path(__file__).parent
RESULTS = HERE / "results"
NUMBERS = HERE / "validation.json"
MEASURED = HERE / "measured.jsonl.xz"
FIGURE = DOCS / "images" / "validation.svg"
GOALS = {"alone": 0.01, "shared": 0.03, "training": 0.05}
LINKS = {
    "alone": "Separate links",
    "shared": "Shared links",
    "training": "Torch under CPU quotas, calibrated on the first fifth",
}
REGIMES = {
    "tie": "near ties",
    "inexact": "near ties",
    "outcome": "last bytes under way",
    "never": "short rounds",
}
"""The regime of a goal that is missed, by how most of the repetitions part from the simulation."""
RANKED_BY = 20
"""Configurations are ranked by the time until this many updates have arrived."""
Work = dict[tuple[int, int], dict[str, Any]]
"""Rows of dispatches, by client and number of the client's dispatch."""


@dataclass(frozen=True)
class Comparison:
    """One configuration: its simulation against the repetitions of its deployment.

    Attributes:
        round_error: error of the durations of rounds; NaN for async, which has none.
        version_error: mean absolute relative error of the instants of versions.
        versions: how many versions the simulation and each deployment made.
        arrival_error: median absolute error of the times from dispatch to arrival, relative.
        arrival_p95: its 95th percentile.
        round_spread: the error of rounds (async: of versions) of one repetition as the prediction of another; NaN with
            a single one.
        arrival_spread: the median error of arrivals of one repetition as the prediction of another.
        outcomes_equal: share of dispatches with the same outcome.
        parts: median errors of the local steps and of both transfers, relative to the time from dispatch to arrival.
        late: updates that were late, in the simulation and in the deployments (mean).
        time_to_updates_s: time until 20 updates had arrived, in the simulation and in each deployment.
        unmatched: dispatches that only one of the two has, as a share.
        host_load: largest load of the host during a repetition.
        relay_late_ms: latest packet of the relay.
        jitter_ms: how late a sleep of 5 ms ends on the host without any network, 99th percentile.
        partings: how each repetition first departs from the simulation (:func:`parting`).
        pairs: durations (simulated, real) for the figure.
    """

    name: str
    repetitions: int
    round_error: float
    version_error: float
    versions: tuple[int, list[int]]
    arrival_error: float
    arrival_p95: float
    round_spread: float
    arrival_spread: float
    outcomes_equal: float
    parts: tuple[float, float]
    late: tuple[int, float]
    time_to_updates_s: tuple[float, list[float]]
    unmatched: float
    host_load: float
    relay_late_ms: float
    jitter_ms: float
    partings: list[str]
    pairs: list[tuple[float, float]]

    @property
    def links(self) -> str:
        """``alone`` or ``shared``; ``training`` for series ii."""
        return _links(self.name)

    @property
    def judged(self) -> tuple[str, float]:
        """What the goal for rounds is held against: rounds, or versions where there are none."""
        if math.isnan(self.round_error):
            return "versions", self.version_error
        return "rounds", self.round_error

    @property
    def misses(self) -> list[str]:
        """The goals that it misses."""
        goal = GOALS[self.links]
        judged = (self.judged, ("arrivals", self.arrival_error))
        return [f"{what} {value:.1%}" for what, value in judged if value > goal]

    @property
    def regime(self) -> str:
        """Why a goal is missed, by the name that the page gives it; empty if none is."""
        if not self.misses:
            return ""
        goal = GOALS[self.links]
        if (self.judged[1] <= max(goal, self.round_spread)) and (
            self.arrival_error <= max(goal, self.arrival_spread)
        ):
            return "not repeatable"
        if self.links == "training":
            steps, transfers = self.parts
            return "compute" if steps >= transfers else "few flows on a full link"
        cause = statistics.mode(self.partings)
        if cause == "inexact" and self.links == "shared":
            return "few flows on a full link"
        return REGIMES[cause]

    @property
    def time_to_updates_text(self) -> str:
        """Simulated time until that many updates, and the range of the deployments."""
        ours, real = self.time_to_updates_s
        low, high = min(real), max(real)
        return f"{ours:.1f} / {low:.1f}" + (f" to {high:.1f}" if high > low else "")


def compare(name: str, runs: Sequence[dict[str, Any]]) -> Comparison:
    """The simulation of a configuration against its deployments."""
    rounds, versions, pairs, equal, unmatched, partings = [], [], [], [], [], []
    simulated = simulate(load(runs[0]["scenario"]))
    goal = GOALS[_links(name)]
    deployed = []
    steps: list[float] = []
    transfers: list[float] = []
    for number, run in enumerate(runs):
        # A calibrated scenario differs from run to run.
        if number and run["scenario"] != runs[0]["scenario"]:
            simulated = simulate(load(run["scenario"]))
        fitted_until_s = run.get("fitted_until_s", 0.0)
        ours, real = (
            _by_work(row for row in rows if row["dispatched_s"] >= fitted_until_s)
            for rows in (simulated.dispatches, run["dispatches"])
        )
        common = ours.keys() & real.keys()
        unmatched.append(1 - len(common) / len(ours.keys() | real.keys()))
        equal += [ours[key]["outcome"] == real[key]["outcome"] for key in common]
        pairs += _durations(ours, real)
        steps += _part_errors(ours, real, ("computed_s",), ("downloaded_s",))
        transfers += _part_errors(
            ours, real, ("downloaded_s", "arrived_s"), ("dispatched_s", "computed_s")
        )
        partings.append(parting(ours, real, goal))
        fitted = sum(at_s < fitted_until_s for at_s in run["versions_s"])
        deployed.append((real, run["versions_s"], fitted))
        rounds.append(round_error(name, simulated.versions_s, run["versions_s"], fitted))
        versions.append(version_error(simulated.versions_s, run["versions_s"], fitted))
    late = [sum(row["outcome"] == "late" for row in rows["dispatches"]) for rows in runs]
    conditions = [run["conditions"] for run in runs]
    arrivals = _relative_errors(pairs)
    repeated = list(permutations(deployed, 2))
    return Comparison(
        name,
        len(runs),
        statistics.mean(rounds),
        statistics.mean(versions),
        (len(simulated.versions_s), [len(run["versions_s"]) for run in runs]),
        float(np.median(arrivals)),
        float(np.quantile(arrivals, 0.95)),
        _mean(
            [
                judged(name, one_s, two_s, max(one_fitted, two_fitted))
                for (_, one_s, one_fitted), (_, two_s, two_fitted) in repeated
            ]
        ),
        _median(
            [
                error
                for (one, *_), (two, *_) in repeated
                for error in _relative_errors(_durations(one, two))
            ]
        ),
        statistics.mean(equal),
        (_median(steps), _median(transfers)),
        (sum(row["outcome"] == "late" for row in simulated.dispatches), statistics.mean(late)),
        (
            _time_to_updates(simulated.dispatches),
            [_time_to_updates(run["dispatches"]) for run in runs],
        ),
        statistics.mean(unmatched),
        max(each["host_load"] for each in conditions),
        max(each["relay_late_ms"] for each in conditions),
        max(each["jitter_ms"] for each in conditions),
        partings,
        pairs,
    )


def _durations(ours: Work, real: Work) -> list[tuple[float, float]]:
    """Times from dispatch to arrival of the dispatches that arrived in both."""
    return [
        (_between(one, "dispatched_s", "arrived_s"), _between(other, "dispatched_s", "arrived_s"))
        for one, other in _arrived(ours, real)
    ]


def _arrived(ours: Work, real: Work) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The rows of the dispatches that arrived in both."""
    for key in ours.keys() & real.keys():
        one, other = ours[key], real[key]
        if not math.isnan(one["arrived_s"] + other["arrived_s"]):
            yield one, other


def _between(row: Mapping[str, Any], start: str, end: str) -> float:
    return float(row[end] - row[start])


def _part_errors(ours: Work, real: Work, ends: Sequence[str], starts: Sequence[str]) -> list[float]:
    """Absolute errors of a part of the dispatches that arrived in both, relative to their real durations."""
    errors = []
    for rows in _arrived(ours, real):
        mine, theirs = (
            sum(_between(row, *span) for span in zip(starts, ends, strict=True)) for row in rows
        )
        errors.append(abs(mine - theirs) / _between(rows[1], "dispatched_s", "arrived_s"))
    return errors


def _relative_errors(pairs: Iterable[tuple[float, float]]) -> list[float]:
    return [abs(ours / real - 1) for ours, real in pairs]


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values) if values else math.nan


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def _links(name: str) -> str:
    if name.startswith("ii-"):
        return "training"
    return "shared" if "shared" in name else "alone"


def _schedule(name: str) -> str:
    return name.removeprefix("ii-").partition("-")[0]


def round_error(
    name: str, simulated: Sequence[float], real: Sequence[float], fitted: int = 0
) -> float:
    """The error of the durations of rounds that both sides have, from their versions; NaN for async.

    For sync it is the mean absolute relative error. Versions of buffered and compass may follow each other at once, so
    there the absolute errors are summed over the rounds, relative to the sum of the durations. The first ``fitted``
    rounds are left out.
    """
    schedule = _schedule(name)
    if schedule == "async":
        return math.nan
    count = min(len(simulated), len(real))
    ours, theirs = (np.diff([0.0, *times[:count]])[fitted:] for times in (simulated, real))
    errors = np.abs(ours - theirs)
    return float(np.mean(errors / theirs) if schedule == "sync" else errors.sum() / theirs.sum())


def version_error(simulated: Sequence[float], real: Sequence[float], fitted: int = 0) -> float:
    """Mean absolute relative error of the instants of the versions that both sides have, after those fitted."""
    both = [*zip(simulated, real, strict=False)][fitted:]
    return statistics.mean(abs(ours / theirs - 1) for ours, theirs in both)


def judged(name: str, simulated: Sequence[float], real: Sequence[float], fitted: int = 0) -> float:
    """The error that the goal for rounds is held against."""
    error = round_error(name, simulated, real, fitted)
    return version_error(simulated, real, fitted) if math.isnan(error) else error


def parting(ours: Work, real: Work, goal: float) -> str:
    """How the two sides first part.

    Returns:
        ``tie``: two updates change places, or the server gives out other work, although the times of all updates
        until then are within the goal; ``inexact``: the same after an update whose time is not; ``outcome``: a dispatch
        arrives on one side and is lost on the other; ``never``: none of these.
    """
    both = ours.keys() & real.keys()
    lost_s = [
        min(ours[key]["ended_s"], real[key]["ended_s"])
        for key in both
        if ours[key]["outcome"] != real[key]["outcome"]
        and "unfinished" not in (ours[key]["outcome"], real[key]["outcome"])
    ]
    moved_s = [
        ours[here][column]
        for column in ("arrived_s", "dispatched_s")
        for here, there in zip(_in_order(ours, column), _in_order(real, column), strict=False)
        if here != there or ours[here]["steps_assigned"] != real[there]["steps_assigned"]
    ]
    parted_s = min([*lost_s, *moved_s], default=math.inf)
    if parted_s == math.inf:
        return "never"
    if parted_s in lost_s:
        return "outcome"
    until = {
        key: ours[key]
        for key in both
        if min(ours[key]["arrived_s"], real[key]["arrived_s"]) <= parted_s
    }
    return "tie" if max(_relative_errors(_durations(until, real)), default=0) <= goal else "inexact"


def _in_order(rows: Work, column: str) -> list[tuple[int, int]]:
    """The dispatches by an instant that they have; those at one instant by client."""
    known = [key for key in rows if not math.isnan(rows[key][column])]
    return sorted(known, key=lambda key: (round(rows[key][column], 3), key))


def _by_work(rows: Iterable[dict[str, Any]]) -> Work:
    return {(row["client_id"], row["sequence"]): row for row in rows}


def _time_to_updates(rows: Sequence[dict[str, Any]]) -> float:
    times = sorted(row["arrived_s"] for row in rows if not math.isnan(row["arrived_s"]))
    return times[RANKED_BY - 1] if len(times) >= RANKED_BY else math.nan


def concordances(comparisons: Sequence[Comparison]) -> list[int]:
    """1 or -1 for each pair of configurations that the deployments distinguish: whether the simulation agrees.

    A pair whose deployments overlap is a tie, and does not count.
    """
    known = [each for each in comparisons if not math.isnan(each.time_to_updates_s[0])]
    signs = []
    for one, other in combinations(known, 2):
        (ours, real), (their_ours, their_real) = one.time_to_updates_s, other.time_to_updates_s
        if max(real) < min(their_real) or max(their_real) < min(real):
            signs.append(1 if (ours < their_ours) == (max(real) < min(their_real)) else -1)
    return signs


def kendall_tau(comparisons: Sequence[Comparison]) -> tuple[float, int]:
    """Kendall's tau of the ranking by time to updates, and the pairs that count."""
    signs = concordances(comparisons)
    return _mean(signs), len(signs)


def measured() -> dict[str, list[dict[str, Any]]]:
    """The deployments by configuration: those in the results folder, or else those that came with the code."""
    documents = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    if not documents:
        with lzma.open(MEASURED, "rt") as file:
            documents = [json.loads(line) for line in file]
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for document in documents:
        runs[document["scenario"]["name"]].append(document)
    return dict(sorted(runs.items()))


def write_measured(runs: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Keep the deployments in one compressed file, a line each, with times in whole microseconds."""
    with lzma.open(MEASURED, "wt", preset=9) as file:
        for document in (each for deployments in runs.values() for each in deployments):
            file.write(json.dumps(_rounded(document), separators=(",", ":")) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value


def results_text(comparisons: Sequence[Comparison]) -> str:
    """The results as Markdown."""
    lines = []
    for links in LINKS:
        chosen = [each for each in comparisons if each.links == links]
        if chosen:
            lines.append(_summary(links, chosen))
    for series, is_training in (("i", False), ("ii", True)):
        ranked = [each for each in comparisons if (each.links == "training") == is_training]
        tau, pairs = kendall_tau(ranked)
        groups = defaultdict(list)
        for each in ranked:
            groups[each.name.removeprefix("ii-").partition("-")[2]].append(each)
        within = [pair for group in groups.values() for pair in concordances(group)]
        if pairs:
            lines.append(
                f"- Series {series}: ranking of {len(ranked)} configurations by the time until {RANKED_BY} updates:"
                f" Kendall's tau {tau:.3f} over {pairs} pairs that the deployments distinguish (goal 0.95); among"
                f" schedules with the same clients and links, {statistics.mean(within):.3f} over {len(within)} pairs."
            )
    lines.append(
        f"- Dispatches with the same outcome: {statistics.mean(each.outcomes_equal for each in comparisons):.2%} of"
        f" those on both sides. {statistics.mean(each.unmatched for each in comparisons):.2%} of all dispatches are"
        " on one side only."
    )
    table = (
        [
            *("configuration", "runs", "rounds", "versions", "repeated", "arrivals", "repeated"),
            *("95th perc.", "same outcome", "on one side only", "versions made, simulated / real"),
            *("late, simulated / real", f"s to {RANKED_BY} updates, simulated / real"),
            *("misses", "regime"),
        ],
        [
            [
                *(each.name, str(each.repetitions), _percent(each.round_error)),
                *(_percent(each.version_error), _percent(each.round_spread)),
                *(_percent(each.arrival_error), _percent(each.arrival_spread)),
                *(_percent(each.arrival_p95), f"{each.outcomes_equal:.1%}"),
                *(f"{each.unmatched:.1%}", f"{each.versions[0]} / {_range(each.versions[1])}"),
                *(f"{each.late[0]} / {each.late[1]:g}", each.time_to_updates_text),
                *(", ".join(each.misses) or "-", each.regime or "-"),
            ]
            for each in comparisons
        ],
    )
    conditions = (
        [
            *("configuration", "host load"),
            *("largest delay at the relay (ms)", "sleep overrun (ms)"),
        ],
        [
            [
                *(each.name, f"{each.host_load:.0%}"),
                *(f"{each.relay_late_ms:.0f}", f"{each.jitter_ms:.1f}"),
            ]
            for each in comparisons
        ],
    )
    largest = "Conditions (largest value over the repetitions):"
    return "\n".join([*lines, "", markdown(*table), largest, "", markdown(*conditions)]).rstrip()


def _summary(links: str, chosen: Sequence[Comparison]) -> str:
    goal = GOALS[links]
    arrivals = [error for each in chosen for error in _relative_errors(each.pairs)]
    parts = [
        f"{len(chosen)} configurations, {sum(each.repetitions for each in chosen)} runs, {len(arrivals)} arrivals",
        f"Time from dispatch to arrival: median error {np.median(arrivals):.2%}, 95th percentile"
        f" {np.quantile(arrivals, 0.95):.2%}; goal {goal:.0%}, {_verdict(float(np.median(arrivals)), goal)}",
    ]
    for shares in (False, True):
        errors = [each.parts for each in chosen if ("shared" in each.name) is shares]
        if errors:
            steps, transfers = (statistics.median(column) for column in zip(*errors, strict=True))
            where = (
                f"on {'shared' if shares else 'separate'} links, " if links == "training" else ""
            )
            parts.append(
                f"{where}the local steps are off by {steps:.2%} of that time, the transfers by {transfers:.2%}"
                " (medians)"
            )
    for schedule, what in (
        ("sync", "durations of rounds"),
        ("buffered", "durations of rounds"),
        ("compass", "durations of rounds"),
        ("async", "times of versions"),
    ):
        alike = [each for each in chosen if _schedule(each.name) == schedule]
        if alike:
            error = statistics.mean(each.judged[1] for each in alike)
            spread = _mean([each.round_spread for each in alike if each.repetitions > 1])
            parts.append(
                f"{schedule}, {what}: {error:.2%}, {_verdict(error, goal)} (between two deployments: {spread:.2%})"
            )
    met = sum(not each.misses for each in chosen)
    parts.append(f"{met} of {len(chosen)} configurations meet both goals")
    return (
        f"- {LINKS[links]}: {'. '.join(sentence[0].upper() + sentence[1:] for sentence in parts)}."
    )


def _verdict(error: float, goal: float) -> str:
    return "met" if error <= goal else "missed"


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.2%}"


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


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
    """Write the numbers, the figure, the results of the page, and the deployments that they come from."""
    runs = measured()
    write_measured(runs)
    comparisons = [compare(name, deployments) for name, deployments in runs.items()]
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
    "compare",
    "kendall_tau",
    "measured",
    "write_report",
]
