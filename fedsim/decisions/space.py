"""The settings among which to decide: values for dotted keys, some of which only some settings have."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from fedsim.composition.build import check_scenario
from fedsim.composition.shared import Shared
from fedsim.errors import UserError, UserErrors, raise_all
from fedsim.files.delimited import repeated
from fedsim.parts.parameters import UNKNOWN_KEY
from fedsim.scenario.comparing import short_names, text
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.overrides import Override
from fedsim.scenario.own_code import as_data
from fedsim.scenario.parts import Part
from fedsim.scenario.source import parse_yaml
from fedsim.sweeps.execution import CHECK_S
from fedsim.units import DURATION_UNITS, RATE_UNITS, SIZE_UNITS, parse_quantity

if TYPE_CHECKING:
    from optuna import Trial

Setting = Mapping[str, Any]
"""Values by dotted path, as in YAML; without the keys that the setting's parts do not have."""

_NUMBER = r"\s*([+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*"
_RANGE = re.compile(rf"{_NUMBER}\.\.{_NUMBER}")
_LOG_FROM = 8.0
"""Ratio of the ends of a range from which it is searched on a logarithmic scale."""
_METHOD, _SCHEDULE = "server.method", "server.schedule"


@dataclass(frozen=True)
class Choices:
    """One of several values."""

    path: str
    values: Sequence[Any]

    @property
    def tries(self) -> Sequence[Any]:
        """Values that must be valid."""
        return self.values

    def suggest(self, trial: Trial) -> Any:
        """A value of the search."""
        return self.values[trial.suggest_categorical(self.path, range(len(self.values)))]

    def position(self, value: Any) -> float:
        """Where a value is on an axis."""
        return float([text(as_data(each)) for each in self.values].index(text(as_data(value))))


@dataclass(frozen=True)
class Range:
    """Numbers between two ends, rounded to two significant digits unless they are whole.

    Attributes:
        low, high: the ends, in the base unit.
        units: how many base units each unit has; empty for plain numbers.
        whole: whether the numbers are whole.
    """

    path: str
    low: float
    high: float
    units: Mapping[str, float] = field(default_factory=dict)
    whole: bool = False

    @property
    def tries(self) -> Sequence[Any]:
        """Values that must be valid."""
        return [self.written(self.low), self.written(self.high)]

    @property
    def log(self) -> bool:
        """Whether ratios matter, not differences."""
        return self.low > 0 and self.high / self.low >= _LOG_FROM

    def suggest(self, trial: Trial) -> Any:
        """A value of the search."""
        if self.whole:
            return trial.suggest_int(self.path, int(self.low), int(self.high), log=self.log)
        return self.written(trial.suggest_float(self.path, self.low, self.high, log=self.log))

    def written(self, number: float) -> Any:
        """A number as in YAML: ``6.2min``, in the largest unit of which it has at least one."""
        if self.whole:
            return int(number)
        units = sorted(self.units.items(), key=lambda unit: -unit[1]) or [("", 1.0)]
        unit, size = next((each for each in units if number >= each[1]), units[-1])
        digits = float(f"{number / size:.2g}")
        return f"{digits:g}{unit}" if unit else digits

    def position(self, value: Any) -> float:
        """Where a value is on an axis, in base units."""
        return parse_quantity(value, dict(self.units), "value", "") if self.units else float(value)


Dimension = Choices | Range


def parse_dimension(given: str) -> Dimension:
    """Read ``server.schedule.deadline=1min..1h`` or ``server.method=fedavg,fedbuff``."""
    where = f"--over {given}"
    path, equals, values = (word.strip() for word in given.partition("="))
    hint = "for example server.schedule.deadline=1min..1h, or server.method=fedavg,fedbuff"
    if not equals or not all(path.split(".")) or not values:
        raise UserError("write a dotted path, '=' and a range or a list", where=where, hint=hint)
    ends = _RANGE.fullmatch(values)
    if ends is None:
        listed = parse_yaml(f"[{values}]", where).data
        distinct = list({text(value): value for value in listed}.values())
        if len(distinct) < 2:
            raise UserError("there is nothing to choose from", where=where, hint=hint)
        return Choices(path, distinct)
    low, low_unit, high, high_unit = ends.groups()
    both, known = {high_unit, low_unit or high_unit}, (DURATION_UNITS, SIZE_UNITS, RATE_UNITS)
    units: Mapping[str, float] = next((units for units in known if both <= units.keys()), {})
    if (low_unit or high_unit) and not units:
        raise UserError(f"the units of {values} do not agree", where=where, hint=hint)
    factors = [units.get(unit or high_unit, 1.0) for unit in (low_unit, high_unit)]
    if units is SIZE_UNITS:
        units = {unit: size for unit, size in units.items() if "i" not in unit and unit != "KB"}
    numbers = [float(number) * factor for number, factor in zip((low, high), factors, strict=True)]
    if not numbers[0] < numbers[1] < math.inf:
        message = "the second end must be above the first, and finite"
        raise UserError(message, where=where, hint=hint)
    whole = not units and all(re.fullmatch(r"\d+", number) for number in (low, high))
    return Range(path, numbers[0], numbers[1], units, whole)


class Space:
    """The settings of a scenario.

    A method that is varied brings its own schedule, unless the schedule is varied, too. A key that the parts of a
    setting do not have, such as the deadline of an asynchronous schedule, is left out of the setting.
    """

    def __init__(self, loaded: LoadedScenario, dimensions: Sequence[Dimension]) -> None:
        self.loaded = loaded
        # Parts come before their parameters.
        self.dimensions = sorted(dimensions, key=lambda dimension: dimension.path.count("."))
        paths = [dimension.path for dimension in self.dimensions]
        if twice := repeated(paths):
            raise UserError(
                "the key is given twice",
                where=f"--over {twice}",
                hint="give all its values at once",
            )
        self.names = short_names(paths)
        self._brings_schedule = _METHOD in paths and _SCHEDULE not in paths
        self._known: dict[str, UserError | None] = {}
        for number, dimension in enumerate(self.dimensions):
            parents: list[Setting] = [{}]
            for choices in self.dimensions[:number]:
                if isinstance(choices, Choices):
                    parents += [{choices.path: value} for value in choices.values]
            problems = [self._problem(parent, dimension) for parent in parents]
            if None not in problems:
                assert problems[0] is not None
                raise problems[0]
            for value in dimension.tries:
                self.scenario({**parents[problems.index(None)], dimension.path: value})

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """The setting of a trial."""
        dimensions = {each.path: each for each in self.dimensions}
        return self._setting(lambda path: dimensions[path].suggest(trial))

    def check(self, *, timing_only: bool) -> None:
        """Check before the first run that the parts of each value fit those of some setting with it."""
        until, shared = math.inf, Shared()
        fits, problems = set[tuple[str, str]](), dict[tuple[str, str], UserError]()
        for values in product(*(dimension.tries for dimension in self.dimensions)):
            if time.monotonic() > until:
                return
            by_path = {
                each.path: value for each, value in zip(self.dimensions, values, strict=True)
            }
            setting = self._setting(by_path.__getitem__)
            pairs = [(path, text(as_data(value))) for path, value in setting.items()]
            if fits.issuperset(pairs):
                continue
            try:
                check_scenario(self.scenario(setting), shared, timing_only=timing_only)
                fits.update(pairs)
            except UserError as error:
                problems = dict.fromkeys(pairs, error) | problems
            until = min(until, time.monotonic() + CHECK_S)  # The first check also loads the data.
        raise_all(
            {str(error): error for pair, error in problems.items() if pair not in fits}.values()
        )

    def _setting(self, choose: Callable[[str], Any]) -> dict[str, Any]:
        setting: dict[str, Any] = {}
        for dimension in self.dimensions:
            # Whether a key exists depends on the parts alone.
            parts = {
                each.path: setting[each.path]
                for each in self.dimensions
                if isinstance(each, Choices) and each.path in setting
            }
            if self._problem(parts, dimension) is None:
                setting[dimension.path] = choose(dimension.path)
        return setting

    def scenario(self, setting: Setting, **more: Any) -> LoadedScenario:
        """The scenario with a setting; ``more`` are values by path whose dots are double underscores."""
        given = {path.replace("__", "."): value for path, value in more.items()}
        return self.loaded.changed(
            [
                Override(path, value, f"--over {path}")
                for path, value in {**self._schedule(setting), **setting, **given}.items()
            ]
        )

    def _schedule(self, setting: Setting) -> dict[str, Any]:
        """The schedule of a method other than the scenario's, if that is not the scenario's schedule."""
        server = self.loaded.scenario.server
        if not self._brings_schedule or _METHOD not in setting:
            return {}
        method = self.loaded.changed(
            [Override(path, setting.get(path), f"--over {path}") for path in (_METHOD, _SCHEDULE)]
        ).scenario.server
        if method.method.name == server.method.name or method.schedule.name == server.schedule.name:
            return {}
        return {_SCHEDULE: {"name": method.schedule.name}}

    def _problem(self, setting: Setting, dimension: Dimension) -> UserError | None:
        """The error if the setting's parts do not have a key; None if they do."""
        key = text([as_data(dict(setting)), dimension.path])
        if key not in self._known:
            self._known[key] = None
            try:
                self.scenario({**setting, dimension.path: dimension.tries[0]})
            except UserError as error:
                for one in error.errors if isinstance(error, UserErrors) else (error,):
                    if UNKNOWN_KEY in one.message and one.where == f"--over {dimension.path}":
                        self._known[key] = one
                if self._known[key] is None:
                    raise
        return self._known[key]

    def words(self, setting: Setting) -> str:
        """A setting in words: ``FedBuff, cohort 20, deadline 6.2 min``."""
        words = []
        for path, value in setting.items():
            part: Any = self.scenario(setting).scenario
            for key in path.split("."):
                part = getattr(part, key, None)
            if isinstance(part, Part):
                title = getattr(part.type, "title", "") or part.name.rpartition(":")[2]
                given = value if isinstance(value, Mapping) else {}
                more = [f"{key} {_spaced(each)}" for key, each in given.items() if key != "name"]
                words.append(f"{title} ({', '.join(more)})" if more else title)
            else:
                words.append(f"{self.names[path].replace('_', ' ')} {_spaced(value)}")
        return ", ".join(words) or "as given"


def _spaced(value: Any) -> str:
    shown = value if isinstance(value, str) else text(as_data(value))
    return re.sub(r"^([\d.]+)([A-Za-z]+)$", r"\1 \2", shown)
