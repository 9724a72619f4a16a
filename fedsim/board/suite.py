"""The suite of the board: its scenarios, its entries, and the runs by which an entry is tuned and measured.

Every entry has the same budget in every scenario it fits: five settings on each tuning seed, a cross through the
scenario's learning rate and the middle value of the entry's knob; then the best of them on fresh seeds, on which
nothing was chosen, and once more with each disturbance of the scenario.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedsim.bundled import located
from fedsim.errors import UserError
from fedsim.scenario.loading import LoadedScenario, load_scenario
from fedsim.scenario.overrides import Override
from fedsim.scenario.source import parse_yaml
from fedsim.units import parse_duration_s, parse_size_bytes

BASELINE = "FedAvg"
TUNING = "tuning"
MEASURED = "measured"
"""Kinds of runs, besides the disturbances of a scenario."""
_LR = "training.optimizer.lr"
_WHERE = "the board"


@dataclass(frozen=True)
class Entry:
    """A method (with its schedule or selection) that takes part.

    Attributes:
        name: its name on the board.
        groups: it fits the scenarios that name one of these groups.
        values: what it sets in a scenario, by dotted path.
        knob: path of the key that is tuned besides the learning rate; empty if there is none.
        choices: its three values, the default in the middle; empty if there is no knob.
    """

    name: str
    groups: tuple[str, ...]
    values: Mapping[str, Any]
    knob: str
    choices: tuple[Any, ...]


@dataclass(frozen=True)
class Question:
    """A scenario of the suite.

    Attributes:
        name: its name.
        file: the scenario file.
        groups: groups of entries that fit it.
        budget_s, budget_bytes: the budgets after which the quality is compared.
        disturbances: by name, what each changes in the scenario.
    """

    name: str
    file: Path
    groups: tuple[str, ...]
    budget_s: float
    budget_bytes: float
    disturbances: Mapping[str, Mapping[str, Any]]

    @functools.cached_property
    def loaded(self) -> LoadedScenario:
        """The scenario, with its baseline FedAvg."""
        return load_scenario(self.file)

    @property
    def text(self) -> str:
        """The question in words: the first line of the file."""
        return self.file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")

    @property
    def target(self) -> tuple[str, float]:
        """Metric and value of the target."""
        return next(iter(self.loaded.scenario.stop.target.items()))

    @property
    def horizon_s(self) -> float:
        """Simulated time after which a run ends, whether it has reached the target or not."""
        time_s = self.loaded.scenario.stop.simulated_time
        assert time_s is not None
        return time_s

    def digest(self) -> str:
        """Hash of the files that define the scenario."""
        files = [self.file, *sorted(self.file.with_suffix("").glob("*"))]
        return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


class Cell(NamedTuple):
    """One run of the board.

    Attributes:
        scenario, entry: names.
        kind: :data:`TUNING`, :data:`MEASURED`, or the name of a disturbance.
        setting: number of the setting, 0 to 4.
        seed: the seed.
    """

    scenario: str
    entry: str
    kind: str
    setting: int
    seed: int


@dataclass(frozen=True, eq=False)
class Suite:
    """A version of the board."""

    version: str
    lr_factors: Sequence[float]
    tuning_seeds: Sequence[int]
    seeds: Sequence[int]
    entries: Mapping[str, Entry]
    scenarios: Mapping[str, Question]
    quick: Sequence[str] = ()
    """Names of the scenarios that a quick board takes."""

    def fitting(self, question: Question) -> list[Entry]:
        """The entries that fit a scenario, in the order of the suite."""
        return [each for each in self.entries.values() if {*each.groups} & {*question.groups}]

    def values(self, cell: Cell) -> dict[str, Any]:
        """What a run sets in its scenario, by dotted path."""
        entry, question = self.entries[cell.entry], self.scenarios[cell.scenario]
        optimizer = question.loaded.source.data["training"]["optimizer"]
        rate = entry.values.get("training.optimizer", optimizer)["lr"]
        low, usual, high = entry.choices or (None, None, None)
        middle = self.lr_factors[len(self.lr_factors) // 2]
        settings = [*((factor, usual) for factor in self.lr_factors), (middle, low), (middle, high)]
        factor, choice = settings[cell.setting]
        to_horizon: dict[str, Any] = {} if cell.kind == TUNING else {"stop.target": {}}
        return {
            **entry.values,
            _LR: float(f"{rate * factor:.12g}"),
            **({entry.knob: choice} if entry.knob else {}),
            **to_horizon,
            **question.disturbances.get(cell.kind, {}),
            "seed": cell.seed,
        }

    def loaded(self, cell: Cell) -> LoadedScenario:
        """The scenario of a run."""
        overrides = [Override(path, value, _WHERE) for path, value in self.values(cell).items()]
        return self.scenarios[cell.scenario].loaded.changed(overrides)

    @functools.cache  # noqa: B019 (a suite lives as long as the program)
    def code(self, scenario: str, entry: str) -> str:
        """Hash of what an entry sets, and of the user's files that it names."""
        chosen = self.entries[entry]
        try:
            code = self.loaded(Cell(scenario, entry, TUNING, 0, 0)).user_code()
        except UserError:
            code = {}
        text = repr(
            (sorted(chosen.values.items()), chosen.knob, chosen.choices, sorted(code.items()))
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def tuning(self, question: Question, entry: Entry) -> Iterator[Cell]:
        """The runs by which an entry is tuned."""
        for setting in range(len(self.lr_factors) + (2 if entry.knob else 0)):
            for seed in self.tuning_seeds:
                yield Cell(question.name, entry.name, TUNING, setting, seed)

    def measuring(self, question: Question, entry: Entry, setting: int) -> Iterator[Cell]:
        """The runs by which a tuned entry is measured."""
        for kind in (MEASURED, *question.disturbances):
            for seed in self.seeds:
                yield Cell(question.name, entry.name, kind, setting, seed)

    def size(self, question: Question) -> int:
        """The number of runs in a scenario."""
        entries = self.fitting(question)
        each = len(self.seeds) * (1 + len(question.disturbances))
        return sum(each + len(list(self.tuning(question, entry))) for entry in entries)

    def own_entry(self, name: str, values: Mapping[str, Any]) -> Entry:
        """The entry of a user, which fits every scenario, with its :func:`knob`."""
        groups = tuple({group for question in self.scenarios.values() for group in question.groups})
        entry = Entry(name, groups, values, "", ())
        path, choices = knob(replace(self, entries={name: entry}).require_loading(name), values)
        return replace(entry, knob=path, choices=choices)

    def require_loading(self, entry: str) -> LoadedScenario:
        """The first scenario in which an entry works."""
        problems = []
        for scenario in self.scenarios:
            try:
                return self.loaded(Cell(scenario, entry, TUNING, 0, self.tuning_seeds[0]))
            except UserError as error:
                problems.append(error)
        raise problems[0]

    def limited(self, scenarios: Sequence[str], entries: Mapping[str, Entry], seeds: int) -> Suite:
        """The suite with some of its scenarios, other entries and fewer seeds."""
        chosen = {name: self.scenarios[name] for name in scenarios or self.scenarios}
        return replace(self, scenarios=chosen, entries=entries, seeds=self.seeds[:seeds])


def knob(loaded: LoadedScenario, values: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """The key to tune besides the learning rate, and three values with the present one in the middle.

    That of the suite's own entry if there is one for the same part. Otherwise ``server_lr``, or the first number among
    the parameters of the method, schedule or selection that ``values`` sets, with half and twice its value (or a value
    closer to 1, if it must be below 1). Empty if there is none.
    """
    server = loaded.resolved()["server"]
    keys = dict.fromkeys(path.split(".")[1] for path in values)
    for entry in suite(VERSIONS[0]).entries.values():
        own = {path.split(".")[1] for path in entry.values if path.startswith("server.")}
        parts = {key: entry.values.get(f"server.{key}", {}) for key in own}
        names = {
            key: part.get("name", entry.values.get(f"server.{key}.name"))
            for key, part in parts.items()
        }
        same = all((server.get(key) or {}).get("name") == name for key, name in names.items())
        if same and own <= keys.keys() and entry.knob.split(".")[1] in keys:
            return entry.knob, entry.choices
    for key in keys:
        numbers = {
            name: value
            for name, value in server[key].items()
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        }
        for name in sorted(numbers, key=lambda name: name != "server_lr"):
            usual, path = numbers[name], f"server.{key}.{name}"
            kind = type(usual)
            for high in (2 * usual, (1 + usual) / 2):
                choices = (kind(usual / 2), usual, kind(high))
                if len(set(choices)) == 3 and all(_fits(loaded, path, at) for at in choices):
                    return path, choices
    return "", ()


def _fits(loaded: LoadedScenario, path: str, value: Any) -> bool:
    try:
        loaded.changed([Override(path, value, _WHERE)])
    except UserError:
        return False
    return True


VERSIONS = ("board-1", "board-1-large")
"""The suites; the entries, the tuning and the seeds of the second, which is for a GPU, are those of the first."""


@functools.cache
def suite(version: str = VERSIONS[0]) -> Suite:
    """A version of the board; the present one if none is given."""
    document = _document(version)
    scenarios = {
        name: Question(
            name,
            located("scenarios") / document["folder"] / f"{name}.yaml",
            tuple(row["groups"]),
            parse_duration_s(row["budget_time"]),
            parse_size_bytes(row["budget_bytes"]),
            row.get("disturbances", {}),
        )
        for name, row in document["scenarios"].items()
    }
    shared = _document(document.get("entries_of", version))
    entries = {}
    for name, row in shared["entries"].items():
        ((tuned, choices),) = row["knob"].items()
        entries[name] = Entry(name, tuple(row["groups"]), row["set"], tuned, tuple(choices))
    return Suite(
        version,
        shared["lr_factors"],
        shared["tuning_seeds"],
        shared["seeds"],
        entries,
        scenarios,
        document["quick"],
    )


def _document(version: str) -> Any:
    file = Path(__file__).with_name(f"{version.replace('-', '_')}.yaml")
    return parse_yaml(file.read_text(encoding="utf-8"), file.name).data
