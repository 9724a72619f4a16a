"""Groups of runs that differ in their seed alone, and names for them from what sets them apart.

Paths of the ``server`` section that differ name a *variant* (a method, a schedule, ...). Other paths that differ
(the data split, the devices, ...) name a *setting* if every variant was run with every value of them; otherwise they
belong to the variant. Variants are compared within their setting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsim.analysis.comparison.facts import Replicate, RunFacts
from fedsim.scenario.comparing import flattened, short_names

_LEFT_OUT = ("seed", "name", "sweep")
_ABSENT = "\0absent"
_LONGEST_VALUE = 24

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """Runs of one variant in one setting.

    Attributes:
        setting: name of the setting; empty where there is only one.
        label: name of the variant in its setting.
        runs: one a replicate, in order of the seeds.
        values: the differing paths and their values; absent ones are left out.
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
    def replicates(self) -> tuple[Replicate, ...]:
        """Seeds of the runs."""
        return tuple(run.replicate for run in self.runs)


@dataclass(frozen=True)
class Grouping:
    """All groups.

    Attributes:
        groups: by setting, then by variant, each in order of appearance.
        differing: dotted paths whose values differ, seed and name apart.
    """

    groups: tuple[Group, ...]
    differing: tuple[str, ...]

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
    """Group runs by what differs in their scenarios besides the seed.

    Runs of equal scenario and equal seed stand for themselves: each goes to a group of its own, named after its
    folder.

    Args:
        runs: the runs, in the order in which groups are to appear.
        others: scenarios of runs that belong to the comparison and have no figures (they failed); they keep names
            from changing.
        renamed: other names for variants and settings, by the name they would have.
        settings: dotted paths in the server section that are to name settings, with all below them.
    """
    flat = [_flat(run.scenario) for run in runs]
    every = [*flat, *(_flat(scenario) for scenario in others)]
    differing = _differing(every)
    of_variants, of_settings = _split(differing, every, settings)
    name_variant = _Namer(of_variants, every, _first_name(every))
    name_setting = _Namer(of_settings, every, "")
    renamed = renamed or {}
    members: dict[tuple[str, str, str], list[int]] = {}
    copies: dict[tuple[str, Replicate], int] = {}
    labels: dict[str, tuple[str, str]] = {}
    for number, run in enumerate(runs):
        key = _key(flat[number], differing)
        copy = copies[key, run.replicate] = copies.get((key, run.replicate), 0) + 1
        setting, label = name_setting(flat[number]), name_variant(flat[number])
        labels[key] = (renamed.get(setting, setting), renamed.get(label, label))
        members.setdefault((key, str(copy), labels[key][0]), []).append(number)
    order = {
        setting: place for place, setting in enumerate(dict.fromkeys(key[2] for key in members))
    }
    groups: list[Group] = []
    copied = {key for (key, copy, _) in members if copy != "1"}
    for (key, _, setting), numbers in sorted(members.items(), key=lambda item: order[item[0][2]]):
        chosen = sorted((runs[number] for number in numbers), key=lambda run: run.replicate)
        label = labels[key][1]
        if key in copied:
            label = _folder_name(chosen, runs)
        values = {path: flat[numbers[0]][path] for path in differing if path in flat[numbers[0]]}
        groups.append(Group(setting, label, tuple(chosen), values))
    return Grouping(tuple(_told_apart(groups)), tuple(differing))


def _flat(scenario: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in scenario.items() if key not in _LEFT_OUT}
    return dict(flattened(kept))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _differing(every: Sequence[Values]) -> list[str]:
    paths = dict.fromkeys(path for flat in every for path in flat)
    return [p for p in paths if len({_text(flat.get(p, _ABSENT)) for flat in every}) > 1]


def _key(flat: Values, paths: Sequence[str]) -> str:
    return _text([flat.get(path, _ABSENT) for path in paths])


def _split(
    differing: Sequence[str], every: Sequence[Values], wanted: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Paths that name variants, and paths that name settings; ``wanted`` ones are settings if they can be."""
    shared = [
        path for path in differing if any(f"{path}.".startswith(f"{place}.") for place in wanted)
    ]
    server = [path for path in differing if path.startswith("server.") and path not in shared]
    kinds = {_key(flat, server) for flat in every}
    if len(kinds) < 2:
        return list(differing), []
    settings = []
    for path in differing:
        if path in server:
            continue
        values = {_text(flat.get(path, _ABSENT)) for flat in every}
        pairs = {(_key(flat, server), _text(flat.get(path, _ABSENT))) for flat in every}
        if len(pairs) == len(kinds) * len(values):
            settings.append(path)
    return [path for path in differing if path not in settings], settings


class _Namer:
    """Names scenarios by the fewest paths that tell them apart, names of parts before their parameters."""

    def __init__(self, paths: Sequence[str], every: Sequence[Values], fallback: str) -> None:
        self._fallback = fallback
        wanted = len({_key(flat, paths) for flat in every})
        chosen: list[str] = []
        for path in sorted(paths, key=lambda path: not path.endswith(".name")):
            count = len({_key(flat, chosen) for flat in every})
            if count == wanted:
                break
            if len({_key(flat, [*chosen, path]) for flat in every}) > count:
                chosen.append(path)
        for path in [path for path in chosen if not path.endswith(".name")]:
            rest = [other for other in chosen if other != path]
            if len({_key(flat, rest) for flat in every}) == wanted:
                chosen = rest
        self._short = short_names(sorted(chosen, key=list(paths).index))

        # What is switched off need not be said, unless it is all there is to say or all that tells two apart.
        told = {self._name(flat, nothing=False) for flat in every}
        self._nothing = len(told) < wanted or (wanted > 1 and "" in told)

    def __call__(self, flat: Values) -> str:
        return self._name(flat, nothing=self._nothing) or self._fallback

    def _name(self, flat: Values, *, nothing: bool) -> str:
        pieces = [
            _piece(path, short, flat[path])
            for path, short in self._short.items()
            if path in flat and (nothing or flat[path] is not None)
        ]
        return ", ".join(pieces)


def _first_name(every: Sequence[Values]) -> str:
    return str(every[0].get("server.method.name", "runs")).rpartition(":")[2] if every else ""


def _piece(path: str, short: str, value: Any) -> str:
    if isinstance(value, str):
        if path.endswith(".name"):
            return value.rpartition(":")[2]
        return f"{short}={value.rpartition('/')[2]}"
    if value is None:
        return f"{short}=none"
    if isinstance(value, float):
        return f"{short}={value:g}"
    text = json.dumps(value)
    return f"{short}={text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + '…'}"


def _folder_name(chosen: Sequence[RunFacts], runs: Sequence[RunFacts]) -> str:
    """The shortest end of a run's path that no other run has."""
    words = chosen[0].path.resolve().parts
    others = [run.path.resolve().parts for run in runs if run is not chosen[0]]
    length = 1
    while length < len(words) and any(o[-length:] == words[-length:] for o in others):
        length += 1
    return "/".join(words[-length:])


def _told_apart(groups: Sequence[Group]) -> list[Group]:
    """No two groups of a setting may have one name, or a table could not be read."""
    seen: dict[tuple[str, str], int] = {}
    result = []
    for group in groups:
        count = seen[group.setting, group.label] = seen.get((group.setting, group.label), 0) + 1
        label = group.label if count == 1 else f"{group.label} #{count}"
        result.append(Group(group.setting, label, group.runs, group.values))
    return result
