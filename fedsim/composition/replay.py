"""Runs the beginning of a scenario three times, and names the first difference and the user's part that caused it.

The first two runs are made in separate processes, with different seeds of string hashes and of the global random
generators. The third one follows the second in its process, one dispatch at a time, and is resumed from a checkpoint in
the middle. So a part differs that draws from a global generator, depends on the order of a set, keeps state where no
checkpoint and no new run finds it, or depends on what is trained together.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.analysis.run import Run, load_run
from fedsim.composition.resuming import OF_TIME
from fedsim.composition.run import OnProgress, execute, resume
from fedsim.errors import UserError
from fedsim.parts.component import users_line, users_report
from fedsim.processes.stopping import request
from fedsim.runs.checkpoint import load_model
from fedsim.runs.progress import Progress
from fedsim.scenario.loading import LoadedScenario, load_scenario
from fedsim.scenario.own_code import write_sources
from fedsim.scenario.source import to_yaml
from fedsim.vocabulary.formatting import format_count, format_counted
from fedsim.vocabulary.timeline import TimelineDiffers

if TYPE_CHECKING:
    from torch import Tensor

DISPATCHES = 50
AGGREGATIONS = 2
_TOLERANCE = 1e-3
"""Largest difference between groups of different sizes on a GPU, relative to the largest entry of a tensor."""
_TIMELINE = "timeline.txt"
"""File in which a process leaves how the timeline of its resumed run differs."""

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
_CHOICES = ("schedule", "selection", "availability")
_TRANSFERS = ("network", "transport", "exchange", "availability")
_STEPS = ("compute", "availability", "partition", "dataset")
_CAUSES: Mapping[str, tuple[str, ...]] = {
    "client_id": ("selection", "schedule", "availability"),
    "steps_assigned": ("schedule", "partition", "dataset", "task", "compute"),
    **dict.fromkeys(("dispatched_s", "version", "round", "group", "sequence"), _CHOICES),
    **dict.fromkeys(("downloaded_s", "download_s", "arrived_s", "upload_s"), _TRANSFERS),
    **dict.fromkeys(("computed_s", "compute_s"), _STEPS),
}
"""The kinds of parts that may be the cause of a difference in a column, the most probable one first."""
_OF_ENDS = (*_TRANSFERS, "schedule")
_AT_START = ("client_id", "version", "round", "steps_assigned", "sequence")
"""Columns of a dispatch that are known when it begins."""


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

    The beginning has at least so many dispatches and server updates, unless the run ends before. Trackers are left out,
    and so is the sweep.

    Raises:
        UserError: the runs differ, or one of them fails.
    """
    import torch

    with tempfile.TemporaryDirectory(prefix="fedsim-replay-") as name:
        folder = Path(name)
        data = loaded.resolved() | {"logging": [], "sweep": None, "checkpoint_models": None}
        (folder / "scenario.yaml").write_text(to_yaml(data), encoding="utf-8")
        write_sources(folder, loaded.sources())
        arguments = (name, str(dispatches), str(aggregations))
        processes = [
            seeded_process("1", __name__, "1", *arguments, "first"),
            seeded_process("2", __name__, "2", *arguments, "second", "eager"),
        ]
        outputs = [process.communicate()[0] for process in processes]
        first_fails, fails = (bool(process.returncode) for process in processes)
        exact = loaded.scenario.training.device == "cpu" or not torch.cuda.is_available()
        for kind in () if first_fails else ("second", "eager"):
            # A run that fails, or whose resumed part repeats another timeline, may differ before it does.
            if (folder / kind).exists():
                runs, resumed = (
                    (load_run(folder / "first"), load_run(folder / kind)),
                    kind == "eager",
                )
                difference = _difference(*runs, exact=exact or not resumed, whole=not fails)
                if difference is not None:
                    raise _error(loaded, difference.words, difference.causes, resumed=resumed)
        if (folder / _TIMELINE).exists():
            text = (folder / _TIMELINE).read_text(encoding="utf-8")
            raise _error(loaded, text, OF_TIME, resumed=True)
        for process, output in zip(processes, outputs, strict=True):
            if process.returncode:
                message = "a run of the beginning of the scenario has failed"
                if process.returncode != 2:
                    raise RuntimeError(f"{message}:\n{output}")
                raise UserError(message, hint=output.strip())
        first = load_run(folder / "first")
        return Replay(len(first.dispatches), len(first.aggregations))


# -- the processes that run the beginning ------------------------------------------------------------------------------


def seeded_process(number: str, module: str, *arguments: Any) -> subprocess.Popen[str]:
    """A Python process that runs a module; ``number`` is the seed of its string hashes."""
    environment = {"PYTHONHASHSEED": number, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _main(number: str, name: str, dispatches: str, aggregations: str, *kinds: str) -> None:
    """Run the beginning of the scenario in a folder in this process, once for each kind of run."""
    import torch

    random.seed(int(number))
    np.random.seed(int(number))  # noqa: NPY002 - users' code may draw from it
    torch.manual_seed(int(number))
    folder = Path(name)
    whole = _until(int(dispatches), int(aggregations))
    middle = _until(int(dispatches) // 2, int(aggregations) // 2)
    try:
        for kind in kinds:
            eager = ["training.verify=eager"] if kind == "eager" else []
            loaded = load_scenario(folder / "scenario.yaml", overrides=eager)
            with contextlib.suppress(KeyboardInterrupt):
                execute(loaded, folder / kind, on_progress=middle if eager else whole)
            if eager:
                with contextlib.suppress(KeyboardInterrupt):
                    resume(folder / kind, on_progress=whole)
    except Exception as error:
        if isinstance(error.__context__, TimelineDiffers):
            difference = error.__context__.message.partition(": ")[2]
            (folder / _TIMELINE).write_text(difference, encoding="utf-8")
        report = users_report(error)
        if isinstance(error, UserError):
            print(error)
        elif report is not None:
            print(f"{users_line(error)}: your own code fails with this error:\n{report}")
        else:
            raise
        sys.exit(2)


def _until(dispatches: int, aggregations: int) -> OnProgress:
    """A function that interrupts a run after this many dispatches and server updates, with a checkpoint."""

    def on_progress(progress: Progress) -> None:
        if progress.dispatched >= dispatches and progress.version >= aggregations:
            request(signal.SIGINT)

    return on_progress


# -- the first difference ----------------------------------------------------------------------------------------------


class _Difference(NamedTuple):
    """When (in which table) two runs differ, in words, and the kinds of parts, or the metric, that may be the cause."""

    when: tuple[float, int]
    words: str
    causes: tuple[str, ...]


def _difference(first: Run, other: Run, *, exact: bool, whole: bool) -> _Difference | None:
    """The first difference between runs of the same beginning.

    Args:
        first, other: the runs.
        exact: whether models and metrics must have the same bits.
        whole: whether both have come to the end of the beginning.
    """
    import torch

    if differences := list(_different_rows(first, other, exact=exact, whole=whole)):
        return min(differences, key=lambda one: one.when)
    if not whole:
        return None
    tensors, others = _tensors(first), _tensors(other)
    for name in [*tensors, *(others.keys() - tensors.keys())]:
        one, now = tensors.get(name), others.get(name)
        if one is not None and now is not None and one.shape == now.shape:
            largest = float(one.double().abs().max()) if one.numel() else 0.0
            within = 0.0 if exact else _TOLERANCE * largest
            if torch.allclose(one.double(), now.double(), 0.0, within, equal_nan=True):
                continue
        return _Difference((math.inf, 0), f"{name} differs at the end", _LEARNING)
    return None


def _different_rows(first: Run, other: Run, *, exact: bool, whole: bool) -> Iterator[_Difference]:
    for rank, table in enumerate(("dispatches", "aggregations", "metrics")):
        if table == "metrics" and not exact:
            continue
        frames = (getattr(run, table).astype(object) for run in (first, other))
        rows, others = (frame.where(frame.notna(), None).to_dict("records") for frame in frames)
        for row, now in zip(rows, others, strict=False):
            columns = [key for key in row if not np.array_equal(row[key], now[key])]
            for column in columns:
                causes: tuple[str, ...] = _CHOICES
                which, when = f"version {row['version']} has", "time_s"
                if table == "metrics":
                    causes = (column,) if columns == [column] and column != "loss" else _LEARNING
                    which = f"the metrics of version {row['version']} have"
                elif table == "dispatches":
                    causes = _CAUSES.get(column, _OF_ENDS)
                    which = f"dispatch {row['dispatch_id']} has"
                    when = column if column.endswith("ed_s") else "ended_s"
                    when = "dispatched_s" if column in _AT_START else when
                time_s = min(one[when] for one in (row, now) if one[when] is not None)
                words = f"{which} {column} = {now[column]} instead of {row[column]}"
                yield _Difference((time_s, rank), words, causes)
        if whole and len(rows) != len(others):
            (row, *_) = max(rows, others, key=len)[min(len(rows), len(others)) :]
            time_s = row["dispatched_s" if table == "dispatches" else "time_s"]
            words = f"there are {len(others)} rows instead of {len(rows)} in the table {table}"
            yield _Difference((time_s, rank), words, _CHOICES)


def _tensors(run: Run) -> dict[str, Tensor]:
    """The model of a complete run, or the server state and memories of an interrupted one."""
    if run.folder.model.exists():
        model, personal = load_model(run.folder.model)
        return model | personal
    checkpoint = run.folder.checkpoints(run.info).load()
    tensors = {} if checkpoint is None else checkpoint[0]
    kept = ("server/", "memory/")
    return {name: value for name, value in tensors.items() if name.startswith(kept)}


def _error(
    loaded: LoadedScenario, difference: str, causes: tuple[str, ...], *, resumed: bool
) -> UserError:
    """The error for a difference, with the user's parts that may be the cause."""
    parts = [part for part in loaded.parts() if part.user is not None]
    suspects = [
        part
        for cause in causes
        for part in parts
        if part.kind == cause
        or (part.kind == "metric" and cause in (part.type.name, part.name.rpartition(":")[2]))
    ]
    suspects = suspects or [part for part in parts if part.kind != "logging"]
    if resumed:
        difference += " in a later run of the process"
    else:
        difference += " in another process"
    if not suspects:
        return UserError(
            f"{difference}, although no part of the scenario is a user's",
            hint="this is a defect of fedsim or of a library; please report it with the scenario",
        )
    kind, names = suspects[0].kind, [f"the {part.kind} {Path(part.name).name}" for part in suspects]
    if not resumed:
        why = "draws from a global random generator, or depends on the order of a set or of threads"
        remedy = _RANDOM_NUMBERS.get(kind, "compute the result from the arguments alone")
    else:
        why = "keeps state outside its object"
        if kind in (*_LEARNING, "metric"):
            why = "keeps state that no checkpoint contains, or depends on what is trained together"
        remedy = _STATE.get(kind, "keep state in attributes that __init__ sets")
    message = f"{difference}, because of {' or '.join(names)}: it {why}"
    return UserError(message, where=suspects[0].where, hint=remedy)


if __name__ == "__main__":
    _main(*sys.argv[1:])
