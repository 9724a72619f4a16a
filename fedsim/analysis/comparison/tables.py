"""The numbers of a comparison: every table of it as a pandas frame."""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.curves import MAX_POINTS, bounded, curves
from fedsim.analysis.comparison.facts import (
    CLIENT_UPDATES,
    COSTS,
    TIMING_TABLE,
    RunFacts,
    require_cost,
)
from fedsim.analysis.comparison.groups import Group, Grouping, group_runs, is_below
from fedsim.analysis.comparison.loading import Loaded
from fedsim.analysis.comparison.targets import (
    FEW,
    Estimate,
    Target,
    default_targets,
    enough,
    mean_of_reached,
    median_of_reached,
    ratio_of_means,
    reaching,
    spread_over,
)
from fedsim.errors import UserError, nearest_or_all, printable, unknown
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.formatting import format_names, format_word
from fedsim.vocabulary.metrics import MetricDefinition, definition, require_measured, require_target

SAME = " ≡ "
"""Joins the names of variants with identical results."""
_KEY = ["setting", "label"]
_FAR = 3.0
"""Ratio of the ends of two variants' runs from which the axis of time is logarithmic."""
_PAIR = (
    *("setting", "first", "second", "quantity", "seeds"),
    *("difference", "low", "high", "lowest", "highest", "better", "same"),
)
_MOST_METRICS = 500
"""Metrics that are compared, those of the targets first: a page draws each against every cost."""


class ComparisonTables:
    """The tables of a comparison.

    Every table is a pandas frame whose first columns are ``setting`` and ``label`` (the variant).

    Args:
        loaded: the runs, from :func:`~fedsim.analysis.comparison.loading.load`.
        targets: values to reach; see :func:`compare` for the default.
        baseline: variant that times are relative to.
        labels: other names for variants and settings, by their default names.
        settings: keys of the server section that name settings; see :func:`compare`.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        targets: Sequence[Target] = (),
        baseline: str | None = None,
        labels: Mapping[str, str] | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        self.facts, self.left_out, self.reference = loaded
        scenarios = [item.scenario for item in self.left_out if item.scenario is not None]
        self.labels: Mapping[str, str] = {
            printable(old, lines=False): new for old, new in (labels or {}).items()
        }
        if any("=" in old for old in self.labels):
            unnamed = group_runs(self.facts, scenarios, settings=settings)
            self.labels = dict(_renaming(*names, unnamed) for names in self.labels.items())
        renamed = {**(self.reference.labels if self.reference else {}), **self.labels}
        self.renamed = {old: printable(new) for old, new in renamed.items()}
        self.requested: Sequence[str] = settings
        settings = settings or (self.reference.settings if self.reference else [])
        self.grouping: Grouping = group_runs(self.facts, scenarios, self.renamed, settings)
        for key in self.requested:
            _check_setting(key, self.grouping)
        known = _names(self.groups)
        if missing := [old for old in self.labels if self.renamed[old] not in known]:
            unnamed = group_runs(self.facts, scenarios, settings=settings)
            raise _no_such_name(missing[0], self.labels[missing[0]], unnamed)
        self.leads: dict[Target, list[Any]] = {}
        self.metrics: tuple[str, ...] = tuple(
            dict.fromkeys(name for run in self.facts for name in run.metrics)
        )
        self.goals: tuple[Target, ...] = self._goals(targets)
        # The metrics of the targets come first.
        targeted = [goal.metric for goal in self.goals]
        self.metrics = tuple(dict.fromkeys([*targeted, *self.metrics]))[:_MOST_METRICS]
        self.baseline: str = self._baseline(baseline)

    def _goals(self, targets: Sequence[Target]) -> tuple[Target, ...]:
        """The targets, those of one metric from the easiest to the hardest."""
        chosen = tuple(dict.fromkeys(targets))
        if not chosen and self.reference is not None:
            # One file may serve several sweeps, some of them timing-only.
            stated = map(Target.parse, self.reference.targets)
            chosen = tuple(target for target in stated if target.metric in self.metrics)
        for target in chosen:
            metric = self.definition(target.metric)
            require_target(metric, target.value, self.metrics, f"target {target}")
        defaults = (goal for goal in default_targets(self.facts) if goal.metric in self.metrics)
        goals = chosen or tuple(defaults)
        metrics = list(dict.fromkeys(goal.metric for goal in goals))

        def rank(goal: Target) -> tuple[int, float]:
            sign = 1 if self.definition(goal.metric).higher_is_better else -1
            return metrics.index(goal.metric), sign * goal.value

        return tuple(sorted(goals, key=rank))

    def _baseline(self, requested: str | None) -> str:
        labels = list(dict.fromkeys(group.label for group in self.groups))
        if requested is None:
            stated = self.reference.baseline if self.reference is not None else None
            return stated if stated in labels else labels[0]
        # The names in the files of runs are escaped.
        requested = requested if requested in labels else printable(requested, lines=False)
        if requested not in labels:
            every = f"variants: {'; '.join(labels)}"
            raise unknown("variant", requested, labels, "baseline", every)
        return requested

    @property
    def groups(self) -> tuple[Group, ...]:
        """Groups of runs that differ only in their seed, by setting and variant."""
        return self.grouping.groups

    def definition(self, metric: str) -> MetricDefinition:
        """Direction, unit and label of a metric, by the first run that measured it."""
        return next(
            (run.definition(metric) for run in self.facts if metric in run.metrics),
            definition(metric),
        )

    def title(self, target: Target) -> str:
        """A target in a heading: ``90% accuracy``, ``loss of 0.4``."""
        return self.definition(target.metric).format_target(target.value)

    def phrase(self, target: Target) -> str:
        """A target after a verb: ``reached 90% accuracy``, ``reached a loss of 0.4``."""
        return self.definition(target.metric).with_article(self.title(target))

    @property
    def main_metrics(self) -> tuple[str, ...]:
        """The metrics of the targets, or the first metric if there are no targets."""
        return tuple(dict.fromkeys(goal.metric for goal in self.goals)) or self.metrics[:1]

    def targets_of(self, target: Target) -> pd.DataFrame:
        """The rows of :attr:`targets` of one target."""
        frame = self.targets
        return frame[(frame["metric"] == target.metric) & (frame["target"] == target.value)]

    def stopped_before(self, target: Target) -> list[Group]:
        """The groups with a run that ended at its scenario's target before it reached this one."""
        return [
            group
            for group in self.groups
            if any(
                run.stopped_at
                and target.metric in run.metrics
                and math.isnan(reaching(run, target)["time_s"])
                for run in group.runs
            )
        ]

    # -- is there a difference? -------------------------------------------------------------------------------------

    @functools.cached_property
    def no_difference(self) -> bool:
        """Whether there are several groups and all have bit-identical results for every seed."""
        settings = [self.grouping.of(setting) for setting in self.grouping.settings]
        return [*map(len, settings)] == [*map(len, self.alike)]

    @functools.cached_property
    def alike(self) -> list[tuple[Group, ...]]:
        """Variants of a setting with bit-identical results for every seed, two or more each time."""
        by_results: dict[Hashable, list[Group]] = defaultdict(list)
        for group in self.groups:
            results = tuple((run.seed, run.digest) for run in group.runs)
            by_results[group.setting, results].append(group)
        return [tuple(same) for same in by_results.values() if len(same) > 1]

    @functools.cached_property
    def shown(self) -> dict[tuple[str, str], str]:
        """What pages and documents call the groups, by setting and label: variants with identical results are one,
        named ``a ≡ b``, and the others of them are absent."""
        names = {(group.setting, group.label): group.label for group in self.groups}
        for same in self.alike:
            for group in same[1:]:
                del names[group.setting, group.label]
            names[same[0].setting, same[0].label] = SAME.join(group.label for group in same)
        return names

    def merged(self, frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
        """The rows of a table that pages and documents show, with the names in :attr:`shown`.

        Args:
            frame: a table with ``setting``.
            columns: its columns of labels; ``label`` if there are none.
        """
        for column in columns or ("label",):
            rows = zip(frame["setting"], frame[column], strict=True)
            frame = frame.assign(**{column: pd.Series([*map(self.shown.get, rows)], frame.index)})
            frame = frame[frame[column].notna()]
        return frame

    @functools.cached_property
    def is_stopped(self) -> bool:
        """Whether runs ended at their target, so that their final values do not rank the variants."""
        return len(self.groups) > 1 and any(run.stopped_at for run in self.facts)

    @property
    def spread(self) -> str:
        """What the spread of times and ratios over seeds is called."""
        times = self.targets.dropna(subset="time_s")["reached"] if self.goals else ()
        return spread_over(*times, *self.pairs["seeds"])

    def before(self, seeds: int) -> str:
        """The word before the ends of a spread over this number of seeds, if it is a range and others are not."""
        return "range " if seeds <= FEW and self.spread != spread_over(seeds) else ""

    @functools.cached_property
    def needs_log_time(self) -> bool:
        """Whether runs end so far apart that curves are drawn on a logarithmic axis of time."""
        ends_s = [
            max(run.progress["time_s"].max(initial=0.0) for run in group.runs)
            for group in self.groups
        ]
        measured = [end_s for end_s in ends_s if end_s > 0]
        return bool(measured) and max(measured) > _FAR * min(measured)

    # -- tables -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def costs(self) -> tuple[str, ...]:
        """The :data:`COSTS` that any run has, besides the time."""
        return tuple(
            name
            for name in COSTS
            if name == "time_s"
            or any(np.nan_to_num(run.progress[name]).any() for run in self.facts)
        )

    def by_run(self, value: Callable[[RunFacts], float]) -> pd.DataFrame:
        """A ``value`` of each run that pages and documents show."""
        rows = [{**group.names, "value": value(run)} for group in self.groups for run in group.runs]
        return self.merged(pd.DataFrame(rows))

    @functools.cached_property
    def runs(self) -> pd.DataFrame:
        """One row per run: ``run`` (folder), ``seed``, the last value of every metric, and the figures of the run."""
        rows = [
            {
                **group.names,
                "run": str(run.path),
                "seed": run.seed,
                **{f"final_{name}": run.final(name) for name in self.metrics},
                **run.figures,
            }
            for group in self.groups
            for run in group.runs
        ]
        return pd.DataFrame(rows)

    @functools.cached_property
    def summary(self) -> pd.DataFrame:
        """One row per group: ``runs``; for every metric the mean of the last values (``final_...``), their standard
        deviation (``..._sd``) and the mean of the best (``best_...``) over the runs that measured it; the means of the
        runs' figures, and the standard deviations of those that the table of timing-only runs shows."""
        rows = []
        frames = self.runs.drop(columns=["run", "seed"]).groupby(_KEY, sort=False)
        for group, (_, numbers) in zip(self.groups, frames, strict=True):
            numbers = numbers.drop(columns=[*_KEY, *(f"final_{name}" for name in self.metrics)])
            means, spread = numbers.mean(skipna=False), _deviations(numbers)
            row: dict[str, Any] = {**group.names, "runs": len(numbers)}
            for name in self.metrics:
                runs = group.measuring(name)
                finals = pd.DataFrame({name: [run.final(name) for run in runs]})
                row[f"final_{name}"] = float(finals[name].mean(skipna=False))
                row[f"final_{name}_sd"] = float(_deviations(finals)[name])
                row[f"best_{name}"] = float(np.mean([run.best(name) for run in runs]))
            shown = spread.reindex(list(TIMING_TABLE)).add_suffix("_sd")
            rows.append(row | means.to_dict() | shown.to_dict())
        return pd.DataFrame(rows)

    @functools.cached_property
    def reached(self) -> pd.DataFrame:
        """One row per target and run: ``goal``, ``seed``, and the :data:`COSTS` and ``client_updates`` of the
        first evaluation that reached it, NaN if none did. Runs that did not measure its metric are left out if others
        of their group did."""
        rows = [
            {**group.names, "goal": goal, "seed": run.seed, **reaching(run, goal)}
            for goal in self.goals
            for group in self.groups
            for run in group.measuring(goal.metric)
        ]
        return pd.DataFrame(rows, columns=[*_KEY, "goal", "seed", *COSTS, CLIENT_UPDATES])

    def at(self, setting: str, goal: Target, cost: str = "time_s") -> pd.DataFrame:
        """The time or another cost at which a setting's runs reached a target: a row per seed, a column per variant."""
        return self._reached_in[setting, goal].pivot(index="seed", columns="label", values=cost)

    @functools.cached_property
    def _reached_in(self) -> dict[Hashable, pd.DataFrame]:
        return dict(list(self.reached.groupby(["setting", "goal"], sort=False)))

    @functools.cached_property
    def targets(self) -> pd.DataFrame:
        """One row per group and target.

        ``runs`` and ``reached`` count runs; ``time_s`` is the mean over those that reached the target, between
        ``time_low_s`` and ``time_high_s`` (95% bootstrap interval over seeds); ``time_median_s`` is the time by which
        half of the runs had; ``relative`` is the mean divided by the baseline's in the setting, both over the seeds
        with which both reached the target, with its interval;
        the other :data:`COSTS` and ``client_updates`` (client updates that the model contains)
        are means at the same evaluations; ``client_updates_per_h`` is the mean of the client updates divided by the
        mean time. All are NaN if fewer than half of the runs reached the target.
        """
        rows = []
        of_group = dict(list(self.reached.groupby([*_KEY, "goal"], sort=False)))
        for group, goal in itertools.product(self.groups, self.goals):
            runs = of_group[group.setting, group.label, goal]
            base = of_group.get((group.setting, self.baseline, goal))
            times, mean, relative = runs["time_s"].to_numpy(), Estimate(), Estimate()
            if good := enough(times):
                mean = mean_of_reached(times)
                if group.label == self.baseline:
                    relative = Estimate(1.0)
                elif base is not None and enough(base["time_s"].to_numpy()):
                    both = self.at(group.setting, goal)[[group.label, self.baseline]]
                    relative = ratio_of_means(*both.to_numpy().T)
            row: dict[str, Any] = {
                **group.names,
                "metric": goal.metric,
                "target": goal.value,
                "runs": len(runs),
                "reached": int(np.isfinite(times).sum()),
                **dict(zip(("time_s", "time_low_s", "time_high_s"), mean, strict=True)),
                "time_median_s": median_of_reached(times),
            }
            row |= dict(zip(("relative", "relative_low", "relative_high"), relative, strict=True))
            costs = runs[[*list(COSTS)[1:], CLIENT_UPDATES]]
            means = (costs if good else costs[:0]).mean()
            row |= {str(cost): mean for cost, mean in means.items()}
            updates, time_s = row[CLIENT_UPDATES], row["time_s"]
            row[f"{CLIENT_UPDATES}_per_h"] = updates / time_s * 3600 if time_s else math.nan
            rows.append(row)
        return pd.DataFrame(rows)

    def speed(self, setting: str, goal: Target, label: str, rival: str) -> Estimate:
        """A rival's mean time to a target divided by a variant's, over the seeds with which both reached it, with its
        :attr:`spread`; unknown if an initial model reached it."""
        times_s = self.at(setting, goal)[[rival, label]].dropna().to_numpy()
        if not times_s.all():
            return Estimate()
        ratio = ratio_of_means(*times_s.T)
        if 0 < len(times_s) <= FEW:
            ratios = times_s[:, 0] / times_s[:, 1]
            return Estimate(ratio.mean, float(ratios.min()), float(ratios.max()))
        return ratio

    def standings(self, goal: Target) -> pd.DataFrame:
        """The rows of :attr:`targets` of one target as pages and documents show them, by setting and from the fastest,
        those that not every run reached after the others.

        ``low_s`` and ``high_s`` are the interval of the time, or its range over few seeds; ``speed`` is
        :meth:`speed` relative to the baseline, between ``speed_low`` and ``speed_high``, over ``common`` seeds;
        ``seeds_s`` are the times by seed.
        """
        order = {name: number for number, name in enumerate(self.grouping.settings)}
        frame = self.targets_of(goal)
        places = frame["setting"].map(order), frame["reached"] < frame["runs"], frame["time_s"]
        frame = frame.iloc[np.lexsort(places[::-1])]
        rows = []
        for row in frame.to_dict("records"):
            seeds_s = self.at(row["setting"], goal)[row["label"]].dropna().to_numpy()
            ends, speed = (row["time_low_s"], row["time_high_s"]), Estimate()
            if math.isfinite(row["relative"]):
                speed = self.speed(row["setting"], goal, row["label"], self.baseline)
            times_s = self.at(row["setting"], goal).reindex(columns=[row["label"], self.baseline])
            if len(seeds_s) <= FEW:
                is_known = math.isfinite(row["time_s"]) and len(seeds_s) > 1
                ends = (seeds_s.min(), seeds_s.max()) if is_known else (math.nan, math.nan)
            names = ("low_s", "high_s", "speed", "speed_low", "speed_high", "common", "seeds_s")
            rows.append(
                row | dict(zip(names, (*ends, *speed, len(times_s.dropna()), seeds_s), strict=True))
            )
        return self.merged(pd.DataFrame(rows))

    @functools.cached_property
    def pairs(self) -> pd.DataFrame:
        """One row per pair of variants and quantity, within a setting, over the seeds that both were run with.

        Pairs with the baseline come first, with the baseline second. ``quantity`` is ``final <metric>``
        or ``time to <target>``; ``seeds`` counts the pairs (for times, those in which both reached the target);
        ``difference`` is the mean of first minus second, between ``low`` and ``high`` (95% bootstrap interval over
        pairs), and of single pairs between ``lowest`` and ``highest``; ``better`` counts the seeds in which the first
        is better, ``same`` those in which both are equal.
        """
        rows: list[tuple[Any, ...]] = []
        for setting in self.grouping.settings:
            groups = self.grouping.of(setting)
            values = {
                f"final {name}": pd.DataFrame(
                    {g.label: {run.seed: run.final(name) for run in g.runs} for g in groups}
                ).sort_index()
                for name in self.metrics
            }
            higher = {f"final {m}": self.definition(m).higher_is_better for m in self.metrics}
            values |= {f"time to {goal}": self.at(setting, goal) for goal in self.goals}
            labels = sorted(
                [group.label for group in groups], key=lambda label: label != self.baseline
            )
            for one, other in itertools.combinations(labels, 2):
                first, second = (other, one) if one == self.baseline else (one, other)
                for quantity, frame in values.items():
                    a, b = frame[[first, second]].dropna().to_numpy().T
                    better = a > b if higher.get(quantity) else a < b
                    ends = ((a - b).min(), (a - b).max()) if len(a) else (math.nan, math.nan)
                    counts = int(better.sum()), int((a == b).sum())
                    names = setting, first, second, quantity, len(a)
                    rows.append((*names, *mean_of_reached(a - b), *ends, *counts))
        return pd.DataFrame(rows, columns=list(_PAIR))

    @functools.cached_property
    def spent(self) -> pd.DataFrame:
        """Client-seconds by activity, mean over the runs of a group: one row per group and part."""
        rows = [{**group.names, **run.spent_s} for group in self.groups for run in group.runs]
        means = pd.DataFrame(rows).groupby(_KEY, sort=False).mean()
        columns = {"seconds": means, "share": means.div(means.sum(axis=1), axis=0)}
        tidy = pd.concat(columns, axis=1).stack(future_stack=True).dropna()
        return tidy.rename_axis([*_KEY, "part"]).reset_index()

    @functools.cached_property
    def fairness(self) -> pd.DataFrame:
        """Accuracy over clients, if it was measured on their own data: statistics of each run, averaged over the runs.

        ``mean`` and ``sd`` over clients, ``worst_tenth`` (mean of the worst tenth), ``p10``, ``median``, ``p90``, and
        ``jain`` (Jain's index, 1 if all are equal, 1/N if one client has everything).
        """
        rows = [
            {**group.names, "runs": 1, **over_clients(run.client_accuracy)}
            for group in self.groups
            for run in group.runs
            if len(run.client_accuracy)
        ]
        if not rows:
            return pd.DataFrame()
        by_group = pd.DataFrame(rows).groupby(_KEY, sort=False)
        return by_group.mean().assign(runs=by_group.size()).reset_index()

    @functools.cached_property
    def differences(self) -> pd.DataFrame:
        """Differences between the scenarios: one row per group, one column per dotted path; absent values are NaN."""
        rows = [{**group.names, "runs": len(group.runs), **group.values} for group in self.groups]
        return pd.DataFrame(rows, columns=[*_KEY, "runs", *self.grouping.differing])

    def curves(
        self,
        metric: str | None = None,
        against: str = "time_s",
        points: int = MAX_POINTS,
        *,
        bound: bool = False,
    ) -> pd.DataFrame:
        """A metric against time or cost: ``setting label x median low high``, one row per group and point.

        See :mod:`fedsim.analysis.comparison.curves` for how runs are joined.

        Args:
            metric: name of the metric; the first one if None.
            against: one of :data:`fedsim.analysis.comparison.facts.COSTS`, such as ``bytes``.
            points: approximate maximum number of points per curve.
            bound: the lower bounds of the curves on time.
        """
        columns = ("median", "low", "high")
        frames = [
            pd.DataFrame({**group.names, "x": x, **{name: curve[name] for name in columns}})
            for group, x, curve in self.series(metric, against, points, bound=bound)
        ]
        return pd.concat(frames, ignore_index=True)

    def series(
        self,
        metric: str | None = None,
        against: str = "time_s",
        points: int = MAX_POINTS,
        *,
        bound: bool = False,
    ) -> Iterator[tuple[Group, Floats, dict[str, Floats]]]:
        """The curves of :meth:`curves` by group, with those of its ``runs``: what page, figure and tables show."""
        name = self.measured(metric)
        require_cost(against, self.costs)
        for setting in self.grouping.settings:
            groups = self.grouping.of(setting)
            if bound:
                groups = tuple(
                    replace(group, runs=tuple(self._bounded[run.path] for run in group.runs))
                    for group in groups
                )
            x, drawn = curves(groups, name, against, points)
            yield from ((group, x, curve) for group, curve in zip(groups, drawn, strict=True))

    @functools.cached_property
    def _bounded(self) -> dict[Path, RunFacts]:
        return {run.path: bounded(run) for group in self.groups for run in group.runs}

    def measured(self, metric: str | None, where: str = "metric") -> str:
        """The name of a metric that was measured; the first one if None."""
        if metric is None and self.metrics:
            return self.metrics[0]
        if metric is None:
            hint = "measured: nothing (timing-only runs)"
            raise UserError("no run measured a metric", where=where, hint=hint)
        require_measured(metric, self.metrics, where)
        return metric


def over_clients(values: Floats) -> dict[str, float]:
    """Statistics of the accuracies of a run's clients."""
    ordered = np.sort(values)
    squares = float((values**2).sum())
    return {
        "clients": len(values),
        "mean": float(values.mean()),
        "sd": float(values.std()),
        "worst_tenth": float(ordered[: math.ceil(len(values) / 10)].mean()),
        "p10": float(np.quantile(values, 0.1)),
        "median": float(np.median(values)),
        "p90": float(np.quantile(values, 0.9)),
        "jain": float(values.sum() ** 2 / (len(values) * squares)) if squares else math.nan,
    }


def _deviations(frame: pd.DataFrame) -> pd.Series[float]:
    """The standard deviation of each column: 0 of equal values, without the rounding error of their mean."""
    deviations = frame.std(skipna=False)
    equal = (frame == frame.iloc[0]).all()
    return deviations.mask(equal & deviations.notna(), 0.0)


def _check_setting(key: str, grouping: Grouping) -> None:
    if any(is_below(path, key) for path in grouping.of_settings):
        return
    if any(is_below(path, key) for path in grouping.differing):
        raise UserError(
            f"'{key}' cannot name settings: another key must differ, and every variant have every value of it",
            where="settings",
            hint="leave it out, so that its values name variants, or run the missing combinations",
        )
    every = f"keys that differ: {format_names(grouping.differing) or 'none'}"
    raise UserError(
        f"the runs do not differ in '{key}'",
        where="settings",
        hint=nearest_or_all(key, grouping.differing, every),
    )


def _names(groups: Iterable[Group]) -> list[str]:
    names = {name: None for group in groups for name in (group.label, group.setting)}
    return list(filter(None, names))


def _renaming(old: str, new: str, unnamed: Grouping) -> tuple[str, str]:
    """The current and the new name of ``old=new``; both may contain ``=``."""
    text, names = f"{old}={new}", _names(unnamed.groups)
    meant = [name for name in names if text.startswith(f"{name}=")]
    name = old if old in names else max(meant, key=len, default=old)
    return name, text[len(name) + 1 :]


def _no_such_name(name: str, new: str, unnamed: Grouping) -> UserError:
    known = _names(unnamed.groups)
    # ``fedprox, mu=1`` means fedprox, and fedprox means ``fedprox, mu=1``.
    meant = next((each for each in known if name in each or each in name), known[0])
    option = f"--labels {format_word(f'{meant}={new}')}"
    hint = f"variants and settings: {'; '.join(known)}\n  write the whole name: {option}"
    return UserError(f"there is no variant or setting '{name}'", where="labels", hint=hint)
