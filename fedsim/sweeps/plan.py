"""The runs that a scenario's ``sweep`` section describes."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedsim import bundled
from fedsim.errors import MOST_SHOWN, UserError, UserErrors, raise_all
from fedsim.parts.component import is_user_reference
from fedsim.scenario.comparing import Namer, differing, flattened, short_names, text
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.overrides import Override, apply_overrides
from fedsim.scenario.own_code import as_data

_LONGEST_WORD = 40
VARIANT = "variant"
"""Key of the name of a variant among the values of a run."""
_RESERVED = ("seed", "name", "sweep")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep.

    Attributes:
        name: name of its folder, from its values and seed; :func:`fedsim.sweeps.folder.record` keeps existing folders.
        seed: its seed.
        values: the values that the sweep sets, by dotted path; ``variant`` is the name of a variant of ``variants``.
        loaded: its scenario, without the sweep.
    """

    name: str
    seed: int
    values: Mapping[str, Any]
    loaded: LoadedScenario

    def resolved(self) -> dict[str, Any]:
        """Its scenario with every default written out."""
        return self.loaded.resolved()


def plan_runs(loaded: LoadedScenario) -> list[PlannedRun]:
    """All runs of a sweep: every variant with the combinations of ``grid`` (the last path varies fastest), each with
    every row of ``zip`` and every seed.
    """
    sweep = loaded.scenario.sweep
    if sweep is None:
        raise UserError(
            "there is nothing to vary",
            where=bundled.scenario_location(loaded.path) if loaded.path else "scenario",
            hint="set what varies, for example sweep.seeds=[0,1,2] (on the command line with -s, in Python with "
            "overrides), or add a section 'sweep' (fedsim init --template sweep shows one); "
            "for a single run, use fedsim run or fedsim.run()",
        )
    label, seed_place = loaded.source.label, loaded.source.value_place(("seed",))
    if sweep.seeds and seed_place != label and not seed_place.startswith(f"{label}:"):
        seed = loaded.scenario.seed
        raise UserError(
            "has no effect, because sweep.seeds lists the seeds of the runs",
            where=seed_place,
            hint=f"for this seed alone, use -s 'sweep.seeds=[{seed}]' (in Python, overrides)",
        )
    varied = [
        *(("sweep", "grid", path) for path in sweep.grid),
        *(("sweep", "zip", path) for path in sweep.zip),
        *(
            ("sweep", "variants", name, key)
            for name, keys in sweep.variants.items()
            for key in keys
        ),
    ]
    for place in varied:
        if place[-1].partition(".")[0] in _RESERVED:
            raise UserError(
                f"'{place[-1]}' cannot be varied",
                where=loaded.source.key_place(place),
                hint="list seeds under sweep.seeds; the name applies to the whole sweep",
            )
    seeds = sweep.seeds or [loaded.scenario.seed]
    keys = short_names([*sweep.grid, *sweep.zip])
    words = {
        path: name_words(path, keys[path], as_data(listed))
        for path, listed in [*sweep.grid.items(), *sweep.zip.items()]
    }
    planned: dict[str, PlannedRun] = {}
    problems: dict[str, UserError] = {}
    location = loaded.source.value_place(("sweep", "seeds"))
    # Removed once, because a copy of it for each run takes most of the time.
    alone = [Override("sweep", None, location)]
    single = replace(loaded, source=apply_overrides(loaded.source, alone))
    named = [*sweep.variants] or [""]
    variants = name_words(VARIANT, VARIANT, named)
    for variant, swept in itertools.product(named, list(_combinations(loaded))):
        values = {override.path: as_data(override.value) for override in swept}
        of_values = [words[path][text(v)] for path, v in values.items() if v is not None]
        chosen = [*_of_variant(loaded, variant), *swept]
        if variant:
            values = {VARIANT: variant, **values}
            of_values = [variants[text(variant)], *of_values]
        problems |= {str(one): one for one in _replaced(chosen)}
        for seed in seeds:
            name = "_".join([*of_values, f"seed{seed}"])
            if len(problems) > MOST_SHOWN:
                break
            try:
                changed = single.changed([*chosen, Override("seed", seed, location)])
            except UserError as error:
                for one in error.errors if isinstance(error, UserErrors) else (error,):
                    problems.setdefault(str(one), one)
                continue
            if name in planned:
                raise UserError(
                    f"the sweep contains the run {name} twice",
                    where=loaded.source.key_place(("sweep",)),
                    hint="a value or a seed is listed twice",
                )
            planned[name] = PlannedRun(name, seed, values, changed)
    raise_all(problems.values())
    return list(planned.values())


def _replaced(chosen: Sequence[Override]) -> Iterator[UserError]:
    """Errors for the values of which nothing is left, because a later one sets all of a section."""
    last = {override.path: number for number, override in enumerate(chosen)}
    for number, override in enumerate(chosen):
        for path in itertools.accumulate(override.path.split("."), "{}.{}".format):
            if last.get(path, number) > number:
                yield UserError(
                    f"'{override.path}' has no effect, because '{path}' replaces it",
                    where=override.where,
                    hint=f"keep one of the two, or list '{path}' first",
                )


def _of_variant(loaded: LoadedScenario, variant: str) -> list[Override]:
    """What a variant sets: keys of sections one by one, parts as a whole."""

    def overrides(
        data: Mapping[str, Any], base: Mapping[str, Any], path: str, place: tuple[str, ...]
    ) -> Iterator[Override]:
        for key, value in data.items():
            to, here = f"{path}.{key}" if path else key, (*place, key)
            whole = base.get(key)
            section = whole if isinstance(whole, Mapping) and "name" not in whole else {}
            if (isinstance(value, Mapping) and "name" not in value) or (section and value is None):
                yield from overrides(value or {}, section, to, here)
            else:
                yield Override(to, value, loaded.source.value_place(here))

    assert loaded.scenario.sweep is not None
    values = loaded.scenario.sweep.variants.get(variant, {})
    return list(overrides(values, loaded.source.data, "", ("sweep", "variants", variant)))


def _combinations(loaded: LoadedScenario) -> Iterator[list[Override]]:
    sweep = loaded.scenario.sweep
    assert sweep is not None

    def columns(section: str, listed: Mapping[str, Sequence[Any]]) -> Iterator[list[Override]]:
        for path, values in listed.items():
            places = (("sweep", section, path, index) for index in range(len(values)))
            located = zip(values, map(loaded.source.value_place, places), strict=True)
            yield [Override(path, value, place) for value, place in located]

    rows = list(zip(*columns("zip", sweep.zip), strict=True)) or [()]
    for chosen, row in itertools.product(itertools.product(*columns("grid", sweep.grid)), rows):
        yield [*chosen, *row]


def name_words(path: str, key: str, values: Sequence[Any]) -> dict[str, str]:
    """The words in folder names for the values of a path, by the values' text; null has no word.

    A plain value, or a part with a few plain parameters, is written out. If that is too long, or the value is nested,
    the word holds what distinguishes the values of this path: the name of the part, and parameters if several share
    it. Words that are still equal get a few digits of a hash.
    """
    distinct = {text(value): value for value in values if value is not None}
    whole = {known: _whole(key, value) for known, value in distinct.items()}
    alike = Counter(word.casefold() for word in whole.values())
    if all(word == _safe(word) and alike[word.casefold()] == 1 for word in whole.values()):
        return whole
    flats = {known: dict(flattened({path: value})) for known, value in distinct.items()}
    every = list(flats.values())
    namer = Namer(differing(every), every, "")
    words = {}
    for known, value in distinct.items():
        label, name = namer(flats[known]), _name_of(value)
        if isinstance(value, str):
            label = name or value.rpartition("/")[2]
        elif name and label.partition(", ")[0] != name:
            label = f"{name}, {label}"
        words[known] = _safe(label) or key
    alike = Counter(word.casefold() for word in words.values())
    for known, word in words.items():
        if alike[word.casefold()] > 1:
            words[known] = f"{word}-{hashlib.sha256(known.encode()).hexdigest()[:6]}"
    return words


def _whole(key: str, value: Any) -> str:
    name = _name_of(value)
    if isinstance(value, str):
        return name or value
    if name:
        rest = [f"{path}{_plain(item)}" for path, item in value.items() if path != "name"]
        return "-".join([name, *rest])
    return f"{key}{_plain(value)}"


def _name_of(value: Any) -> str:
    """The name of a part: of one with parameters, or of a user's; empty for anything else."""
    if isinstance(value, str):
        return value.rpartition(":")[2] if is_user_reference(value) else ""
    name = value.get("name") if isinstance(value, Mapping) else None
    return name.rpartition(":")[2] if isinstance(name, str) else ""


def _safe(label: str) -> str:
    """A label of limited length, with characters that every file system allows."""
    word = re.sub(r"[^A-Za-z0-9.+_-]+", "-", label.replace("=", ""))
    return word[:_LONGEST_WORD].strip("-.")


def _plain(value: Any) -> str:
    if isinstance(value, float):
        value = float(f"{value:.12g}")  # 0.1 + 0.2 is written 0.3.
    return value if isinstance(value, str) else json.dumps(value)
