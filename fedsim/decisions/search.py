"""The search among settings: Optuna suggests and prunes, the caller measures.

Settings are suggested by TPE (Watanabe, Tree-structured Parzen estimator: understanding its algorithm components and
their roles for better empirical performance, 2023), in batches. For the time to a target, successive halving (Li et
al., A system for massively parallel hyperparameter tuning, MLSys 2020) stops settings early: each runs for a ninth and
then a third of the time that the scenario as given takes, and only the third of them that is closest to the target goes
on. A run also ends when it takes :data:`SLACK` times as long as the best (adaptive capping; Hutter et al., ParamILS,
JAIR 36, 2009).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedsim.decisions.goal import Limit, Measured
from fedsim.decisions.space import Setting
from fedsim.parts.extras import required
from fedsim.scenario.comparing import text
from fedsim.scenario.own_code import as_data

BATCH = 8
"""Settings that are suggested together, if there are not more workers."""
SLACK = 1.25
_RESUMED = 3.0
"""How many times as long as the best a setting may run that was stopped and goes on (:meth:`Search.resume`)."""
_HALVING = 3
_RUNGS = 2
_FEWEST_EVALUATIONS = 3
"""Evaluations that a run must have had before it is judged."""
_MOST_EXTRAPOLATED = 20.0
_FEWEST_IMPORTANT = 10
"""Settings per key that must have been run to the end for the importance of keys."""

COMPLETE, STOPPED, FAILED = "complete", "stopped early", "failed"
RULED_OUT = "ruled out by timing"
Problem = str
"""Why a setting could not be run."""


Measure = Callable[[Sequence[Setting], float], "list[Measured | Problem]"]
"""Runs settings until a simulated time in seconds; what each showed, or its problem."""


@dataclass(frozen=True)
class Tried:
    """A setting that was tried.

    Attributes:
        setting: its values.
        state: whether it was run to the end, was stopped early, was ruled out by its timing alone, or failed.
        values: its objectives, to be minimized; infinite if they are unknown.
        measured: what its longest run showed; None if it failed or was ruled out.
        violation: the largest share by which it exceeds a limit; 0 or less if it meets all.
        problem: why it failed or was ruled out.
    """

    setting: Setting
    state: str
    values: tuple[float, ...]
    measured: Measured | None
    violation: float = 0.0
    problem: Problem = ""

    @property
    def is_candidate(self) -> bool:
        """Whether it reached the target within the limits."""
        return bool(self.measured and self.measured.reached and self.violation <= 0)


@dataclass(frozen=True)
class Question:
    """What is searched.

    Attributes:
        objectives: names of the quantities to minimize; ``throughput``, which is maximized, stands alone.
        limits: largest acceptable values of quantities.
        reference_s: time that the scenario as given takes to the target; that of a run if it misses it.
        horizon_s: simulated time at which every run ends.
        evaluated_s: simulated time between evaluations; 0 if it is not fixed.
        seed: seed of the suggestions.
        batch: settings that are suggested together.
    """

    objectives: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    reference_s: float = math.inf
    horizon_s: float = math.inf
    evaluated_s: float = 0.0
    seed: int = 0
    batch: int = BATCH

    @property
    def halves(self) -> bool:
        """Whether settings are stopped early."""
        return self.objectives == ("time",)

    def values(self, measured: Measured) -> tuple[float, ...]:
        """The objectives of a run; those of one that missed the target are worse, by how much it missed it."""
        if self.objectives == ("throughput",):
            return (-measured.rate,)
        missed = 1.0 if measured.reached else 1 + measured.shortfall
        reached = max(1 - measured.shortfall, 1 / _MOST_EXTRAPOLATED)
        return tuple(
            measured.costs[name] * (missed if name == "time" else 1 / reached)
            for name in self.objectives
        )

    def violation(self, measured: Measured) -> float:
        """The largest share by which a run exceeds a limit; 0 or less if it meets all."""
        return max((measured.costs[each.name] / each.most - 1 for each in self.limits), default=0.0)


class Search:
    """A search in batches; the same question and measurements give the same settings.

    Args:
        suggest: the setting of a trial of Optuna.
        question: what is searched.
        measure: runs settings.
        screen: why settings need not be run, empty for those that do; all are run if None.
    """

    def __init__(
        self,
        suggest: Callable[[Any], dict[str, Any]],
        question: Question,
        measure: Measure,
        screen: Callable[[Sequence[Setting]], list[Problem]] | None = None,
    ) -> None:
        optuna = required("optuna", "decide", "fedsim decide")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._states = optuna.trial.TrialState
        several = len(question.objectives) > 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # Groups: not every setting has every key.
            sampler = optuna.samplers.TPESampler(
                seed=question.seed, multivariate=not several, group=not several
            )
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=_HALVING)
        self.study = optuna.create_study(
            directions=["minimize"] * len(question.objectives), sampler=sampler, pruner=pruner
        )
        self.tried: dict[str, Tried] = {}
        self._reported: set[int] = set()
        self._suggest, self._question, self._measure = suggest, question, measure
        self._screen = screen

    def batch(self) -> list[Tried]:
        """Try the next settings; those that were not tried before."""
        trials = [self.study.ask() for _ in range(self._question.batch)]
        keys, fresh = [], dict[str, tuple[Any, Setting]]()
        for trial in trials:
            setting = self._suggest(trial)
            keys.append(text(as_data(setting)))
            if keys[-1] not in self.tried:
                fresh[keys[-1]] = trial, setting
        self._try(fresh)
        for key, trial in zip(keys, trials, strict=True):
            self._tell(trial, self.tried[key])
        return [self.tried[key] for key in fresh]

    def resume(self, count: int) -> None:
        """If there are fewer than ``count`` candidates, run the closest of those that were stopped for longer.

        The closest are those that would take the least time if they went on as until they were stopped. Without them, a
        choice among a few that were lucky with one seed looks more certain than it is.
        """
        stopped = {
            key: each.measured.costs["time"] / max(1 - each.measured.shortfall, 1e-9)
            for key, each in self.tried.items()
            if each.state == STOPPED and each.measured and each.violation <= 0
        }
        best = self.candidates[:count]
        closest = sorted(stopped, key=lambda key: stopped[key])[: count - len(best)]
        if best and closest:
            until_s = min(self._question.horizon_s, _RESUMED * best[0].values[0])
            settings = [self.tried[key].setting for key in closest]
            for key, result in zip(closest, self._measure(settings, until_s), strict=True):
                self.tried[key] = self._ended(self.tried[key].setting, result, until_s)

    @property
    def candidates(self) -> list[Tried]:
        """The settings that reached the target within the limits, those with the best first objective first."""
        known = [tried for tried in self.tried.values() if tried.is_candidate]
        return sorted(known, key=lambda tried: tried.values)

    def importance(self) -> dict[str, float]:
        """The share of the variation of the first objective that each key explains; empty if it is unknown."""
        from optuna.importance import FanovaImportanceEvaluator, get_param_importances

        known = self.study.get_trials(deepcopy=False, states=[self._states.COMPLETE])
        keys = max((len(each.params) for each in known), default=1)
        if len(known) < keys * _FEWEST_IMPORTANT or len({each.values[0] for each in known}) < 2:
            return {}
        found = get_param_importances(
            self.study,
            evaluator=FanovaImportanceEvaluator(seed=0),
            target=lambda each: math.log(abs(each.values[0]) or 1.0),
        )
        return {path: share for path, share in found.items() if not math.isnan(share)}

    def _try(self, fresh: dict[str, tuple[Any, Setting]]) -> None:
        """Run settings for longer and longer, and stop those that fall behind."""
        question, alive = self._question, dict(fresh)
        settings = [setting for _, setting in fresh.values()]
        problems = self._screen(settings) if self._screen else [""] * len(settings)
        for (key, (_, setting)), problem in zip(fresh.items(), problems, strict=True):
            if problem:
                values = (math.inf,) * len(question.objectives)
                self.tried[key] = Tried(setting, RULED_OUT, values, None, 1.0, problem)
                del alive[key]
        if not alive:
            return
        cap_s = question.horizon_s
        if question.halves and (best := self.candidates[:1]):
            cap_s = min(cap_s, SLACK * best[0].values[0])
        for rung in range(_RUNGS, -1, -1) if question.halves else [0]:
            until_s = question.reference_s / _HALVING**rung if rung else cap_s
            is_early = until_s < _FEWEST_EVALUATIONS * question.evaluated_s
            if rung and (is_early or until_s * SLACK > cap_s):
                continue
            results = self._measure([setting for _, setting in alive.values()], until_s)
            shown = dict(zip(alive, results, strict=True))
            behind = self._behind(alive, shown, _HALVING ** (_RUNGS - rung)) if rung else set()
            for key, result in shown.items():
                setting = alive[key][1]
                if not isinstance(result, str) and key in behind:
                    self.tried[key] = Tried(setting, STOPPED, (math.inf,), result)
                elif isinstance(result, str) or result.reached or not rung:
                    self.tried[key] = self._ended(setting, result, until_s)
                else:
                    continue
                del alive[key]
            if not alive:
                return

    def _ended(self, setting: Setting, result: Measured | Problem, until_s: float) -> Tried:
        if isinstance(result, str):
            values = (math.inf,) * len(self._question.objectives)
            return Tried(setting, FAILED, values, None, math.inf, result)
        is_over = result.reached or until_s >= self._question.horizon_s
        values, violation = self._question.values(result), self._question.violation(result)
        return Tried(setting, COMPLETE if is_over else STOPPED, values, result, violation)

    def _behind(
        self,
        alive: dict[str, tuple[Any, Setting]],
        shown: dict[str, Measured | Problem],
        step: int,
    ) -> set[str]:
        """The settings that Optuna prunes; a setting that has reached the target is ahead of all that have not."""
        shortfalls = {
            key: -1 / result.costs["time"] if result.reached else result.shortfall
            for key, result in shown.items()
            if not isinstance(result, str)
        }
        behind = set()
        # The best of a batch comes first, so that those after it are compared with it.
        for key in sorted(shortfalls, key=lambda key: shortfalls[key]):
            trial = alive[key][0]
            trial.report(shortfalls[key], step)
            self._reported.add(trial.number)
            if trial.should_prune() and shortfalls[key] > 0:
                behind.add(key)
        return behind

    def _tell(self, trial: Any, tried: Tried) -> None:
        measured, several = tried.measured, len(tried.values) > 1
        if tried.state == FAILED or (several and measured is None):
            self.study.tell(trial, state=self._states.FAIL)
            return
        shortfall = 1.0 if measured is None else measured.shortfall
        if self._question.limits or several:
            missed = 0.0 if measured and measured.reached else shortfall
            trial.set_constraint("limits", max(tried.violation, missed))
        if math.isinf(tried.values[0]):
            if trial.number not in self._reported:  # A setting that is suggested again.
                trial.report(shortfall, 1)
            self.study.tell(trial, state=self._states.PRUNED)
        else:
            self.study.tell(trial, list(tried.values))
