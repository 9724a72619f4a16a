"""A sweep to a precision: seeds are added until the ratio of each variant to the baseline is known well enough."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.facts import RunFacts
from fedsim.analysis.comparison.tables import ComparisonTables
from fedsim.analysis.comparison.targets import Target, metric_text, parse_metric, reaching
from fedsim.analysis.precision import paired_ratio, restricted, seeds_to_run
from fedsim.analysis.run import load_run
from fedsim.analysis.steady import throughput
from fedsim.composition.build import build, check
from fedsim.errors import UserError
from fedsim.runs.records import SWEEP, SWEEP_PRECISION, is_sweep, read_sweep
from fedsim.runs.tables import csv_text
from fedsim.scenario.comparing import text
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.overrides import Override
from fedsim.sweeps.execution import SweepOutcome, default_folder, sweep
from fedsim.sweeps.plan import plan_runs
from fedsim.units import share_of
from fedsim.vocabulary.arrays import Floats


@dataclass(frozen=True)
class Precision:
    """The precision that is wanted.

    Attributes:
        half_width: relative half-width of the 95% interval of each ratio, such as 0.05.
        target: the target whose times are compared; None for the throughput (:mod:`fedsim.analysis.steady`).
        most: the largest number of seeds.
    """

    half_width: float
    target: Target | None
    most: int = 30

    @classmethod
    def parse(cls, half_width: str | None, metric: str | None, most: int = 30) -> Precision:
        """Read ``5%``, and ``time_to:accuracy=0.8`` or ``throughput``."""
        where = f"--until-halfwidth {half_width or ''} --metric {metric or ''}"
        hint = (
            "for example --until-halfwidth 5% --metric time_to:accuracy=0.8, or --metric throughput"
        )
        try:
            width = float(share_of(half_width) or half_width or "")
        except ValueError:
            width = 0.0
        if not 0 < width < 1:
            raise UserError("needs a half-width between 0% and 100%", where=where, hint=hint)
        return cls(width, parse_metric(metric or "", where, hint), most)

    def __str__(self) -> str:
        return metric_text(self.target)


def sweep_to_precision(
    loaded: LoadedScenario, output: Path | None, precision: Precision, **settings: Any
) -> tuple[SweepOutcome, pd.DataFrame]:
    """Perform a sweep, adding seeds as :mod:`fedsim.analysis.precision` says until every ratio is precise.

    The first seeds are those of the scenario, and those of an earlier call in the same folder; the following ones count
    up from the largest. A run that fails ends the sweep with the seeds that it has.

    Args:
        loaded, output, settings: as for :func:`fedsim.sweeps.execution.sweep`.
        precision: the precision that is wanted.

    Returns:
        The outcome, and a table with one row per variant other than the baseline, which is empty if runs failed.
        Columns: ``setting``, ``label``, ``baseline``, ``missed`` and ``baseline_missed`` (runs that did not reach the
        target), ``censored_s`` (the time with which they count; null if there are none), ``ratio``, ``half_width``,
        ``seeds``, ``needed`` (seeds after which this ratio was precise; null if it is not), ``low`` and ``high``.
    """
    folder = output if output is not None else default_folder(loaded)
    planned = plan_runs(loaded)
    if len({text(run.values) for run in planned}) < 2:
        raise UserError(
            "there is only one variant, so there is no ratio to a baseline",
            where="sweep",
            hint="vary something with sweep.variants, sweep.grid or sweep.zip, such as server.method",
        )
    if precision.target is not None:
        # A mistyped metric is found before the first run.
        goal = {precision.target.metric: precision.target.value}
        changed = planned[0].loaded.changed([Override("stop.target", goal, "--metric")])
        check(build(changed, timing_only=bool(settings.get("timing_only"))))
    earlier = [run["seed"] for run in read_sweep(folder)["runs"]] if is_sweep(folder) else []
    seeds = list(dict.fromkeys([*(run.seed for run in planned), *earlier]))
    wanted, ran = seeds_to_run(np.zeros(0), precision.half_width, precision.most), 0
    while True:
        following = itertools.count(max(seeds) + 1)
        seeds += itertools.islice(following, max(0, wanted - len(seeds)))
        more = loaded.changed([Override("sweep.seeds", seeds, "option --until-halfwidth")])
        outcome = sweep(more, folder, **settings)
        ran += outcome.ran
        outcome = dataclasses.replace(outcome, ran=ran, skipped=outcome.skipped + outcome.ran - ran)
        if outcome.failures:
            return outcome, pd.DataFrame()
        targets = [] if precision.target is None else [str(precision.target)]
        pairs = logarithms(outcome.sweep.compare(targets=targets), precision.target)
        wanted = max(seeds_to_run(pair[1], precision.half_width, precision.most) for pair in pairs)
        if wanted <= len(seeds):
            rows = []
            for names, logs in pairs:
                ratio = paired_ratio(logs, precision.half_width)
                rows.append({**names, **vars(ratio), "low": ratio.low, "high": ratio.high})
            table = pd.DataFrame(rows).astype({"needed": "Int64"})
            SWEEP.write_listed(folder, {**read_sweep(folder)}, {SWEEP_PRECISION: csv_text(table)})
            return outcome, table


def logarithms(
    comparison: ComparisonTables, target: Target | None
) -> list[tuple[dict[str, Any], Floats]]:
    """Each variant (its columns of the table), with the logarithms of its ratios to the baseline, by seed."""
    pairs = []
    if target is not None and (stopped := comparison.stopped_before(target)):
        raise UserError(
            f"runs of {stopped[0].name} ended at their stop.target before they reached {target}",
            where="metric",
            hint="make stop.target as hard as this target, or remove it, and choose another folder with -o",
        )
    for setting in comparison.grouping.settings:
        groups = comparison.grouping.of(setting)
        runs = [run for group in groups for run in group.runs]
        values, missed, censored_s = _values(runs, target)
        # Every variant is run with every seed.
        by_group = np.split(values, np.cumsum([len(group.runs) for group in groups])[:-1])
        base = next(n for n, group in enumerate(groups) if group.label == comparison.baseline)
        counts = [sum(run.path in missed for run in group.runs) for group in groups]
        for number, group in enumerate(groups):
            if number != base:
                names = {**group.names, "baseline": groups[base].label, "missed": counts[number]}
                names |= {"baseline_missed": counts[base], "censored_s": censored_s}
                pairs.append((names, np.log(by_group[number] / by_group[base])))
    return pairs


def _values(
    runs: Sequence[RunFacts], target: Target | None
) -> tuple[Floats, set[Path], float | None]:
    if target is None:
        steady = (throughput(load_run(run.path)) for run in runs)
        values = np.array([one.per_h if one else 0.0 for one in steady])
        missed, censored_s = set[Path](), math.inf
        problem, hint = (
            "has no steady throughput",
            "let the runs make at least 100 server updates, and last longer than twice their warm-up",
        )
    else:
        times_s = np.array([reaching(run, target)["time_s"] for run in runs])
        missed = {run.path for run, time_s in zip(runs, times_s, strict=True) if np.isnan(time_s)}
        ends_s = np.array([run.figures["simulated_s"] for run in runs])
        values, censored_s = restricted(times_s, ends_s)
        problem, hint = f"had reached {target} at the start", "choose a harder target"
        if len(missed) == len(runs):
            raise UserError(
                f"no run reached {target}, so there is no ratio of times",
                where="metric",
                hint="choose an easier target, or let the runs last longer and choose another folder with -o",
            )
    for run, value in zip(runs, values.tolist(), strict=True):
        if not value:
            raise UserError(f"{problem}, so there is no ratio", where=run.path, hint=hint)
    return values, missed, censored_s if math.isfinite(censored_s) else None
