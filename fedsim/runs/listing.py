"""The runs and sweeps below a folder: what each is, how far it is, and when it reached its targets.

Only ``run.json``, ``scenario.yaml``, ``sweep.json`` and tables of metrics are read, so that a folder of hundreds of
runs is listed fast.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedsim.errors import Unreadable, UserError, refused
from fedsim.runs.folder import RunFolder, require_same
from fedsim.runs.progress import WAITING
from fedsim.runs.records import DECISION, FORECAST, RUN, answer_of, is_sweep, read_sweep
from fedsim.runs.run import Run
from fedsim.runs.schema import METRICS
from fedsim.vocabulary.formatting import format_count
from fedsim.vocabulary.metrics import definition, require_target

DAMAGED, UNREADABLE = "damaged", "unreadable"
"""Statuses of a run or a sweep with files that cannot be read; unreadable ones may be intact."""
_MOST_FOLDERS = 5_000
"""Folders without a run that are searched."""
Goals = Mapping[str, float]
"""Targets: a value by metric."""
Sections = dict[str, dict[str, Any]]
"""As for :meth:`fedsim.runs.run.Run.read_scenario`."""


@dataclass(frozen=True)
class Listed:
    """A run or a sweep in a list.

    Attributes:
        path: its folder.
        statuses: number of runs by status.
        scenario: name of the scenario.
        methods: name of the method, or of the Flower app; the distinct ones of a sweep.
        seeds: the seed; the distinct ones of a sweep.
        times_s: simulated seconds at which each run that has begun reached a target, by metric and value; NaN if it has
            not.
        tags: the scenario's tags.
        changed: when ``run.json`` was last written, in seconds since the epoch; the latest one of a sweep.
        metrics: what was measured, if there is a target.
    """

    path: Path
    statuses: Mapping[str, int]
    scenario: str = ""
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    times_s: Mapping[tuple[str, float], Sequence[float]] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    changed: float = 0.0
    metrics: tuple[str, ...] = ()


def contents(folder: Path) -> list[Path]:
    """The folders of the runs and the sweeps below a folder, sorted; the runs of a sweep belong to the sweep."""
    with refused("cannot be read", folder):
        searched = itertools.count()
        found = list(_below(folder, searched)) if folder.is_dir() else []
    if next(searched) > _MOST_FOLDERS:
        _note_limit(folder)
    if not found:
        RunFolder(folder).require_intact_info()
        raise UserError(
            "the folder contains no run" if folder.is_dir() else "no such folder",
            where=folder,
            hint="give the folder of a run, of a sweep, or one that contains runs",
        )
    return found


def members(folder: Path, record: Mapping[str, Any], begin: str) -> list[str]:
    """The names of the :func:`contents` of a folder, and of the runs that its :func:`answer_of` has as complete."""
    names = [path.relative_to(folder).as_posix() for path in contents(folder)]
    complete = [name for name in record.get("complete", ()) if name.startswith(begin)]
    return list(dict.fromkeys([*names, *(name.removeprefix(begin) for name in complete)]))


@functools.cache
def _note_limit(folder: Path) -> None:
    message = "%s: only %s folders were searched; give a folder nearer to the runs"
    logging.getLogger("fedsim").warning(message, folder, format_count(_MOST_FOLDERS))


def _below(folder: Path, searched: Iterator[int]) -> Iterator[Path]:
    if next(searched) >= _MOST_FOLDERS:
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not os.path.isdir(path):
            continue
        if path.is_symlink() and folder.resolve().is_relative_to(path.resolve()):
            continue  # It would never end.
        try:
            # The runs of decisions and forecasts are not listed: there may be hundreds.
            if any(record.is_in(path) for record in (DECISION, FORECAST)):
                continue
            if not (is_run := RUN.is_in(path) or is_sweep(path)):
                RunFolder(path).require_intact_info()
        except UserError:
            is_run = True  # It was one, or may be one.
        with contextlib.suppress(PermissionError):
            yield from [path] if is_run else _below(path, searched)


def listed(folder: Path, goals: Goals | None = None) -> list[Listed]:
    """The runs and the sweeps below a folder; if the folder is a sweep, its runs; if it is a run, the run.

    Args:
        folder: the folder.
        goals: targets; those of each scenario if None.
    """
    sections: Sections = {}
    if RUN.is_in(folder):
        rows = _runs(folder.parent, [folder.name], (folder, {}, ""), goals, sections)
    else:
        owner = _, record, begin = answer_of(folder)
        if not begin and record.get("runs"):
            names = [entry["run"] for entry in record["runs"]]
        else:
            names = members(folder, record, begin)
        rows = _runs(folder, names, owner, goals, sections)
    measured = dict.fromkeys(name for row in rows for name in row.metrics)
    for metric, value in (goals or {}).items() if measured else ():
        where = f"target {metric}={value:g}"
        require_target(definition(metric), value, measured, where)
    return rows


def status_of(error: UserError) -> str:
    """The status of a run or a sweep whose files cannot be read for this reason."""
    return UNREADABLE if isinstance(error, Unreadable) else DAMAGED


def _runs(
    folder: Path,
    names: Iterable[str],
    owner: tuple[Path, Mapping[str, Any], str],
    goals: Goals | None,
    sections: Sections,
) -> list[Listed]:
    """The runs and sweeps of these names, each once; ``owner`` is the :func:`answer_of` their folder."""
    answer, record, begin = owner
    runs = []
    for name in dict.fromkeys(names):
        path = folder / name
        try:
            require_same(answer, record, begin + name)
            runs.append((_sweep if is_sweep(path) else _run)(path, goals, sections))
        except UserError as error:
            runs.append(Listed(path, {status_of(error): 1}))
    return runs


def _run(path: Path, goals: Goals | None, sections: Sections) -> Listed:
    folder = RunFolder(path)
    if not RUN.is_in(folder.path):
        folder.require_intact_info()
        return Listed(path, {WAITING: 1})
    run = Run(folder)
    scenario, seed = run.entry("name"), run.entry("seed")
    if folder.scenario.exists():  # It is written after run.json.
        run.read_scenario(sections)
    chosen = (run.info.get("target") or {}) if goals is None else goals
    method = run.info.get("method") or run.info.get("app") or ""
    metrics = _measured(run) if chosen else ()
    times = {
        goal: [run.time_to(*goal) if goal[0] in metrics else math.nan] for goal in chosen.items()
    }
    tags, changed = tuple(run.info.get("tags") or ()), folder.info.stat().st_mtime
    return Listed(
        path, {str(run.status): 1}, scenario, (method,), (seed,), times, tags, changed, metrics
    )


def _measured(run: Run) -> tuple[str, ...]:
    try:
        return tuple(map(str, run.metrics.columns[3:]))
    except (UserError, OSError, pa.ArrowException):
        if not run.may_lack(METRICS):
            raise
        return ()


def _sweep(path: Path, goals: Goals | None, sections: Sections) -> Listed:
    record = read_sweep(path)
    names = [entry["run"] for entry in record["runs"]]
    runs = _runs(path, names, (path, record, ""), goals, sections)
    all_seeds = (
        run.seeds or (entry["seed"],) for run, entry in zip(runs, record["runs"], strict=True)
    )
    times: dict[tuple[str, float], list[float]] = {}
    for run in runs:
        for goal, seconds in run.times_s.items():
            times.setdefault(goal, []).extend(seconds)
    return Listed(
        path,
        Counter(status for run in runs for status in run.statuses),
        record["name"],
        tuple(dict.fromkeys(name for run in runs for name in run.methods)),
        tuple(dict.fromkeys(seed for seeds in all_seeds for seed in seeds)),
        times,
        tuple(dict.fromkeys(tag for run in runs for tag in run.tags)),
        max((run.changed for run in runs), default=0.0),
        tuple(dict.fromkeys(name for run in runs for name in run.metrics)),
    )
