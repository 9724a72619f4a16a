"""Groups of runs that differ only in their seed, named after the values that distinguish them.

Paths of the ``server`` section, or of a Flower app, that differ name a *variant* (a method, a schedule, ...). Other
paths that differ (the data split, the devices, ...) name a *setting* if every variant was run with every one of their
values; otherwise they are part of the variant's name. Variants are compared within their setting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsim.analysis.comparison.facts import RunFacts
from fedsim.errors import printable
from fedsim.scenario.comparing import Namer, Values, differing, distinct_tail, flattened, key_of
from fedsim.scenario.description import with_units
from fedsim.vocabulary.formatting import format_names

_OF_VARIANTS = ("server.", "app.", "run_config.")
_UNRELATED = 20
"""Number of differing keys above which groups have the names of their scenarios: a few values would not tell much."""
_LEFT_OUT = ("seed", "name", "sweep", "logging", "checkpoint_models", "ignore", "tags")


@dataclass(frozen=True)
class Group:
    """Runs of one variant in one setting.

    Attributes:
        setting: name of the setting; empty if there is only one.
        label: name of the variant in its setting.
        runs: one per seed, in order of the seeds.
        values: the grouping's differing paths and their values; absent ones are left out.
    """

    setting: str
    label: str
    runs: tuple[RunFacts, ...]
    values: Values

    @property
    def name(self) -> str:
        """Variant and setting."""
        return f"{self.label} ({self.setting})" if self.setting else self.label

    @property
    def names(self) -> dict[str, str]:
        """Setting and label, the columns that name the group in a table."""
        return {"setting": self.setting, "label": self.label}

    def measuring(self, metric: str) -> Sequence[RunFacts]:
        """The runs that measured a metric; all of them if none did."""
        return [run for run in self.runs if metric in run.metrics] or self.runs


@dataclass(frozen=True)
class Grouping:
    """All groups.

    Attributes:
        groups: the groups by setting, then by variant, each in order of appearance.
        differing: dotted paths whose values differ between the groups, seed and name apart.
        of_settings: dotted paths that name settings.
    """

    groups: tuple[Group, ...]
    differing: tuple[str, ...]
    of_settings: tuple[str, ...]

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the settings."""
        return tuple(dict.fromkeys(group.setting for group in self.groups))

    def of(self, setting: str) -> tuple[Group, ...]:
        """The groups of a setting."""
        return tuple(group for group in self.groups if group.setting == setting)


def group_runs(
    runs: Sequence[RunFacts],
    others: Sequence[Mapping[str, Any]] = (),
    renamed: Mapping[str, str] | None = None,
    settings: Sequence[str] = (),
) -> Grouping:
    """Group runs by the values in which their scenarios differ, apart from the seed.

    Runs of the same scenario and seed are not averaged: each is a separate group, named after its folder.

    Args:
        runs: the runs, in the order in which groups are to appear.
        others: scenarios of runs without results (they failed), so that the names do not depend on failures.
        renamed: replacements for names of variants and settings, by default name.
        settings: dotted paths in the server section that name settings, with all keys below them.
    """
    flat: dict[str, Values] = {}  # Thousands of runs have few scenarios.
    texts = [_flatten(run.scenario, flat) for run in runs]
    between_groups = differing([*flat.values()])
    for scenario in others:
        _flatten(scenario, flat)
    every = [*flat.values()]
    paths = differing(every)
    of_variants, of_settings = _split(paths, every, settings)
    written = {text: _described(values, paths) for text, values in flat.items()}
    first_name = str(every[0].get("server.method.name", "runs")).rpartition(":")[2]
    name_setting = Namer(of_settings, [*written.values()], "")
    name_variant = Namer(of_variants, [*written.values()], first_name)
    names = {text: (name_setting(each), name_variant(each)) for text, each in written.items()}
    keys = {text: key_of(values, paths) for text, values in flat.items()}
    renamed = renamed or {}
    members: dict[tuple[str, int], list[int]] = {}
    copies: Counter[tuple[str, int]] = Counter()
    for number, run in enumerate(runs):
        key = keys[texts[number]]
        copies[key, run.seed] += 1
        members.setdefault((key, copies[key, run.seed]), []).append(number)
    copied = {key for key, copy in members if copy > 1}
    own_names = _own_names(runs, list(members.values())) if len(between_groups) > _UNRELATED else {}
    seen: Counter[tuple[str, str]] = Counter()
    groups: list[Group] = []
    by_name: dict[tuple[str, str], set[str]] = {}
    for run, text in zip(runs, texts, strict=True):
        by_name.setdefault((run.variant, names[text][0]), set()).add(keys[text])
    for (key, _), numbers in members.items():
        first = flat[texts[numbers[0]]]
        setting, label = names[texts[numbers[0]]]
        setting, label = ("", own_names[numbers[0]]) if own_names else (setting, label)
        if given := runs[numbers[0]].variant:
            label = given if len(by_name[given, setting]) < 2 else f"{given}, {label}"
        setting, label = renamed.get(setting, setting), renamed.get(label, label)
        chosen = sorted((runs[number] for number in numbers), key=lambda run: run.seed)
        if key in copied:
            elsewhere = [run.path.resolve().parts for run in runs if run is not chosen[0]]
            label = "/".join(distinct_tail(chosen[0].path.resolve().parts, elsewhere))
        setting, label = printable([setting, label], lines=False)
        seen[setting, label] += 1
        label += f" #{seen[setting, label]}" if seen[setting, label] > 1 else ""
        values = {path: first[path] for path in between_groups if path in first}
        groups.append(Group(setting, label, tuple(chosen), values))
    settings_in_order = list(dict.fromkeys(group.setting for group in groups))
    groups.sort(key=lambda group: settings_in_order.index(group.setting))
    return Grouping(tuple(groups), tuple(between_groups), tuple(of_settings))


def _flatten(scenario: Mapping[str, Any], flat: dict[str, Values]) -> str:
    """The text under which ``flat`` has the scenario, which it receives if it is the first of its kind."""
    compared = {key: value for key, value in scenario.items() if key not in _LEFT_OUT}
    text = repr(compared)
    if text not in flat:
        flat[text] = dict(flattened(compared))
    return text


def _described(flat: Values, paths: Sequence[str]) -> Values:
    """The values for names: quantities with units, and a compression by the factor 1 as ``uncompressed``."""
    plain = [
        path
        for path in paths
        if flat.get(path) == "factor" and flat.get(f"{path.removesuffix('name')}factor") == 1
    ]
    return with_units(flat, paths) | dict.fromkeys(plain, "uncompressed")


def _split(
    paths: Sequence[str], every: Sequence[Values], requested: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Paths that name variants, and paths that name settings; ``requested`` paths name settings if possible."""
    shared = [path for path in paths if any(is_below(path, prefix) for prefix in requested)]
    server = [path for path in paths if path.startswith(_OF_VARIANTS) and path not in shared]
    kinds = {key_of(flat, server) for flat in every}
    if len(kinds) < 2:
        return list(paths), []
    settings = []
    for path in paths:
        if path in server:
            continue
        values = {key_of(flat, [path]) for flat in every}
        pairs = {(key_of(flat, server), key_of(flat, [path])) for flat in every}
        if len(pairs) == len(kinds) * len(values):
            settings.append(path)
    return [path for path in paths if path not in settings], settings


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Names of groups, keys or folders in a sentence; those with a comma are quoted."""
    return format_names([f"“{name}”" if "," in name else name for name in names], most)


def is_below(path: str, prefix: str) -> bool:
    """Whether a dotted path is ``prefix`` or starts with it and a dot."""
    return f"{path}.".startswith(f"{prefix}.")


def _own_names(runs: Sequence[RunFacts], members: Sequence[Sequence[int]]) -> dict[int, str]:
    """The scenario's name by each group's first run; empty if groups share one, or if runs of a group differ in it."""
    names = [{str(runs[number].scenario.get("name", "")) for number in group} for group in members]
    distinct = set().union(*names)
    if len(distinct) < len(members) or any(len(each) > 1 for each in names):
        return {}
    return {group[0]: each.pop() for group, each in zip(members, names, strict=True)}
