"""Decides among settings: search, choose among the best with more seeds, and measure the choice with fresh seeds.

The scenario as given is run first. Then settings are searched with its seed (:mod:`fedsim.decisions.search`). The best
ones are run with more seeds, and the one with the best mean is chosen. Its numbers come from seeds that had no part in
the choice: the best of many noisy values is better than its mean. These runs end as the scenario says, at its target or
at a limit of ``stop``; a miss is a miss, not a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.analysis.comparison.targets import THROUGHPUT
from fedsim.decisions.choosing import (
    INDIFFERENCE,
    ROUNDS,
    SEEDS,
    pareto,
    preferred,
    probability_good,
    raced,
)
from fedsim.decisions.decision import (
    BEST,
    HOPELESS,
    SETTINGS,
    Decision,
    Finalist,
    better_by_chance,
    format_objective,
    label_of,
    shown,
)
from fedsim.decisions.goal import QUANTITIES, Goal, Limit, Measured, updates_within
from fedsim.decisions.page import write_decision_page
from fedsim.decisions.runs import Progress, Runs
from fedsim.decisions.search import BATCH, COMPLETE, Question, Search, Tried
from fedsim.decisions.space import Dimension, Setting, Space
from fedsim.errors import UserError
from fedsim.processes.cluster import usable_cores
from fedsim.runs.records import DECISION, complete_runs
from fedsim.runs.tables import csv_text
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.own_code import as_data
from fedsim.scenario.source import relocated, to_yaml
from fedsim.sweeps.folder import claimed
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.formatting import (
    Kind,
    format_counted,
    format_interval,
    format_names,
    format_probability,
    format_value,
)

_CONFIRMED = 3
"""Number of settings that are run with fresh seeds."""
_FRONT = 6
"""The same for several objectives."""
_STEADY = ": a throughput needs 100 server updates, and twice as much time as the warm-up takes"
_LATER = 2.0
"""How many times as long as the scenario as given takes to the target a run of the search may last."""


def decide(
    loaded: LoadedScenario,
    folder: Path,
    over: Sequence[Dimension],
    goal: Goal,
    *,
    limits: Sequence[Limit] = (),
    objectives: Sequence[str] = ("time",),
    budget_s: float = math.inf,
    most: int = 60,
    seeds: int = 8,
    jobs: int | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    **engine: Any,
) -> Decision:
    """Search settings of a scenario for the best one; continues what is in the folder.

    The arguments are those of :func:`fedsim.decide`, read: ``budget_s`` wall seconds, and at ``most`` this number of
    settings.
    """
    names = tuple(objectives) if goal.target is not None else (THROUGHPUT,)
    asked = {
        "scenario": loaded.resolved(),
        "over": [
            as_data({name: value for name, value in vars(each).items() if name != "units"})
            for each in over
        ],
        "metric": str(goal),
        "limits": [dataclasses.asdict(limit) for limit in limits],
        "objectives": list(names),
    }
    if loaded.scenario.sweep is not None:
        raise UserError(
            "this scenario describes a sweep",
            where=f"{loaded.path or 'scenario'}: sweep",
            hint="leave the section out: -s sweep=null",
        )
    for quantity, key in (("gco2e", "carbon"), ("cost", "cost")):
        wanted = {*names, *(limit.name for limit in limits)}
        if quantity in wanted and getattr(loaded.scenario.devices, key) is None:
            raise UserError(
                f"the scenario gives no {QUANTITIES[quantity].label}",
                where=f"--objective or --limit {quantity}",
                hint=f"set devices.{key}",
            )
    space = Space(loaded, over)
    with claimed(folder, DECISION):
        jobs = jobs or usable_cores()
        record = _record(folder, asked, min(most, max(BATCH, jobs)))
        if not record["batches"] and engine.get("engine") is None:
            space.check(timing_only=goal.timing_only)
        runs = Runs(folder / "runs", timing_only=goal.timing_only, jobs=jobs, **engine)
        timing = Runs(folder / "timing", timing_only=True, jobs=jobs, **engine)
        work = _Work(
            loaded, space, goal, tuple(limits), names, seeds, runs, timing, record, on_progress
        )
        return work.decide(folder, budget_s, most, jobs)


def _record(folder: Path, asked: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """The record in a folder, or that of a beginning: the question, and how far the search is."""
    plain = json.loads(json.dumps(asked))
    with contextlib.suppress(FileNotFoundError):
        known = DECISION.read(folder)
        if known["asked"] == plain:
            return known
        if known["batches"]:  # Before the first batch of settings there is nothing to lose.
            changed = ", ".join(key for key in plain if known["asked"].get(key) != plain[key])
            raise UserError(
                f"the folder answers another question: another {changed}",
                where=folder,
                hint="choose another folder with -o (in Python: output)",
            )
    begun = {"asked": plain, "batch": batch, "batches": 0, "spent_s": 0.0, "files": {}}
    DECISION.write(folder, begun)
    return begun


@dataclass
class _Work:
    loaded: LoadedScenario
    space: Space
    goal: Goal
    limits: tuple[Limit, ...]
    objectives: tuple[str, ...]
    seeds: int
    runs: Runs
    timing: Runs
    record: dict[str, Any]
    on_progress: Callable[[Progress], None]

    def decide(self, folder: Path, budget_s: float, most: int, jobs: int) -> Decision:
        began_s = time.monotonic() - self.record["spent_s"]  # Those of earlier calls included.
        self._folder, self._share = folder, 0.0
        self._words = "the scenario as given"
        # Step 1. The scenario as given, which says how long runs take.
        [run] = self.runs.perform([self.goal.applied(self.loaded)], self._report)
        assert not isinstance(run, str)
        self._given = given = self.goal.measure(run)
        self._horizon_s, words = given.costs["time"], "the time of the scenario as given"
        if given.reached and self.goal.target is not None:
            self._horizon_s, words = _LATER * self._horizon_s, f"twice {words}"
        end_s = self.loaded.scenario.stop.simulated_time or math.inf
        self._within = f"{format_value(self._horizon_s, 'time')} ({words})"
        if self._horizon_s >= end_s:
            self._horizon_s, self._within = end_s, format_value(end_s, "time")
        self._bounds = self._within + "".join(f" and {limit}" for limit in self.limits)
        question = Question(
            self.objectives,
            self.limits,
            given.costs["time"],
            self._horizon_s,
            self.loaded.scenario.evaluation.every or 0.0,
            self.loaded.scenario.seed,
            self.record["batch"],
        )
        # Step 2. The search.
        self._fewest = HOPELESS * given.costs["updates"] if given.reached else 1.0
        search = Search(self.space.suggest, question, self._measure, self._screen)
        batches = 0
        while True:
            tried = len(search.tried)
            later_s, spent_s = self._later_s(search) / jobs, time.monotonic() - began_s
            self._share = 0.6 * min(1.0, max(tried / most, spent_s / max(budget_s - later_s, 1e-9)))
            self._words = f"{format_counted(tried, 'setting')} tried"
            if best := search.candidates[:1]:
                value = shown(best[0])[0]
                self._words += f", best: {format_objective(self.objectives[0], value)}"
            over = tried >= most or spent_s + later_s > budget_s
            if batches >= max(1, self.record["batches"]) and over:
                break
            new = search.batch()
            batches += 1
            self._keep(began_s, batches)
            if not new and batches > most:  # All settings of a small space are known.
                break
        # Step 3. The choice.
        if not search.candidates:
            raise self._no_candidate(tuple(search.tried.values()))
        self._share, self._words = 0.6, f"choosing among the best of {len(search.tried)}"
        search.resume(ROUNDS[0][0])
        tried_all = tuple(search.tried.values())
        several = len(self.objectives) > 1
        chosen = self._front(search) if several else self._chosen(search)
        # Step 4. Fresh seeds.
        self._share, self._words = 0.8, "measuring with fresh seeds"
        finalists = self._confirmed(chosen)
        self._keep(began_s, batches)
        self.record["complete"] = self.runs.complete | self.timing.complete
        decision = Decision(
            folder,
            self._sentence(finalists, tried_all),
            self.goal.applied(self.space.scenario(finalists[0].setting)),
            finalists,
            tried_all,
            self.objectives,
            self.space,
            search.importance(),
            self._bounds,
            self._binding(finalists, tried_all),
        )
        best = _given_keys(decision.scenario.resolved(), decision.scenario.source.data)
        comment = "".join(f"# {line}\n" for line in decision.sentence.split("; "))
        yaml = comment + to_yaml(relocated(best, folder.resolve()))
        files = {BEST: yaml, SETTINGS: csv_text(decision.settings)}
        DECISION.write_listed(folder, self.record, files)
        write_decision_page(decision)
        return decision

    def _keep(self, began_s: float, batches: int) -> None:
        """Write the record if there is something new: what an earlier call has found is only read."""
        complete = complete_runs(self._folder, self.record)
        complete |= self.runs.complete | self.timing.complete
        new = {"batches": max(batches, self.record["batches"]), "complete": complete}
        if not self.record.items() >= new.items():
            self.record.update(new, spent_s=time.monotonic() - began_s)
            DECISION.write(self._folder, self.record)

    def _later_s(self, search: Search) -> float:
        """Wall seconds of the runs that follow the search, one after another, if it ended now."""
        best = [each.measured.wall_s for each in search.candidates[:_CONFIRMED] if each.measured]
        wall_s = sum(best) / len(best) if best else self._given.wall_s
        runs = sum(settings * seeds for settings, seeds in ROUNDS)
        runs += self.seeds * (_CONFIRMED + 1)
        runs += max(0, ROUNDS[0][0] - len(search.candidates))
        return runs * wall_s + self.seeds * self._given.wall_s

    def _measure(self, settings: Sequence[Setting], until_s: float) -> list[Measured | str]:
        seed = self.loaded.scenario.seed
        return self._perform([(setting, seed) for setting in settings], until_s)

    def _perform(
        self, settings: Sequence[tuple[Setting, int]], until_s: float
    ) -> list[Measured | str]:
        planned: list[LoadedScenario | str] = []
        for setting, seed in settings:
            try:
                planned.append(self.goal.applied(self._until(setting, until_s, seed)))
            except UserError as error:
                planned.append(str(error))
        ready = [each for each in planned if isinstance(each, LoadedScenario)]
        if not ready:
            raise UserError(
                f"none of the settings is valid; the first: {planned[0]}", where="--over"
            )
        done = (
            run if isinstance(run, str) else self.goal.measure(run)
            for run in self.runs.perform(ready, self._report)
        )
        return [each if isinstance(each, str) else next(done) for each in planned]

    def _screen(self, settings: Sequence[Setting]) -> list[str]:
        """Why timing alone rules settings out: too few updates arrive before the end or a limit; empty for others.

        A setting whose selection follows losses is not judged.
        """
        problems = [""] * len(settings)
        if self.goal.timing_only:
            return problems
        until_s = min([self._horizon_s, *(e.most for e in self.limits if e.name == "time")])
        planned = {}
        for number, setting in enumerate(settings):
            with contextlib.suppress(UserError):
                loaded = self._until(setting, until_s, self.loaded.scenario.seed, stop__target={})
                if not loaded.scenario.server.selection.type.needs_training:
                    planned[number] = loaded
        with contextlib.suppress(UserError):  # All runs fail, as they will with training.
            runs = self.timing.perform(list(planned.values()), self._report) if planned else []
            for number, run in zip(planned, runs, strict=True):
                if not isinstance(run, str) and (
                    (count := updates_within(run, self.limits)) < self._fewest
                ):
                    problems[number] = f"{format_counted(count, 'update')} within {self._bounds}"
        return problems

    def _until(self, setting: Setting, until_s: float, seed: int, **more: Any) -> LoadedScenario:
        if until_s < (self.loaded.scenario.stop.simulated_time or math.inf):
            more["stop__simulated_time"] = until_s
        return self.space.scenario(setting, seed=seed, **more)

    def _report(self, share: float) -> None:
        self.on_progress(Progress(min(1.0, self._share), self._words))

    def _chosen(self, search: Search) -> list[Tried]:
        """The best candidates, ordered by the mean over the seed of the search and more seeds.

        The scenario as given takes part, and is measured in any case; so it is left out, under whatever name.
        """
        question, given = Question(self.objectives, self.limits), self._given
        values, over = question.values(given), question.violation(given)
        candidates = [
            each
            for each in search.candidates
            if each.values != values
            or self.space.scenario(each.setting).resolved() != self.loaded.resolved()
        ]
        if given.reached and over <= 0:
            candidates.append(Tried({}, COMPLETE, values, given, over))
            candidates.sort(key=lambda each: each.values)
        self._raced = [each.setting for each in candidates]

        def run(rows: Sequence[int], number: int, count: int) -> Floats:
            settings, seed = [self._raced[row] for row in rows], self.loaded.scenario.seed
            values = self._values(settings, seed + number, count, self._horizon_s)[1]
            return self._logs(values[:, 0])

        first = self._logs(np.array([each.values[0] for each in candidates]))
        order, self._known = raced(first, run)
        return [candidates[row] for row in order if self._raced[row]][:_CONFIRMED]

    def _logs(self, values: Floats) -> Floats:
        """Logarithms of an objective, of which less is better; a run without a throughput has almost none."""
        logs = np.log(np.maximum(np.abs(values), 1e-9))
        return -logs if self.objectives == (THROUGHPUT,) else logs

    def _front(self, search: Search) -> list[Tried]:
        values = np.array([each.values for each in search.candidates])
        rows = np.flatnonzero(pareto(values))
        spread = np.linspace(0, len(rows) - 1, min(_FRONT, len(rows))).round().astype(int)
        return [search.candidates[row] for row in rows[np.unique(spread)]]

    def _values(
        self, settings: Sequence[Setting], first: int, count: int, until_s: float = math.inf
    ) -> tuple[list[list[Measured]], Floats]:
        """What settings showed with seeds, and :meth:`Question.values`, shape (settings, objectives, seeds)."""
        pairs = list(product(settings, range(first, first + count)))
        measured: list[Measured] = []
        for result in self._perform(pairs, until_s):
            if isinstance(result, str):
                raise UserError(f"a setting failed with another seed: {result}", where="--over")
            measured.append(result)
        values = np.array(list(map(Question(self.objectives).values, measured)))
        by_setting = values.reshape(len(settings), count, -1).swapaxes(1, 2)
        rows = range(0, len(measured), count)
        return [measured[row : row + count] for row in rows], by_setting

    def _confirmed(self, chosen: Sequence[Tried]) -> tuple[Finalist, ...]:
        """The chosen settings and the scenario as given with fresh seeds.

        Of one objective, the first is :func:`preferred`, given these seeds as well, or the scenario as given if its
        values are the same. If that is not the choice, all numbers come from further seeds, the same for all, and the
        probabilities from these, too.
        """
        first = self.loaded.scenario.seed + SEEDS
        settings: list[Setting] = [*(each.setting for each in chosen), {}]
        measured, scores = self._values(settings, first, self.seeds)
        probabilities, order = np.full(len(settings), np.nan), list(range(len(settings)))
        if len(self.objectives) == 1:
            # The scenario as given may not be a candidate.
            rows = [self._raced.index(each) for each in settings if each in self._raced]
            fresh = np.full((len(self._known), self.seeds), np.nan)
            fresh[rows] = self._logs(scores[: len(rows), 0])
            values = np.hstack([self._known, fresh])
            probabilities[: len(rows)] = probability_good(values)[rows]
            best = preferred(probabilities, values[rows])
            # The change changes nothing.
            if len(rows) == len(settings) and np.array_equal(scores[best], scores[-1]):
                probabilities[-1], best = probabilities[best], len(settings) - 1
            if best:
                measured, scores = self._values(settings, first + self.seeds, self.seeds)
                order.insert(0, order.pop(best))
                further = np.full_like(fresh, np.nan)
                further[rows] = self._logs(scores[: len(rows), 0])
                probabilities[: len(rows)] = probability_good(np.hstack([values, further]))[rows]
        method = self.loaded.scenario.server.method
        given = f"as given ({method.type.title or method.name})"
        return tuple(
            Finalist(
                settings[row],
                self.space.words(settings[row]) if settings[row] else given,
                tuple(measured[row]),
                self.objectives,
                float(probabilities[row]),
            )
            for row in order
        )

    def _sentence(self, finalists: Sequence[Finalist], tried: Sequence[Tried]) -> str:
        count = format_counted(len(tried), "setting")
        target = self.goal.words()
        winner = finalists[0]
        if len(self.objectives) > 1:
            names = " and ".join(QUANTITIES[name].label for name in self.objectives)
            front = f"{len(finalists) - 1} of {count} are best in {names} to {target}"
            least = QUANTITIES[self.objectives[0]].label
            return f"{front}; least {least}: {winner.words}"
        name = self.objectives[0]
        label = "" if name in ("time", THROUGHPUT) else f", {label_of(name)[0]}"
        of = f"{target}{label} " if self.goal.target is not None else ""
        after = "after " if name == "time" else ""

        def value(each: Finalist) -> str:
            if self.goal.target is None or not each.missed:
                return f"{after}{format_objective(name, each.middle())}"
            reached = f"{len(each.runs) - each.missed} of {format_counted(len(each.runs), 'run')}"
            if math.isinf(each.middle()):
                return f"reached by {reached}"
            return (
                f"{after}a median of {format_objective(name, each.middle())} ({reached} reached it)"
            )

        _, low, high = winner.interval()
        bounds = format_interval(low, high, lambda end: format_value(end, label_of(name)[1]))
        bounds = f", 95% interval {bounds}" if math.isfinite(low) else ""
        chance = format_probability(winner.probability)
        equal = [e.words for e in finalists[1:] if format_probability(e.probability) == chance]
        also = f", equal to that of {format_names(equal)}" if equal else ""
        if rivals := better_by_chance(finalists):
            names = format_names([f"{each.words} ({value(each)})" for each in rivals])
            also += f"; with these fresh seeds alone, {names} did better, but not over all runs"
        given = [f"; {each.words}: {value(each)}" for each in finalists[1:] if not each.setting]
        return (
            f"{winner.words}: {of}{value(winner)}{bounds}; best of {count} (to within {INDIFFERENCE:.0%}) with "
            f"probability {winner.chance}{also}{''.join(given)}"
        )

    def _binding(self, finalists: Sequence[Finalist], tried: Sequence[Tried]) -> str:
        runs = [run for each in finalists for run in each.runs]
        missed = sum(not run.reached for run in runs) if self.goal.target is not None else 0
        binding = []
        if missed:
            binding.append(f"{self._ends()} ({missed} of {len(runs)} fresh runs ended there)")
        for limit in self.limits:
            settings = sum(limit.excludes(each.measured) for each in tried if each.measured)
            fresh = sum(map(limit.excludes, runs))
            if settings or fresh:
                count = format_counted(settings, "setting")
                binding.append(
                    f"{limit} (exceeded by {count} and {fresh} of {len(runs)} fresh runs)"
                )
        every = " or ".join(filter(None, [self._ends(), *map(str, self.limits)]))
        if binding:
            return f"limits that bind: {', '.join(binding)}"
        return f"no limit binds: {every}" if every else ""

    def _ends(self) -> str:
        stop, target = self.loaded.scenario.stop, self.goal.target
        kinds: dict[str, Kind] = {"simulated_time": "time"}
        kinds |= dict.fromkeys(("rounds", "dispatches", "arrivals"), "count")
        return " or ".join(
            f"{name.replace('_', ' ')} {format_value(most, kind)}"
            for name, kind in kinds.items()
            if (most := getattr(stop, name)) and (target is None or target.metric != name)
        )

    def _no_candidate(self, tried: Sequence[Tried]) -> UserError:
        known = [(each, each.measured) for each in tried if each.measured is not None]
        folder, count = str(self._folder), format_counted(len(tried), "setting")
        if not known:
            what = f"all of {count} failed or were ruled out by timing"
            return UserError(f"{what}; the first: {tried[0].problem}", where=folder)
        if any(measured.reached for _, measured in known):
            closest, measured = min(known, key=lambda row: (not row[1].reached, row[0].violation))
            limit = max(self.limits, key=lambda each: measured.costs[each.name] / each.most)
            needed = format_value(measured.costs[limit.name], QUANTITIES[limit.name].kind)
            what, hint = f"within the limit {limit}", f"relax --limit {limit.name}"
            more = f", which needs {needed}"
        else:
            closest, _ = min(known, key=lambda row: row[1].shortfall)
            what, more = f"within {self._within}", ""
            hint = f"let runs last longer (stop: {self._ends()})"
            hint += ", or choose an easier target" if self.goal.target is not None else _STEADY
            if self._given.reached:
                hint = "keep the scenario as given, or vary more"
        fact = f"none of {count} reached {self.goal.words()} {what}"
        words = self.space.words(closest.setting)
        return UserError(f"{fact}; the closest: {words}{more}", where=folder, hint=hint)


def _given_keys(resolved: Any, given: Any) -> Any:
    """The resolved values of the keys that were given."""
    if isinstance(resolved, dict) and isinstance(given, dict):
        return {
            key: _given_keys(resolved[key], item) for key, item in given.items() if key in resolved
        }
    return resolved
