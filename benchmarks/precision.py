"""Coverage of the intervals of ``fedsim sweep --until-halfwidth``, on synthetic times whose true ratio is known.

    python -m benchmarks.precision [--repetitions 1000]

Each repetition runs two variants with seeds 0, 1, ... until the rule of :mod:`fedsim.analysis.precision` stops, or the
budget is spent, and asks whether the interval contains the true ratio. Seconds of a variant are a factor that the two
share (their devices) times one of each. The truth of the cases with a grid of evaluations and with censored runs, which
has no closed form, is the mean of ten million pairs. Two other rules are compared: *naive* stops at the first of at
least three seeds whose interval is narrow, one seed at a time; the *confidence sequence* is the always-valid interval
of a t test with a normal mixture (Lai, On confidence sequences, Annals of Statistics 4, 1976).

The second table is about :mod:`fedsim.analysis.steady`: autoregressions around 10 whose beginning is too low, of which
half has decayed after a number of values.

Prints the tables of benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from benchmarks.tables import markdown
from fedsim.analysis.precision import CONFIDENCE, paired_ratio, restricted, seeds_to_run
from fedsim.analysis.steady import batch_half_width, warm_up

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]

HALF_WIDTH = 0.05
BUDGETS = (30, 300)
HALF_LIVES = (1, 10, 30)
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


def measure_steady(half_life: int, repetitions: int) -> list[str]:
    """A row of the second table."""
    random, length = np.random.default_rng(1), 1000
    decay = 0.5 ** (np.arange(length) / half_life)
    errors, widths, dropped = [], [], []
    for _ in range(repetitions):
        values = 10 + lfilter([1], [1, -0.5], random.normal(size=length)) - 10 * decay
        dropped.append(warm_up(values) or 0)
        kept = (values[dropped[-1] :], values)
        errors.append([part.mean() - 10 for part in kept])
        widths.append([batch_half_width(part) for part in kept])
    right = np.mean(np.abs(errors) <= widths, axis=0)
    bias, width = np.mean(errors, axis=0), np.mean(widths, axis=0)
    cells = [f"{half_life}", f"{np.mean(dropped):.0f}"]
    for number in range(2):
        cells += [f"{right[number]:.1%}", f"{bias[number]:+.3f}", f"±{width[number]:.3f}"]
    return cells


def main() -> None:
    """Print the tables."""
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
    kinds = ("MSER-5", "whole series")
    header = ["half-life of the warm-up", "values dropped"]
    header += [f"{name}, {kind}" for kind in kinds for name in ("coverage", "bias", "interval")]
    print(markdown(header, (measure_steady(life, options.repetitions) for life in HALF_LIVES)))


if __name__ == "__main__":
    main()
