"""Runs the board: tunes every entry, measures the best of its settings, and keeps one row per run.

The rows are the only thing that stays: run folders are removed once they are read. An interrupted board continues with
the rows it has.
"""

from __future__ import annotations

import contextlib
import functools
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsim.analysis.comparison.facts import RunFacts, read_facts
from fedsim.analysis.comparison.targets import Target, reaching
from fedsim.analysis.run import Run, load_run
from fedsim.board.suite import Cell, Entry, Question, Suite
from fedsim.errors import UserError
from fedsim.files.durable import TEMPORARY_PREFIX
from fedsim.runs.records import BOARD
from fedsim.runs.tables import read_parquet
from fedsim.sweeps.execution import perform
from fedsim.sweeps.folder import claimed
from fedsim.sweeps.local import Shares
from fedsim.sweeps.task import Result, Task

ROWS = "runs.parquet"
_WORDS = ("digest", "code", "error")
OnProgress = Callable[[str, int, int], None]
"""Receives the scenario, the number of all runs, and how many of them are done."""
_SAVE_EVERY = 20


class Rows:
    """The rows of a board's runs, in a file of its folder; one per :class:`~fedsim.board.suite.Cell`.

    Rows of runs that failed, and of scenarios or code that have changed since, are left out.
    """

    def __init__(self, folder: Path, suite: Suite) -> None:
        self._folder = folder
        self._record: dict[str, Any] = {"files": {}}
        with contextlib.suppress(FileNotFoundError):
            self._record = BOARD.read(folder)
        self._record["asked"] = {
            "suite": suite.version,
            "scenarios": list(suite.scenarios),
            "entries": list(suite.entries),
            "seeds": list(suite.seeds),
        }
        self._rows: dict[Cell, dict[str, Any]] = {}
        for row in self._read():
            question = suite.scenarios.get(row["scenario"])
            entry = suite.entries.get(row["entry"])
            if row["error"] or (question is not None and row["digest"] != question.digest()):
                continue
            if (
                question is None
                or entry is None
                or row["code"] == suite.code(question.name, entry.name)
            ):
                self.add({str(key): value for key, value in row.items()})
        if not BOARD.is_in(folder):
            BOARD.write(folder, self._record)  # By which those who watch the folder know it.

    def __contains__(self, cell: Cell) -> bool:
        return cell in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: dict[str, Any]) -> None:
        """Add the row of a run, or replace it."""
        self._rows[Cell(*(row[name] for name in Cell._fields))] = row

    def of(self, cells: Iterable[Cell]) -> pd.DataFrame:
        """The rows of these runs, in this order."""
        return pd.DataFrame([self._rows[cell] for cell in cells])

    def frame(self) -> pd.DataFrame:
        """All rows."""
        return pd.DataFrame([self._rows[cell] for cell in sorted(self._rows)])

    def save(self) -> None:
        """Write the file, and the record with its checksum."""
        write = functools.partial(self.frame().to_parquet, index=False, compression="zstd")
        BOARD.write_listed(self._folder, self._record, {ROWS: write})

    def _read(self) -> list[dict[Any, Any]]:
        path = self._folder / ROWS
        if not path.exists():
            return []
        if ROWS not in self._record["files"]:
            hint = "move the file away, or choose another folder with -o"
            raise UserError(f"is not listed in {BOARD.file}", where=path, hint=hint)
        BOARD.require_intact(self._folder, self._record, ROWS)
        frame: pd.DataFrame = read_parquet(path, record=BOARD).to_pandas(ignore_metadata=True)
        words = (*_WORDS, *Cell._fields[:3])
        kinds = (
            dict.fromkeys(words, str)
            | dict.fromkeys(Cell._fields[3:], int)
            | dict.fromkeys(FIGURES, float)
        )
        rows = frame.to_dict("records")
        for name, kind in kinds.items():
            if not all(type(row.get(name)) is kind for row in rows):
                raise BOARD.damaged(path, f"the column {name} is missing, or of another type")
        figures = frame[[*FIGURES]].to_numpy(float)
        least = [-(2**53) if name in _OF_METRIC else 0 for name in FIGURES]
        most = [1 if name in _SHARES else 2**53 for name in FIGURES]
        if (
            ((figures < least) | (figures > most)).any()
            or (frame["time_s"] < 1e-9).any()
            or (frame["time_s"] > frame["simulated_s"]).any()
        ):
            raise BOARD.damaged(path, "has values that no run has")
        if frame.duplicated([*Cell._fields]).any():
            raise BOARD.damaged(path, "has two rows of one run")
        return rows


def run_board(
    suite: Suite,
    folder: Path,
    *,
    jobs: int | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> Rows:
    """Perform every run of a suite that has no row in the folder yet.

    Args:
        suite: the scenarios and entries.
        folder: keeps the rows.
        jobs: runs at a time; the number of cores if None.
        on_progress: called after every run.
    """
    total, before = sum(map(suite.size, suite.scenarios.values())), 0
    with claimed(folder, BOARD):
        rows = Rows(folder, suite)
        for question in suite.scenarios.values():
            entries = suite.fitting(question)
            cells = [cell for entry in entries for cell in suite.tuning(question, entry)]

            def report(done: int, name: str = question.name, before: int = before) -> None:
                on_progress(name, total, before + done)

            before += suite.size(question)
            _perform(suite, rows, cells, folder, jobs, report)
            for entry in entries:
                setting = chosen_setting(suite, rows, question, entry)
                cells += suite.measuring(question, entry, setting)
            _perform(suite, rows, cells, folder, jobs, report)
    return rows


def chosen_setting(suite: Suite, rows: Rows, question: Question, entry: Entry) -> int:
    """The setting with which an entry is measured: the first to the target on the tuning seeds.

    A run that misses the target counts with twice the horizon; among settings that always miss it, the one whose best
    value is closest to the target wins.
    """
    tuned = rows.of(suite.tuning(question, entry))
    cost = tuned["time_s"].fillna(2 * question.horizon_s) + tuned["missed_by"].clip(lower=0).fillna(
        math.inf
    )
    costs = cost.groupby(tuned["setting"]).mean()
    return int(costs.index[int(costs.argmin())])


def _perform(
    suite: Suite,
    rows: Rows,
    cells: Sequence[Cell],
    folder: Path,
    jobs: int | None,
    report: Callable[[int], None],
) -> None:
    def add(cell: Cell, **values: Any) -> None:
        question = suite.scenarios[cell.scenario]
        row = {
            **cell._asdict(),
            "digest": question.digest(),
            "code": suite.code(cell.scenario, cell.entry),
            "error": "",
            **dict.fromkeys(FIGURES, math.nan),
        }
        rows.add({**row, **values})
        report(sum(cell in rows for cell in cells))

    def finished(result: Result | None) -> None:
        if result is None:
            return
        cell, path = todo[result.task.number], result.task.folder
        if result.error is None:
            add(cell, **measure(load_run(path), suite.scenarios[cell.scenario]))
        else:
            add(cell, error=result.error)
        shutil.rmtree(path, ignore_errors=True)
        if len(rows) % _SAVE_EVERY == 0:
            rows.save()

    todo: list[Cell] = []
    tasks: list[Task] = []
    with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=folder) as runs:
        for cell in cells:
            if cell in rows:
                continue
            try:
                loaded = suite.loaded(cell)
            except UserError as error:
                add(cell, error=str(error))
                continue
            number = len(tasks)
            run = Path(runs) / f"{number}-{cell.scenario.replace('/', '-')}"
            tasks.append(Task.of(number, run, loaded))
            todo.append(cell)
        perform(Path(runs), tasks, Shares(len(tasks)), finished, rows.save, jobs)


FIGURES: Mapping[str, str] = {
    "time_s": "simulated seconds to the target; NaN if it was missed",
    "versions": "server updates to the target",
    "updates": "client updates in the model at the target",
    "bytes": "data moved until the target",
    "energy_j": "energy of the work dispatched and ended until the target",
    "missed_by": "distance of the best value of the metric from the target; negative if better",
    "at_time_budget": "the metric after the budget of time",
    "at_byte_budget": "the metric after the budget of bytes",
    "worst_tenth": "mean accuracy of the tenth of the clients with the lowest, at the end",
    "contributed": "share of the clients that gave an update",
    "updates_per_h": "client updates per simulated hour that entered the model",
    "staleness": "mean staleness of these updates, in versions",
    "lost": "share of the local steps that never entered the model",
    "per_version": "client updates per server update",
    "simulated_s": "simulated seconds of the whole run",
    "wall_s": "wall seconds of the run",
}
"""Columns of the rows besides those of a cell, ``digest`` and ``error``."""
_SHARES = ("contributed", "lost")
_OF_METRIC = ("missed_by", "at_time_budget", "at_byte_budget", "worst_tenth")
"""Figures with the bounds of a metric."""


def measure(run: Run, question: Question) -> dict[str, float]:
    """The :data:`FIGURES` of a run."""
    facts = read_facts(run, {})
    metric, value = question.target
    costs = reaching(facts, Target(metric, value))
    sign = 1 if facts.definition(metric).higher_is_better else -1
    worst = facts.progress.get("client_accuracy_worst", np.zeros(0))
    worst = worst[~np.isnan(worst)]
    figures, dispatches = facts.figures, run.dispatches
    energy_j = dispatches.loc[dispatches["ended_s"] <= costs["time_s"], "energy_j"]
    return {
        "time_s": costs["time_s"],
        "versions": costs["version"],
        "updates": costs["client_updates"],
        "bytes": costs["bytes"],
        "energy_j": math.nan if math.isnan(costs["time_s"]) else float(energy_j.sum()),
        "missed_by": sign * (value - facts.best(metric)),
        "at_time_budget": _after(facts, metric, "time_s", question.budget_s),
        "at_byte_budget": _after(facts, metric, "bytes", question.budget_bytes),
        "worst_tenth": float(worst[-1]) if len(worst) else math.nan,
        "contributed": figures["contributed"],
        "updates_per_h": figures["client_updates_per_h"],
        "staleness": figures["staleness_mean"],
        "lost": figures["lost_steps"],
        "per_version": figures["per_update"],
        "simulated_s": figures["simulated_s"],
        "wall_s": figures["wall_s"],
    }


def _after(facts: RunFacts, metric: str, cost: str, budget: float) -> float:
    known = ~np.isnan(facts.progress[metric])
    spent, values = facts.progress[cost][known], facts.progress[metric][known]
    if spent[-1] < budget:
        return math.nan
    return float(values[np.searchsorted(spent, budget, side="right") - 1])
