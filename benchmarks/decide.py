"""The search of ``fedsim decide`` against a full grid, on populations that were not used for tuning it.

    python -m benchmarks.decide [--populations 20 | --calibration 300]

Each population has devices, links and absences of its own. A run simulates time; what its timeline would have learned
is computed by a formula, so that a grid is affordable: a server update is worth the logarithm of one plus the sum of
1 / sqrt(staleness + 1) over its updates, and the target is a sum. So small cohorts learn little per round, large ones
wait for slow devices, and stale updates are worth less.

With ``--calibration``, the probability that the answer states is held against the truth: on synthetic problems with
known means, whose times vary by seed and are those of evaluations, how often is the choice as good as stated?

The grid has 8 deadlines x 6 cohorts of FedAvg and 6 cohorts x 4 buffers of FedBuff, each with three seeds. The
search has its own seed, and more for its best, as the command; that the command's fresh seeds may still prefer a rival
does not count. Both choices are then run with twelve other seeds. The
search is as good if its mean is at most 5% above that of the grid's choice, or not significantly above (paired, 95%).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from fedsim.analysis.precision import students_half_width
from fedsim.composition.build import build
from fedsim.composition.planes import build_server
from fedsim.composition.shared import Shared
from fedsim.decisions.choosing import INDIFFERENCE, ROUNDS, SEEDS, probability_good, raced
from fedsim.decisions.goal import Measured
from fedsim.decisions.search import Question, Search
from fedsim.decisions.space import Setting, Space, parse_dimension
from fedsim.scenario.loading import LoadedScenario, load_scenario_dict
from fedsim.vocabulary.timeline import Aggregate

Floats = npt.NDArray[np.float64]

OVER = (
    "server.method=fedavg,fedbuff",
    "server.schedule.deadline=1min..1h",
    "server.schedule.buffer_size=2..40",
    "server.selection.cohort=4..60",
)
BUDGET = 0.2
"""Share of the grid's processor time that the search may take."""
_HORIZON_S = 2 * 86_400.0
_WORTH = 80.0


def population(number: int) -> LoadedScenario:
    """The scenario of a population."""
    draw = np.random.default_rng([20, number])
    trace = ("builtin:phones_week", "builtin:phones_mostly_on_week")[number % 2]
    return load_scenario_dict(
        {
            "name": f"population-{number}",
            "task": {
                "name": "timing",
                "clients": int(draw.integers(80, 200)),
                "parameters": 250_000,
            },
            "training": {"local_steps": int(draw.integers(10, 40))},
            "devices": {
                "trace": trace,
                "assign": "sample",
                "compute": {
                    "name": "lognormal",
                    "median": float(draw.uniform(2, 15)),
                    "sigma": float(draw.uniform(0.3, 1.2)),
                    "jitter": {"cv": 0.2},
                },
                "network": {
                    "name": "static",
                    "down": "8Mbps",
                    "up": f"{draw.uniform(0.3, 3):.2f}Mbps",
                },
            },
            "server": {"method": "fedavg", "schedule": {"name": "sync", "deadline": "15min"}},
            "stop": {"simulated_time": _HORIZON_S},
        },
        ".",
    )


class Timelines:
    """Measures settings of a population on timelines in memory, and counts their processor time."""

    def __init__(self, loaded: LoadedScenario) -> None:
        self.space = Space(loaded, [parse_dimension(text) for text in OVER])
        self.spent_s = 0.0
        self._shared = Shared()

    def measure(self, setting: Setting, until_s: float, seed: int) -> Measured:
        """What a setting showed until a simulated time."""
        began = time.process_time()
        changed = self.space.scenario(setting, stop__simulated_time=until_s, seed=seed)
        watch = _Worth()
        with contextlib.suppress(_Reached):
            build_server(build(changed, self._shared, timing_only=True), None, watch).run()
        self.spent_s += time.process_time() - began
        worth = min(watch.worth, _WORTH)
        return Measured(
            {"time": min(watch.reached_s, until_s)},
            worth >= _WORTH,
            1 - worth / _WORTH,
            wall_s=time.process_time() - began,
        )

    def times(self, setting: Setting, seeds: Sequence[int]) -> Floats:
        """Times to the target by seed; longer than the horizon if it is missed."""
        measured = [self.measure(setting, _HORIZON_S, seed) for seed in seeds]
        return np.array([each.costs["time"] * (1 + each.shortfall) for each in measured])


class _Reached(Exception):
    """Ends a run that has reached the target."""


class _Worth:
    """Adds up what the server updates are worth."""

    def __init__(self) -> None:
        self.worth, self.reached_s = 0.0, np.inf

    def append_dispatch(self, ended: Any) -> None:
        """Single dispatches do not count."""

    def append_aggregation(self, aggregate: Aggregate) -> None:
        """Count a server update."""
        staleness = np.array([each.staleness for each in aggregate.contributions])
        self.worth += float(np.log1p((1 / np.sqrt(staleness + 1.0)).sum()))
        if self.worth >= _WORTH:
            self.reached_s = aggregate.time_s
            raise _Reached


def grid() -> list[Setting]:
    """The settings of the grid."""
    cohorts = np.unique(np.geomspace(4, 60, 6).round()).astype(int).tolist()
    buffers = np.unique(np.geomspace(2, 40, 4).round()).astype(int).tolist()
    deadlines = np.geomspace(60, 3600, 8).tolist()
    method, cohort = "server.method", "server.selection.cohort"
    return [
        *(
            {method: "fedavg", "server.schedule.deadline": deadline, cohort: size}
            for deadline, size in itertools.product(deadlines, cohorts)
        ),
        *(
            {method: "fedbuff", "server.schedule.buffer_size": buffer, cohort: size}
            for buffer, size in itertools.product(buffers, cohorts)
        ),
    ]


def searched(timelines: Timelines, budget_s: float) -> tuple[Setting, int]:
    """The choice of the search within processor seconds, and the number of settings."""
    began = time.process_time()
    given = timelines.measure({}, _HORIZON_S, 0)
    question = Question(
        ("time",), (), given.costs["time"], min(_HORIZON_S, 2 * given.costs["time"])
    )

    def measure(settings: Sequence[Setting], until_s: float) -> list[Measured | str]:
        return [timelines.measure(setting, until_s, 0) for setting in settings]

    search = Search(timelines.space.suggest, question, measure)
    batch_s = later_s = 0.0
    while time.process_time() - began + batch_s + later_s < budget_s:
        batch_began = time.process_time()
        search.batch()
        batch_s = time.process_time() - batch_began
        fastest = [each.measured.wall_s for each in search.candidates[:3] if each.measured]
        runs = sum(number * seeds for number, seeds in ROUNDS)
        runs += max(0, ROUNDS[0][0] - len(search.candidates))
        later_s = runs * (float(np.mean(fastest)) if fastest else given.wall_s)
    search.resume(ROUNDS[0][0])
    settings = [each.setting for each in search.candidates]

    def more(rows: Sequence[int], first: int, count: int) -> Floats:
        seeds = range(first, first + count)
        return np.log([timelines.times(settings[row], seeds) for row in rows])

    best, _ = raced(np.log([each.values[0] for each in search.candidates]), more)
    return settings[best[0]], len(search.tried)


class Problem:
    """Settings with known mean times; the landscape, the noise and the time between evaluations are drawn."""

    def __init__(self, number: int) -> None:
        draw = np.random.default_rng([21, number])
        self._number, self._best = number, draw.uniform(0, 1, 2)
        self._slopes = 10 ** draw.uniform(-1.5, 0.7, 2)
        self._offset = float(draw.choice([0.0, 0.02, 0.1, 0.5]))
        self._noise, self._common = 10 ** draw.uniform(-2, -0.4, 2)
        self._every = float(draw.choice([0.0, 0.05, 0.3]))

    def suggest(self, trial: Any) -> dict[str, Any]:
        """The setting of a trial."""
        setting = {name: round(trial.suggest_float(name, 0, 1), 2) for name in ("x", "y")}
        return setting | {"kind": trial.suggest_categorical("kind", [0, 1])}

    def logs(self, setting: Setting, seeds: Sequence[int]) -> Floats:
        """Logarithms of the times with these seeds."""
        level = self._level(setting)
        place = [int(100 * setting["x"]), int(100 * setting["y"]), setting["kind"]]
        logs = np.array(
            [
                level
                + self._common * np.random.default_rng([self._number, seed]).normal()
                + self._noise * np.random.default_rng([self._number, seed, *place]).normal()
                for seed in seeds
            ]
        )
        return self._evaluated(logs)

    def mean(self, setting: Setting) -> float:
        """The mean of the logarithms over all seeds, to 0.001: that of 2,000 quantiles of the noise."""
        noise = norm.ppf((np.arange(2000) + 0.5) / 2000) * np.hypot(self._common, self._noise)
        return float(self._evaluated(self._level(setting) + noise).mean())

    def _level(self, setting: Setting) -> float:
        x = np.array([setting["x"], setting["y"]])
        return float(self._slopes @ (x - self._best) ** 2 + self._offset * setting["kind"])

    def _evaluated(self, logs: Floats) -> Floats:
        every = self._every
        return np.log(np.ceil(np.exp(logs) / every) * every) if every else logs

    def measure(self, settings: Sequence[Setting], until_s: float) -> list[Measured | str]:
        """What settings show with the seed of the search."""
        times = [float(np.exp(self.logs(setting, [0])[0])) for setting in settings]
        return [
            Measured(
                {"time": min(time_s, until_s)}, time_s <= until_s, max(0.0, 1 - until_s / time_s)
            )
            for time_s in times
        ]


def calibration(number: int, batches: int = 3, seeds: int = 5) -> tuple[float, bool]:
    """The probability that is stated in a problem, and whether the choice is good."""
    problem = Problem(number)
    search = Search(
        problem.suggest, Question(("time",), (), 3.0, 6.0, seed=number), problem.measure
    )
    for _ in range(batches):
        search.batch()
    search.resume(ROUNDS[0][0])
    settings = [each.setting for each in search.candidates]

    def more(rows: Sequence[int], first: int, count: int) -> Floats:
        return np.array([problem.logs(settings[row], range(first, first + count)) for row in rows])

    order, values = raced(np.log([each.values[0] for each in search.candidates]), more)
    fresh = np.full((len(settings), seeds), np.nan)
    fresh[order[:3]] = more(order[:3], SEEDS, seeds)
    stated = probability_good(np.hstack([values, fresh]))
    choice = max(order[:3], key=lambda row: stated[row])
    best = min(problem.mean(each.setting) for each in search.tried.values())
    return float(stated[choice]), bool(
        problem.mean(settings[choice]) <= best + np.log1p(INDIFFERENCE)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--populations", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first population")
    parser.add_argument("--calibration", type=int, default=0, help="number of synthetic problems")
    arguments = parser.parse_args()
    if arguments.calibration:
        pairs = np.array([calibration(number) for number in range(arguments.calibration)], float)
        print("| stated | problems | mean stated | choice was good |")
        print("|---|---|---|---|")
        edges = np.array([0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 1.0])
        places = np.clip(np.searchsorted(edges, pairs[:, 0], side="right") - 1, 0, len(edges) - 2)
        for place in np.unique(places):
            rows = pairs[places == place]
            bounds = f"{edges[place]:g} to {edges[place + 1]:g}"
            print(f"| {bounds} | {len(rows)} | {rows[:, 0].mean():.2f} | {rows[:, 1].mean():.2f} |")
        print(f"| all | {len(pairs)} | {pairs[:, 0].mean():.2f} | {pairs[:, 1].mean():.2f} |")
        return
    print("| population | grid | search | settings | processor time | as good |")
    print("|---|---|---|---|---|---|")
    good = 0
    shares: list[float] = []
    for number in range(arguments.first, arguments.first + arguments.populations):
        timelines = Timelines(population(number))
        settings = grid()
        means = [np.log(timelines.times(setting, (0, 1, 2))).mean() for setting in settings]
        whole_s, best = timelines.spent_s, settings[int(np.argmin(means))]
        began = time.process_time()
        choice, tried = searched(timelines, BUDGET * whole_s)
        share = (time.process_time() - began) / whole_s
        seeds = range(100, 112)
        ours, theirs = (np.log(timelines.times(each, seeds)) for each in (choice, best))
        ratio = float(np.exp((ours - theirs).mean()))
        half = students_half_width(ours - theirs)
        is_good = ratio <= 1 + INDIFFERENCE or (ours - theirs).mean() <= half
        good += is_good
        shares.append(share)
        row = [timelines.space.words(each) for each in (best, choice)]
        print(
            f"| {number} | {row[0]}: {np.exp(theirs.mean()) / 3600:.2f} h | {row[1]}: {ratio:.2f} times as long | "
            f"{tried} | {share:.0%} | {'yes' if is_good else 'no'} |",
            flush=True,
        )
    print(
        f"\nas good in {good} of {arguments.populations}, processor time at most {max(shares):.0%}"
    )


if __name__ == "__main__":
    main()
