"""What runs are judged by: the time to a target and what it costs, or the throughput."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.targets import THROUGHPUT, Target, metric_text, parse_metric
from fedsim.analysis.steady import throughput
from fedsim.composition.build import unknown_metrics
from fedsim.errors import UserError, argument_error, nearest_or_all, raise_all, unknown
from fedsim.runs.run import Run
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.overrides import Override
from fedsim.units import parse_duration_s, parse_quantity, parse_size_bytes
from fedsim.vocabulary.formatting import Kind, format_counted, format_value
from fedsim.vocabulary.metrics import MetricDefinition, definition

COUNTS = {"rounds": "round", "arrivals": "arrived update"}
"""Targets that need no training: limits of ``stop``, in words."""
_ENERGY = {"J": 1.0, "kJ": 1e3, "MJ": 1e6, "GJ": 1e9, "Wh": 3.6e3, "kWh": 3.6e6}


@dataclass(frozen=True)
class Quantity:
    """A cost of reaching a target.

    Attributes:
        label, kind, parse: its words, and how it is written and read.
        each: its value for each dispatch of a run; None for the time.
        total: the entry of ``run.json`` with its value for the run; the sum over the dispatches if empty.
    """

    label: str
    kind: Kind
    parse: Callable[[str], float]
    each: Callable[[Run], pd.Series[Any]] | None
    total: str = ""

    def of(self, run: Run) -> float:
        """Its value for a run; not a number if the scenario does not give it."""
        if self.each is None or self.total:
            return float(run.info.get(self.total, math.nan))
        return float(self.each(run).sum())


def _number(text: str) -> float:
    return parse_quantity(text, {"": 1.0}, "number", "the scenario's unit")


QUANTITIES: Mapping[str, Quantity] = {
    "time": Quantity("simulated time", "time", parse_duration_s, None, "simulated_s"),
    "bytes": Quantity(
        "data moved",
        "bytes",
        parse_size_bytes,
        lambda run: run.dispatches["bytes_down"] + run.dispatches["bytes_up"],
    ),
    "energy": Quantity(
        "energy of the devices",
        "energy",
        lambda text: parse_quantity(text, _ENERGY, "quantity of energy", "joules"),
        lambda run: run.dispatches["energy_j"],
    ),
    "compute": Quantity(
        "client compute time", "time", parse_duration_s, lambda run: run.phases["compute_s"]
    ),
    "updates": Quantity(
        "client updates", "count", _number, lambda run: run.dispatches["arrived_s"].notna()
    ),
    "gco2e": Quantity(
        "emissions in g CO2e", "number", _number, lambda run: run.dispatches["gco2e"], "gco2e"
    ),
    "cost": Quantity("cost", "number", _number, lambda run: run.dispatches["cost"], "cost"),
}
"""What may be limited or minimized."""


def _quantity(name: str, where: str) -> Quantity:
    if name not in QUANTITIES:
        raise unknown("quantity", name, QUANTITIES, where)
    return QUANTITIES[name]


def parse_objectives(names: Sequence[str]) -> tuple[str, ...]:
    """The names of quantities to minimize, checked."""
    for name in names:
        _quantity(name, f"--objective {','.join(names)}")
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Limit:
    """The largest acceptable value of a quantity."""

    name: str
    most: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read ``bytes=2GB``."""
        name, _, value = text.partition("=")
        kind = _quantity(name, f"--limit {text}")
        try:
            most = kind.parse(value)
        except ValueError as error:
            raise UserError(str(error), where=f"--limit {text}") from None
        if not most:
            raise UserError("must be more than 0", where=f"--limit {text}")
        return cls(name, most)

    def excludes(self, measured: Measured) -> bool:
        """Whether a run reached the target and exceeds the limit."""
        return measured.reached and measured.costs[self.name] > self.most

    def __str__(self) -> str:
        written = QUANTITIES[self.name]
        return f"{written.label} at most {format_value(self.most, written.kind)}"


@dataclass(frozen=True)
class Measured:
    """What one run showed.

    Attributes:
        costs: the :data:`QUANTITIES`, of a run that reached the target until then.
        reached: whether it reached the target.
        shortfall: the share of the way to the target that is missing, 0 to 1; 0 if it was reached.
        rate: client updates per hour in the steady state; NaN for a goal with a target.
        wall_s: wall seconds of the run.
        notes: the warnings of the run.
    """

    costs: Mapping[str, float]
    reached: bool
    shortfall: float
    rate: float = math.nan
    wall_s: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Goal:
    """What is wanted of a run.

    Attributes:
        target: what to reach, by a metric or one of :data:`COUNTS`; None for the largest throughput.
    """

    target: Target | None

    def __post_init__(self) -> None:
        if self.target is not None and self.timing_only:
            value = self.target.value
            if not (value.is_integer() and 1 <= value <= 2**53):
                raise argument_error("target", value, "a whole number from 1 to 2^53")

    @classmethod
    def parse(cls, metric: str) -> Goal:
        """Read ``time_to:accuracy=0.8``, ``time_to:rounds=50`` or ``throughput``."""
        hint = "for example --metric time_to:accuracy=0.8, time_to:rounds=50 or throughput"
        return cls(parse_metric(metric, f"--metric {metric}", hint))

    @property
    def timing_only(self) -> bool:
        """Whether runs need no training."""
        return self.target is None or self.target.metric in COUNTS

    def applied(self, loaded: LoadedScenario) -> LoadedScenario:
        """The scenario whose runs end when they reach the target, if they do."""
        stop: dict[str, Any] = {"target": {}}
        if self.target is not None and self.timing_only:
            stop[self.target.metric] = int(self.target.value)
        elif self.target is not None:
            if not loaded.scenario.task.type.learns:
                message = f"this task only simulates time, so it measures no '{self.target.metric}'"
                names = ", ".join(f"{name}=50" for name in COUNTS)
                hint = nearest_or_all(self.target.metric, COUNTS, f"choose one of {names}")
                raise UserError(message, where="the target", hint=hint)
            raise_all(unknown_metrics([self.target.metric], loaded.scenario, "the target", COUNTS))
            stop["target"] = {self.target.metric: self.target.value}
        return loaded.changed(
            [Override(f"stop.{key}", value, "the target") for key, value in stop.items()]
        )

    def measure(self, run: Run) -> Measured:
        """What a run of an :meth:`applied` scenario showed."""
        costs = {name: each.of(run) for name, each in QUANTITIES.items()}
        rate = math.nan
        if self.target is None:
            steady = throughput(run)
            rate = steady.per_h if steady else 0.0
            shortfall = float(not rate)
        elif self.timing_only:
            done = int(run.entry("rounds") if self.target.metric == "rounds" else costs["updates"])
            shortfall = max(0.0, 1 - done / self.target.value)
        else:
            time_s, shortfall = run.time_to(self.target.metric, self.target.value), 0.0
            if not math.isnan(time_s):
                costs["time"] = time_s
            elif len(values := run.metrics[self.target.metric].dropna()):
                way = abs(self.target.value - float(values.iloc[0]))
                best = float(run.metric_definition(self.target.metric).best(values))
                shortfall = min(1.0, abs(self.target.value - best) / way) if way else 1.0
            else:
                shortfall = 1.0
        wall_s, notes = float(run.info.get("wall_s") or 0.0), tuple(run.info.get("notes", ()))
        return Measured(costs, not shortfall, shortfall, rate, wall_s, notes)

    def words(self, definitions: Mapping[str, MetricDefinition] | None = None) -> str:
        """The target in a sentence, such as ``80% accuracy`` or ``50 rounds``, with those of the user's metrics."""
        if self.target is None:
            return THROUGHPUT
        if self.timing_only:
            return format_counted(int(self.target.value), COUNTS[self.target.metric])
        return definition(self.target.metric, definitions or {}).format_target(self.target.value)

    def __str__(self) -> str:
        return metric_text(self.target)


def updates_within(run: Run, limits: Sequence[Limit]) -> int:
    """Client updates that arrived before a run exceeded one of the limits."""
    order = np.argsort(run.dispatches["ended_s"].to_numpy(), kind="stable")
    within = np.ones(len(order), bool)
    for limit in limits:
        if (each := QUANTITIES[limit.name].each) is not None:
            within &= np.cumsum(each(run).to_numpy(float)[order]) <= limit.most
    return int(run.dispatches["arrived_s"].notna().to_numpy()[order][within].sum())
