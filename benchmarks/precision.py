"""Coverage of the intervals of ``fedsim sweep --until-halfwidth``, on synthetic times whose true ratio is known.

    python -m benchmarks.precision [--repetitions 1000]

Each repetition runs two variants with seeds 0, 1, ... until the rule of :mod:`fedsim.analysis.precision` stops, or the
budget is spent, and asks whether the interval contains the true ratio. Seconds of a variant are a factor that the two
share (their devices) times one of each. The truth of the cases with a grid of evaluations and with censored runs, which
has no closed form, is the mean of ten million pairs. Two other rules are compared: *naive* stops at the first of at
least three seeds whose interval is narrow, one seed at a time; the *confidence sequence* is the always-valid interval
of a t test with a normal mixture (Lai, On confidence sequences, Annals of Statistics 4, 1976).

Prints the table of docs/tutorials/compare.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.tables import markdown
from fedsim.analysis.precision import CONFIDENCE, paired_ratio, restricted, seeds_to_run

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

HALF_WIDTH = 0.05
BUDGETS = (30, 300)
TRUTH_PAIRS = 10_000_000
_SHARED_SD, _MEAN_S = 0.5, 100.0


def noise(sd: float, kind: str = "normal") -> Draw:
    """Logarithms of the ratios, with a mean of zero and this standard deviation."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        if kind == "t5":
            return sd * random.standard_t(5, shape) * math.sqrt(3 / 5)
        if kind == "exponential":
            return sd * (random.exponential(size=shape) - 1)
        return sd * random.standard_normal(shape)

    return draw


def logs_of(
    random: np.random.Generator, shape: tuple[int, ...], draw: Draw, grid_s: float, end_s: float
) -> Floats:
    """Logarithms of the ratios of restricted times, on a grid of evaluations if ``grid_s`` is positive."""
    shared = _MEAN_S * np.exp(_SHARED_SD * random.standard_normal(shape))
    times = np.stack([0.8 * shared * np.exp(draw(random, shape)), shared])
    if grid_s:
        times = np.ceil(times / grid_s) * grid_s
    if math.isfinite(end_s):
        times[times > end_s] = np.nan
        times, _ = restricted(times, np.full(times.shape, end_s))
    logs: Floats = np.log(times[0] / times[1])
    return logs


CASES: dict[str, tuple[Draw, float, float]] = {
    "sd 5%": (noise(0.05), 0.0, math.inf),
    "sd 10%": (noise(0.1), 0.0, math.inf),
    "sd 20%": (noise(0.2), 0.0, math.inf),
    "sd 10%, heavy tails (t, 5 df)": (noise(0.1, "t5"), 0.0, math.inf),
    "sd 10%, skewed (exponential)": (noise(0.1, "exponential"), 0.0, math.inf),
    "sd 10%, evaluations every 10 s": (noise(0.1), 10.0, math.inf),
    "sd 10%, 10 s, 16% of the runs censored": (noise(0.1), 10.0, 150.0),
}


def sequence_half_width(logs: Floats) -> float:
    """Half-width, in logarithms, of the confidence sequence of a mean with a mixture of one observation."""
    seeds = len(logs)
    factor = (math.sqrt(seeds + 1) / (1 - CONFIDENCE)) ** (2 / seeds)
    if factor >= seeds + 1:
        return math.inf
    spread = (factor - 1) / (1 - factor / (seeds + 1))
    return float(logs.std(ddof=1)) * math.sqrt((seeds - 1) * spread / seeds)


def rule(logs: Floats, budget: int) -> tuple[int, float]:
    """Seeds, and the relative half-width that is reported."""
    seeds = seeds_to_run(logs[:0], HALF_WIDTH, budget)
    while (more := seeds_to_run(logs[:seeds], HALF_WIDTH, budget)) > seeds:
        seeds = more
    return seeds, paired_ratio(logs[:seeds], HALF_WIDTH).half_width


def naive(logs: Floats) -> tuple[int, float]:
    """The same of the naive rule, which reports the interval that it has seen."""
    seeds, width = 3, paired_ratio(logs[:3], 0.0).half_width
    while width > HALF_WIDTH and seeds < len(logs):
        seeds += 1
        width = paired_ratio(logs[:seeds], 0.0).half_width
    return seeds, width


def sequential(logs: Floats) -> int:
    """Seeds of the confidence sequence."""
    wanted = math.log1p(HALF_WIDTH)
    numbers = range(3, len(logs) + 1)
    return next((n for n in numbers if sequence_half_width(logs[:n]) <= wanted), len(logs))


def measure(name: str, repetitions: int) -> list[str]:
    """A row of the table."""
    random = np.random.default_rng(1)
    truth = float(logs_of(random, (TRUTH_PAIRS,), *CASES[name]).mean())
    repeated = logs_of(random, (repetitions, max(BUDGETS)), *CASES[name])

    def covers(logs: Floats, seeds: int, width: float) -> bool:
        return abs(float(logs[:seeds].mean()) - truth) <= math.log1p(width)

    row = [name]
    for budget in BUDGETS:
        ends = [rule(logs, budget) for logs in repeated]
        share = np.mean([covers(logs, *end) for logs, end in zip(repeated, ends, strict=True)])
        narrow = np.mean([width <= HALF_WIDTH for _, width in ends])
        mean = np.mean([seeds for seeds, _ in ends])
        row += [f"{share:.1%}", f"{mean:.1f}", f"{narrow:.0%}"]
    few = repeated[: min(repetitions, 1000)]
    share = np.mean([covers(logs, *naive(logs)) for logs in few])
    return [*row, f"{share:.1%}", f"{np.mean(list(map(sequential, few))):.1f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=1000)
    options = parser.parse_args()
    header = ["log ratios"]
    for budget in BUDGETS:
        header += [f"coverage, at most {budget} seeds", "seeds", "narrow"]
    header += ["coverage, naive", "seeds, confidence sequence"]
    print(markdown(header, (measure(name, options.repetitions) for name in CASES)))


if __name__ == "__main__":
    main()
