"""The runs that a scenario's ``sweep`` section describes."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedsim.catalog import CATALOG
from fedsim.errors import UserError, UserErrors
from fedsim.scenario.comparing import short_names
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.overrides import Override

_LONGEST_WORD = 40
_RESERVED = ("seed", "name", "sweep")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep.

    Attributes:
        name: its folder; follows from its values and seed alone, so that a sweep can grow.
        seed: its seed.
        values: what the sweep sets, by dotted path.
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
    """All runs of a sweep: the combinations of ``grid`` (the last path varies fastest), each with every row of
    ``zip`` and every seed.

    Raises:
        UserError: there is no sweep section, it sets what it may not, some run's scenario is wrong, or two runs
            are the same.
    """
    sweep = loaded.scenario.sweep
    if sweep is None:
        raise UserError(
            "there is nothing to vary",
            where=str(loaded.path or "scenario"),
            hint="add a section 'sweep' with grid, zip or seeds, or use fedsim run",
        )
    for path in (*sweep.grid, *sweep.zip):
        if path.partition(".")[0] in _RESERVED:
            raise UserError(
                f"'{path}' cannot be varied",
                where=loaded.source.key_place(
                    ("sweep", "grid" if path in sweep.grid else "zip", path)
                ),
                hint="list seeds under sweep.seeds; the name is that of the whole sweep",
            )
    seeds = sweep.seeds or [loaded.scenario.seed]
    keys = short_names([*sweep.grid, *sweep.zip])
    planned: dict[str, PlannedRun] = {}
    problems: dict[str, UserError] = {}
    for chosen in _combinations(loaded):
        for seed in seeds:
            values = {override.path: override.value for override in chosen}
            words = [
                _word(keys[path], value) for path, value in values.items() if value is not None
            ]
            name = "_".join([*words, f"seed{seed}"])
            place = loaded.source.value_place(("sweep", "seeds"))
            try:
                changed = loaded.changed(
                    CATALOG,
                    [*chosen, Override("seed", seed, place), Override("sweep", None, place)],
                )
            except UserError as error:
                for one in error.errors if isinstance(error, UserErrors) else (error,):
                    problems.setdefault(str(one), one)
                continue
            if name in planned:
                raise UserError(
                    f"the sweep holds the run {name} twice",
                    where=loaded.source.key_place(("sweep",)),
                    hint="a value or a seed is listed twice",
                )
            planned[name] = PlannedRun(name, seed, values, changed)
    if problems:
        found = list(problems.values())
        raise found[0] if len(found) == 1 else UserErrors(found)
    return list(planned.values())


def _combinations(loaded: LoadedScenario) -> Iterator[list[Override]]:
    sweep = loaded.scenario.sweep
    assert sweep is not None

    def override(section: str, path: str, index: int, value: Any) -> Override:
        place = loaded.source.value_place(("sweep", section, path, index))
        return Override(path, value, place)

    grids = [
        [[override("grid", path, index, value)] for index, value in enumerate(values)]
        for path, values in sweep.grid.items()
    ]
    columns = [
        [override("zip", path, index, value) for index, value in enumerate(values)]
        for path, values in sweep.zip.items()
    ]
    rows = [list(row) for row in zip(*columns, strict=True)] if columns else [[]]
    for chosen in itertools.product(*grids, rows):
        yield list(itertools.chain(*chosen))


def _word(key: str, value: Any) -> str:
    """A value in the name of a folder; what the text does not tell in full is told by a few digits of its hash."""
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        rest = [f"{name}{_plain(item)}" for name, item in value.items() if name != "name"]
        text = "-".join([value["name"].rpartition(":")[2], *rest])
        faithful = not any(isinstance(item, Mapping | list) for item in value.values())
    elif isinstance(value, Mapping | list):
        text, faithful = key, False
    else:
        text = _plain(value) if isinstance(value, str) else f"{key}{_plain(value)}"
        faithful = True
    safe = re.sub(r"[^A-Za-z0-9.+_-]+", "-", text).strip("-.")[:_LONGEST_WORD]
    if faithful and safe == text:
        return safe
    canonical = json.dumps(value, sort_keys=True)
    return f"{safe}-{hashlib.sha256(canonical.encode()).hexdigest()[:6]}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
