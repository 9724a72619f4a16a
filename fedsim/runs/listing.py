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
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.progress import WAITING
from fedsim.runs.records import DECISION, FORECAST, RUN, answer_of, is_sweep
from fedsim.runs.run import Run
from fedsim.runs.schema import METRICS
from fedsim.runs.tables import read_index
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


@dataclass(frozen=True)
class Member:
    """A run or a sweep in a folder.

    Attributes:
        path: its folder.
        name: its path in the folder.
        expected: checksum of its scenario if it is complete by the record of the sweep or the answer. The record has
            the scenarios as the runs had them, whose tags, and keys with their defaults, may differ from those of the
            sweep.
        entry: that of a run in ``sweep.json``.
        failure: the first line of the error of a run that failed before it had a folder.
    """

    path: Path
    name: str
    expected: str | None = None
    entry: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def status(self) -> str:
        """The status of a run that has not begun."""
        return Status.FAILED if self.failure else WAITING

    def opened(self) -> RunFolder | None:
        """The run; None if it has not begun, or is a sweep.

        Raises:
            UserError: it may not be opened, has lost its ``run.json``, or is complete by the record, but is missing or
                another run.
        """
        run = RunFolder(self.path)
        hint = "restore the folder of the run from a copy, or remove it and repeat the command that wrote it"
        if not RUN.is_in(run.path):
            if self.expected:
                message = "no such file, though the run is complete"
                raise UserError(message, where=run.info, hint=hint)
            run.require_intact_info()
            return None
        if self.expected and run.read_info()["files"].get(run.scenario.name) != self.expected:
            raise UserError("is the run of another scenario", where=run.path, hint=hint)
        return run


class Runs:
    """The runs of a sweep, in its order; of another folder, its :func:`contents`, and complete runs that it has lost.

    Attributes:
        record: that of the sweep or the answer to which the runs belong; empty if there is none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answer, self.record, begin = answer_of(folder)
        entries = () if begin else self.record.get("runs", ())
        self._entries = {entry["run"]: entry for entry in entries}
        complete = self.record.get("complete", {})
        names = (name for name in complete if name.startswith(begin))
        self._complete = {name.removeprefix(begin): complete[name] for name in names}

    def __iter__(self) -> Iterator[Member]:
        if is_sweep(self._folder):
            return map(self.member, self._entries)
        names = [path.relative_to(self._folder).as_posix() for path in contents(self._folder)]
        return map(self.member, dict.fromkeys([*names, *self._complete]))

    def member(self, name: str) -> Member:
        """The run with this name in the folder."""
        path, entry = self._folder / name, self._entries.get(name, {})
        is_there = not entry or os.path.exists(path / RUN.file)
        failure = "" if is_there else self._failures.get(name, "").partition("\n")[0]
        return Member(path, name, self._complete.get(name), entry, failure)

    @functools.cached_property
    def _failures(self) -> dict[str, str]:
        with contextlib.suppress(UserError):  # The index is not there yet, or is being replaced.
            index = read_index(self._answer, self.record)
            return dict(zip(index["run"], index["error"], strict=True))
        return {}


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
            is_run = is_sweep(path) or RUN.is_in(path)
            if not is_run and RunFolder(path).scenario.exists():
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
    runs = [Member(folder, folder.name)] if RUN.is_in(folder) else Runs(folder)
    rows = _rows(runs, goals, sections)
    measured = dict.fromkeys(name for row in rows for name in row.metrics)
    for metric, value in (goals or {}).items() if measured else ():
        where = f"target {metric}={value:g}"
        require_target(definition(metric), value, measured, where)
    return rows


def status_of(error: UserError) -> str:
    """The status of a run or a sweep whose files cannot be read for this reason."""
    return UNREADABLE if isinstance(error, Unreadable) else DAMAGED


def _rows(runs: Iterable[Member], goals: Goals | None, sections: Sections) -> list[Listed]:
    rows = []
    for each in runs:
        row, status = None, each.status
        try:
            if folder := each.opened():
                row = _run(folder, goals, sections)
            elif is_sweep(each.path):
                row = _sweep(each.path, goals, sections)
        except UserError as error:
            status = status_of(error)
        seeds = (each.entry["seed"],) if each.entry else ()
        rows.append(row or Listed(each.path, {status: 1}, seeds=seeds))
    return rows


def _run(folder: RunFolder, goals: Goals | None, sections: Sections) -> Listed:
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
    statuses = {str(run.status): 1}
    return Listed(
        folder.path, statuses, scenario, (method,), (seed,), times, tags, changed, metrics
    )


def _measured(run: Run) -> tuple[str, ...]:
    try:
        return tuple(map(str, run.metrics.columns[3:]))
    except (UserError, OSError, pa.ArrowException):
        if not run.may_lack(METRICS):
            raise
        return ()


def _sweep(path: Path, goals: Goals | None, sections: Sections) -> Listed:
    members = Runs(path)
    runs = _rows(members, goals, sections)
    times: dict[tuple[str, float], list[float]] = {}
    for run in runs:
        for goal, seconds in run.times_s.items():
            times.setdefault(goal, []).extend(seconds)
    return Listed(
        path,
        Counter(status for run in runs for status in run.statuses),
        members.record["name"],
        tuple(dict.fromkeys(name for run in runs for name in run.methods)),
        tuple(dict.fromkeys(seed for run in runs for seed in run.seeds)),
        times,
        tuple(dict.fromkeys(tag for run in runs for tag in run.tags)),
        max((run.changed for run in runs), default=0.0),
        tuple(dict.fromkeys(name for run in runs for name in run.metrics)),
    )
