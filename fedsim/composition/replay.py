"""Runs the beginning of a scenario three times, and names the first difference and the user's part that caused it.

The first two runs are made in separate processes, with different seeds of string hashes and of the global random
generators. The third one follows the second in its process, one dispatch at a time, and is resumed from a checkpoint in
the middle. So a part differs that draws from a global generator, depends on the order of a set, keeps state where no
checkpoint and no new run finds it, or depends on what is trained together.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedsim.analysis.run import Run, load_run
from fedsim.composition.execution import OnProgress, execute, resume
from fedsim.composition.resuming import OF_TIME
from fedsim.errors import UserError
from fedsim.parts.component import users_line, users_report
from fedsim.parts.functions import mistake_in_class
from fedsim.processes.stopping import request
from fedsim.runs.checkpoint import Checkpoints, load_model
from fedsim.runs.progress import Progress
from fedsim.scenario.loading import LoadedScenario, load_scenario
from fedsim.scenario.own_code import write_sources
from fedsim.scenario.parts import Part
from fedsim.scenario.source import to_yaml
from fedsim.vocabulary.formatting import format_count, format_counted
from fedsim.vocabulary.timeline import TimelineDiffers

if TYPE_CHECKING:
    from torch import Tensor

DISPATCHES = 50
AGGREGATIONS = 2
_TOLERANCE = 1e-3
"""Largest difference between groups of different sizes on a GPU, relative to the largest entry of a tensor."""
_DIFFERENCE, _MISTAKE = "difference.txt", "mistake.json"
"""Files in which a process leaves why it has failed."""

_RANDOM_NUMBERS: Mapping[str, str] = {
    "method": "draw from self.context.generator(...), keyed by version, or by client and sequence",
    "selection": "draw from self.generator()",
    "schedule": "draw from self.selection.generator()",
    "compute": "draw from np.random.default_rng(self.context.seed), made in the function that uses it",
    "availability": "draw from np.random.default_rng(self.context.seed), made in index",
    "network": "draw from np.random.default_rng(context.seed), made in build",
    "partition": "draw from the argument rng of assign",
    "dataset": "draw from np.random.default_rng(0), made in load",
    "model": "use dropout layers, or functions of torch.nn.functional, for randomness",
    "task": "draw from the argument stream of initial and noise",
}
"""Where a part of each kind gets its random numbers; parts of other kinds need none."""
_STATE: Mapping[str, str] = {
    "method": "keep what the server remembers in its state and what a client remembers in memories(), and compute "
    "every row from that row alone",
    "optimizer": "keep state in attributes that __init__ sets, and compute every row from that row alone",
    "model": "keep state in floating-point buffers",
    "task": "compute every row from that row alone",
    "metric": "compute the metric from its arguments alone",
}
_LEARNING = ("method", "optimizer", "lr_schedule", "model", "task", "dataset", "partition")
_CAUSES: Mapping[str, tuple[str, ...]] = {
    "client_id": ("selection", "schedule", "availability"),
    "dispatched_s": ("schedule", "selection", "availability"),
    "version": ("schedule", "selection"),
    "round": ("schedule", "selection"),
    "group": ("schedule", "selection"),
    "steps_assigned": ("schedule", "partition", "dataset", "task", "compute"),
    "downloaded_s": ("network", "transport", "availability"),
    "download_s": ("network", "transport", "availability"),
    "computed_s": ("compute", "availability", "partition", "dataset"),
    "compute_s": ("compute", "availability", "partition", "dataset"),
    "arrived_s": ("network", "transport", "availability"),
    "upload_s": ("network", "transport", "availability"),
    "outcome": ("availability", "network", "transport", "schedule"),
    "ended_s": ("availability", "network", "transport", "schedule"),
}
"""The kinds of parts that may be the cause of a difference in a column, the most probable one first."""


@dataclass(frozen=True)
class Replay:
    """The beginning of a scenario, the same in all runs.

    Attributes:
        dispatches: dispatches that have ended in it.
        aggregations: its server updates.
    """

    dispatches: int
    aggregations: int

    def __str__(self) -> str:
        dispatches = format_count(self.dispatches)
        aggregations = format_counted(self.aggregations, "server update")
        return f"dispatches ({dispatches}) and {aggregations} are the same in three runs"


def replay(
    loaded: LoadedScenario, dispatches: int = DISPATCHES, aggregations: int = AGGREGATIONS
) -> Replay:
    """Run the beginning of a scenario three times, and compare timeline, tables and models.

    Args:
        loaded: the scenario; its trackers are left out, and so is its sweep.
        dispatches: the beginning has at least this many dispatches.
        aggregations: and at least this many server updates, unless the run ends before.

    Raises:
        UserError: the runs differ, or one of them fails.
    """
    with tempfile.TemporaryDirectory(prefix="fedsim-replay-") as name:
        folder = Path(name)
        data = loaded.resolved() | {"logging": [], "sweep": None, "checkpoint_models": None}
        (folder / "scenario.yaml").write_text(to_yaml(data), encoding="utf-8")
        write_sources(folder, loaded.sources())
        processes = [
            _start(folder, number, kinds, dispatches, aggregations)
            for number, kinds in enumerate((["first"], ["second", "eager"]), start=1)
        ]
        outputs = [process.communicate()[0] for process in processes]
        if processes[0].returncode:
            raise _failure(folder, outputs[0])
        first, fails = load_run(folder / "first"), bool(processes[1].returncode)
        exact = loaded.scenario.training.device == "cpu" or not _has_gpu()
        for kind in ("second", "eager"):
            # A run that fails, or whose resumed part repeats another timeline, may differ before it does.
            if (folder / kind).exists():
                resumed = kind == "eager"
                difference = _difference(
                    first, load_run(folder / kind), exact=exact or not resumed, whole=not fails
                )
                if difference is not None:
                    raise _error(loaded, *difference, resumed=resumed)
        if fails:
            if (folder / _DIFFERENCE).exists():
                words = (folder / _DIFFERENCE).read_text(encoding="utf-8")
                raise _error(loaded, words, OF_TIME, resumed=True)
            raise _failure(folder, outputs[1])
        return Replay(len(first.dispatches), len(first.aggregations))


# -- the processes that run the beginning ------------------------------------------------------------------------------


def _start(
    folder: Path, number: int, kinds: list[str], dispatches: int, aggregations: int
) -> subprocess.Popen[str]:
    arguments = {
        "folder": str(folder),
        "number": number,
        "kinds": kinds,
        "dispatches": dispatches,
        "aggregations": aggregations,
    }
    environment = {"PYTHONHASHSEED": str(number), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(arguments)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _perform(
    folder: Path, *, number: int, kinds: list[str], dispatches: int, aggregations: int
) -> None:
    """Run the beginning of the scenario in ``folder`` in this process, once for each kind of run."""
    import torch

    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 - users' code may draw from it
    torch.manual_seed(number)
    scenario, whole = folder / "scenario.yaml", _until(dispatches, aggregations)
    for kind in kinds:
        with contextlib.suppress(KeyboardInterrupt):
            if kind == "eager":
                loaded = load_scenario(scenario, overrides=["training.verify=eager"])
                middle = _until(dispatches // 2, aggregations // 2)
                with contextlib.suppress(KeyboardInterrupt):
                    execute(loaded, folder / kind, on_progress=middle)
                resume(folder / kind, on_progress=whole)
            else:
                execute(load_scenario(scenario), folder / kind, on_progress=whole)


def _until(dispatches: int, aggregations: int) -> OnProgress:
    """A function that interrupts a run after this many dispatches and server updates, with a checkpoint."""

    def on_progress(progress: Progress) -> None:
        if progress.dispatched >= dispatches and progress.version >= aggregations:
            request(signal.SIGINT)

    return on_progress


def _main(arguments: Mapping[str, Any]) -> None:
    folder = Path(arguments["folder"])
    try:
        _perform(folder, **{key: value for key, value in arguments.items() if key != "folder"})
    except Exception as error:
        users = error if isinstance(error, UserError) else mistake_in_class(error)
        if users is None:
            report = users_report(error)
            print(report or traceback.format_exc(), end="")
            where = users_line(error)
            users = UserError("your own code fails with the error below", where=where)
            if report is None:
                raise
        if isinstance(users.__context__, TimelineDiffers):
            (folder / _DIFFERENCE).write_text(
                users.__context__.message.partition(": ")[2], encoding="utf-8"
            )
        mistake = {"message": users.message, "where": users.where, "hint": users.hint}
        (folder / _MISTAKE).write_text(json.dumps(mistake), encoding="utf-8")
        sys.exit(2)


def _failure(folder: Path, output: str) -> UserError:
    """The error for a run that has failed."""
    path = folder / _MISTAKE
    if not path.exists():
        raise RuntimeError(f"a run of the beginning of the scenario has failed:\n{output}")
    mistake = json.loads(path.read_text(encoding="utf-8"))
    message = f"{mistake['message']}, in a run of the beginning of the scenario"
    if mistake["hint"] is None:
        mistake["hint"] = output.strip() or None
    return UserError(message, where=mistake["where"], hint=mistake["hint"])


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


# -- the first difference ----------------------------------------------------------------------------------------------


def _difference(
    first: Run, other: Run, *, exact: bool, whole: bool
) -> tuple[str, tuple[str, ...]] | None:
    """The first difference in words, and the kinds of parts that may be its cause or the name of a metric.

    Args:
        first, other: runs of the same beginning.
        exact: whether models and metrics must have the same bits.
        whole: whether both have come to the end of the beginning.
    """
    found = list(_different_rows(first, other, exact=exact, whole=whole))
    if found or not whole:
        return min(found, key=lambda one: one[0])[1:] if found else None
    largest = _different_tensor(_tensors(first), _tensors(other), 0.0 if exact else _TOLERANCE)
    return None if largest is None else (f"{largest} differs at the end", _LEARNING)


def _different_rows(
    first: Run, other: Run, *, exact: bool, whole: bool
) -> Iterator[tuple[tuple[float, int], str, tuple[str, ...]]]:
    """Time and rank, words and causes of the differences between the tables of two runs."""
    for rank, table in enumerate(("dispatches", "aggregations", "metrics")):
        if table == "metrics" and not exact:
            continue
        rows, others = (_rows(getattr(run, table)) for run in (first, other))
        for number, (row, now) in enumerate(zip_longest(rows, others)):
            if row is None or now is None:
                if not whole:
                    break
                only: dict[str, Any] = row or now or {}
                time_s = only["dispatched_s" if table == "dispatches" else "time_s"]
                words = f"there are {len(others)} rows instead of {len(rows)} in the table {table}"
                yield (time_s, rank), words, ("schedule", "selection", "availability")
                break
            columns = [key for key in row if not np.array_equal(row[key], now[key])]
            for column in columns:
                time_s = _time_s(column, row, now)
                yield (time_s, rank), *_in_words(table, column, columns, number, row, now)


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table, with None for an absent value."""
    rows: Any = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return list(rows)


def _time_s(column: str, row: Mapping[str, Any], now: Mapping[str, Any]) -> float:
    """The simulated time at which the two values of a column came about."""
    if "time_s" in row:
        return float(min(row["time_s"], now["time_s"]))
    if column in ("client_id", "version", "round", "steps_assigned", "sequence"):
        column = "dispatched_s"
    times = [one[column if column.endswith("ed_s") else "ended_s"] for one in (row, now)]
    return float(min(time_s for time_s in times if time_s is not None))


def _in_words(
    table: str,
    column: str,
    columns: list[str],
    number: int,
    row: Mapping[str, Any],
    now: Mapping[str, Any],
) -> tuple[str, tuple[str, ...]]:
    """A difference in words, and the kinds of parts that may be its cause or the name of a metric."""
    if table == "dispatches":
        what = f"dispatch {row['dispatch_id']}"
        if column == "client_id":
            return f"{what} goes to client {now[column]} instead of {row[column]}", _CAUSES[column]
        causes = _CAUSES.get(column, _CAUSES["ended_s"])
        return f"{what} has {column} = {now[column]} instead of {row[column]}", causes
    if table == "aggregations":
        what = f"version {number + 1} has {column} = {now[column]} instead of {row[column]}"
        return what, ("schedule", "selection", "availability")
    what = f"{column} of version {row['version']} is {now[column]} instead of {row[column]}"
    return what, (column,) if columns == [column] and column != "loss" else _LEARNING


def _tensors(run: Run) -> dict[str, Tensor]:
    """The model of a complete run, or the server state and memories of an interrupted one."""
    if run.folder.model.exists():
        model, personal = load_model(run.folder.model)
        return model | personal
    checkpoint = Checkpoints(run.folder.checkpoint).load()
    tensors = {} if checkpoint is None else checkpoint[0]
    kept = ("server/", "memory/")
    return {name: value for name, value in tensors.items() if name.startswith(kept)}


def _different_tensor(
    tensors: Mapping[str, Tensor], others: Mapping[str, Tensor], tolerance: float
) -> str | None:
    """The name of the first tensor that is missing or differs by more than ``tolerance`` of its largest entry."""
    import torch

    for name in [*tensors, *(others.keys() - tensors.keys())]:
        one, other = tensors.get(name), others.get(name)
        if one is None or other is None or one.shape != other.shape:
            return name
        if torch.equal(one, other):
            continue
        largest = float(one.double().abs().max())
        gap = (one.double() - other.double()).abs().nan_to_num()
        if not tolerance or float(gap.max()) > tolerance * largest:
            # NaN differs from itself, so the entries are compared once more.
            if bool(((one == other) | (one.isnan() & other.isnan())).all()):
                continue
            return name
    return None


def _error(
    loaded: LoadedScenario, difference: str, causes: tuple[str, ...], *, resumed: bool
) -> UserError:
    """The error for a difference, with the user's parts that may be the cause."""
    parts = [part for part in loaded.parts() if part.user is not None]
    suspects = [part for kind in causes for part in parts if _is_of(part, kind)]
    suspects = suspects or [part for part in parts if part.kind != "logging"]
    how = "in a later run of the process" if resumed else "in another process"
    if not suspects:
        return UserError(
            f"{difference} {how}, although no part of the scenario is a user's",
            hint="this is a defect of fedsim or of a library; please report it with the scenario",
        )
    names = " or ".join(f"the {part.kind} {Path(part.name).name}" for part in suspects)
    kind = suspects[0].kind
    if resumed:
        why = "it keeps state outside its object"
        if kind in (*_LEARNING, "metric"):
            why = (
                "it keeps state that no checkpoint contains, or depends on what is trained together"
            )
        remedy = _STATE.get(kind, "keep state in attributes that __init__ sets")
    else:
        why = "it draws from a global random generator, or depends on the order of a set or of threads"
        remedy = _RANDOM_NUMBERS.get(kind, "compute the result from the arguments alone")
    return UserError(
        f"{difference} {how}, because of {names}: {why}", where=suspects[0].where, hint=remedy
    )


def _is_of(part: Part[Any], cause: str) -> bool:
    """Whether a part is of a kind, or the metric of a name."""
    name = cause in (getattr(part.component, "name", ""), part.name.rpartition(":")[2])
    return part.kind == cause or (part.kind == "metric" and name)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
