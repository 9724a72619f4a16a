"""Cross-validation: fit on the first fifth of the rounds, predict the rest, and count how often the bands hold."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from fedsim.calibration.estimates import Estimates, horizon_s, to_bundle
from fedsim.calibration.log import IN_TIME, INSTANTS, WORK, round_durations_s
from fedsim.composition.build import build
from fedsim.composition.planes import build_server
from fedsim.scenario.loading import LoadedScenario
from fedsim.simulation.updates import Ended, dispatch_columns
from fedsim.vocabulary.arrays import Floats
from fedsim.vocabulary.outcomes import Outcome

BAND = 0.9
REPLICATES = 40
_FIT = 0.2
_UNLIKELY = 0.05
_TELLING = 10
"""Number of rounds below which agreement says little."""


@dataclass(frozen=True)
class Prediction:
    """Predicted and logged values of one quantity, one row per round or one in all.

    Attributes:
        name: the quantity.
        logged: the log's values.
        low, middle, high: the 5%, 50% and 95% quantiles of the predictions.
    """

    name: str
    logged: list[float]
    low: list[float]
    middle: list[float]
    high: list[float]

    @property
    def inside(self) -> int:
        """Number of the logged values that lie within their band."""
        return sum(
            low - _close(low) <= value <= high + _close(high)
            for value, low, high in zip(self.logged, self.low, self.high, strict=True)
        )

    @property
    def coverage(self) -> float:
        """Share of the logged values that lie within their band."""
        return self.inside / len(self.logged) if self.logged else math.nan


@dataclass(frozen=True)
class Lateness:
    """Whether the dispatches of the rounds after the fit were predicted to be late, one entry per dispatch.

    Attributes:
        probability: the share of simulations in which it is late, among those in which it arrives.
        late: whether it was late in the log.
    """

    probability: Floats
    late: npt.NDArray[np.bool_]

    @property
    def right(self) -> float:
        """Share of the dispatches whose likelier outcome is that of the log."""
        return float(((self.probability > 0.5) == self.late).mean())

    @property
    def commonest(self) -> float:
        """Share that would be right if the log's commoner outcome were predicted for all."""
        share = float(self.late.mean())
        return max(share, 1 - share)

    @property
    def brier(self) -> float:
        """Mean squared difference of the probabilities and the outcomes (Brier, 1950)."""
        return float(((self.probability - self.late) ** 2).mean())

    @property
    def skill(self) -> float:
        """Brier skill score: 1 if all outcomes are known, 0 if no better than the log's share of late ones for all."""
        share = float(self.late.mean())
        return 1 - self.brier / (share * (1 - share)) if 0 < share < 1 else math.nan


def verdict(predictions: list[Prediction]) -> str:
    """Whether the bands can be trusted, in one sentence without a period; if not, in which direction they are wrong.

    The bands are too narrow if bands that hold 90% would contain so few values with a probability below 5% (binomial);
    their middle is biased if so many values would lie on one side of the right one with such a probability (sign test).
    """
    if not predictions:
        return "Not tested: no rounds of the log were predicted"
    rounds = predictions[0]
    values, inside = len(rounds.logged), rounds.inside
    fact = f"{inside} of {values} later rounds fell into the 90% band"
    if stats.binom.cdf(inside, values, BAND) < _UNLIKELY:
        return f"Too confident: {fact}"
    few = ", too few to tell more" if values < _TELLING else ""
    off = np.subtract(rounds.logged, rounds.middle)
    above, below = (int((side > 1e-9 * np.abs(rounds.middle)).sum()) for side in (off, -off))
    most, wrong, where = max((above, "short", "above"), (below, "long", "below"))
    if 2 * stats.binom.sf(most - 1, above + below, 0.5) < _UNLIKELY:
        half = f"{most} of {values} lay {where} the middle of their 90% band"
        return f"Rounds predicted too {wrong}: {half} ({inside} within it){few}"
    return f"In agreement with the log: {fact}{few}"


def _close(value: float) -> float:
    return 1e-9 * max(abs(value), 1.0)


def simulated_log(loaded: LoadedScenario) -> pd.DataFrame:
    """The dispatches of a simulation, as a log with the numbers of the clients."""
    ended: list[Ended] = []
    recorder: Any = SimpleNamespace(
        append_dispatch=ended.append, append_aggregation=lambda aggregate: None
    )
    world = build(loaded, timing_only=True)
    build_server(world, None, recorder).run()
    table = pd.DataFrame(dispatch_columns(world.population.power, ended))
    log = table.rename(
        columns={
            "client_id": "client",
            "dispatched_s": "start_s",
            "arrived_s": "end_s",
            "steps_done": "steps",
        }
    )
    numbers = ("client", *INSTANTS, "steps", "bytes_down", "bytes_up", "round")
    log = log[[*numbers]].assign(outcome=[Outcome(value).label for value in table["outcome"]])
    for name, (_, end) in WORK.items():
        log[name] = table[name].where(log[end].notna())
    return log.sort_values(["start_s", "client"], kind="stable").reset_index(drop=True)


def fitting_rounds(log: pd.DataFrame) -> int:
    """Number of first rounds that the cross-validation is fitted to; 0 if the log has too few."""
    rounds = log["round"].dropna().nunique()
    return math.ceil(rounds * _FIT) if rounds >= 5 else 0


def predict(
    log: pd.DataFrame,
    fitted: Estimates,
    scenario_of: Callable[[Path, Estimates, int], LoadedScenario],
) -> tuple[list[Prediction], Lateness | None, float]:
    """Predict the rounds after the fit, with the log's clients in each, and compare.

    Args:
        log: the whole log, with the numbers of the clients.
        fitted: the estimates from its first rounds.
        scenario_of: the scenario on a bundle of estimates, drawn within their errors, with a seed; its selection
            repeats the log's.

    Returns:
        The predictions of the quantities, and of lateness; without late clients if none is late in the log and in the
        simulations. And the share of the log's dispatches that the simulations lack, because the clients are still
        busy or offline in them; 0 if the simulations have more.
    """
    first = sorted(log["round"].dropna().unique())[fitting_rounds(log)]
    generator = np.random.default_rng(0)
    runs = []
    for seed in range(REPLICATES):
        estimates = fitted.perturbed(generator)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bundle"
            to_bundle(estimates, "replicate", "cross-validation", horizon_s(log)).write(path)
            runs.append(simulated_log(scenario_of(path, estimates, seed)))
    quantities: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
        "duration of a round (s)": lambda each: round_durations_s(each).loc[first:],
        "total time (s)": lambda each: pd.Series(
            [round_durations_s(each).loc[first:].sum(min_count=1)]
        ),
    }
    if log["outcome"].notna().any() and any(_is_late(each).any() for each in (log, *runs)):
        quantities["late clients per round"] = lambda each: (
            _is_late(each).groupby(each["round"]).sum().iloc[:-1].loc[first:]
        )
    result = []
    for name, quantity in quantities.items():
        logged = quantity(log)
        drawn = pd.concat([quantity(run).reindex(logged.index) for run in runs], axis=1)
        # A round that no simulation has cannot be compared.
        drawn = drawn.dropna(how="all")
        if drawn.empty:
            continue
        logged, table = logged[drawn.index], drawn.to_numpy(float).T
        # The next value of a sample of n lies below its k-th smallest with probability k / (n + 1).
        low, middle, high = np.nanquantile(
            table, [(1 - BAND) / 2, 0.5, (1 + BAND) / 2], axis=0, method="weibull"
        )
        bands = (each.tolist() for each in (low, middle, high))
        result.append(Prediction(name, logged.astype(float).tolist(), *bands))
    dispatches = np.mean([(run["round"] >= first).sum() for run in runs])
    missing = max(1 - float(dispatches) / int((log["round"] >= first).sum()), 0.0)
    return result, _lateness(log, runs, first), missing


def _lateness(log: pd.DataFrame, runs: list[pd.DataFrame], first: float) -> Lateness | None:
    """Lateness of the dispatches that arrive in the log and in most of the simulations; None if none is late."""
    logged = _outcomes(log)
    logged = logged[logged.index.get_level_values("round") >= first]
    drawn = pd.concat([_outcomes(run) for run in runs], axis=1).reindex(logged.index)
    drawn = drawn[drawn.notna().sum(axis=1) > len(runs) / 2]
    late = logged.loc[drawn.index].to_numpy(bool)
    if not late.any() and not (drawn == 1).to_numpy().any():
        return None
    return Lateness(drawn.mean(axis=1).to_numpy(float), late)


def _outcomes(log: pd.DataFrame) -> pd.Series:
    arrived = log[(_is_late(log) | log["outcome"].isin(IN_TIME)) & log["round"].notna()]
    return _is_late(arrived).astype(float).groupby([arrived["round"], arrived["client"]]).max()


def _is_late(log: pd.DataFrame) -> pd.Series:
    return log["outcome"] == Outcome.LATE.label
