"""The log of a real run as a run folder, so that it can be compared with simulated runs."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.calibration.estimates import unit_flags
from fedsim.calibration.log import numbered, read_log
from fedsim.errors import UserError, printable
from fedsim.files.lines import WHOLE_ROUNDS
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.writer import RunWriter
from fedsim.scenario.source import to_yaml
from fedsim.vocabulary.outcomes import OUTCOME_LABELS, Outcome
from fedsim.vocabulary.timeline import Aggregate, Contribution

_COUNTS = ["steps", "bytes_down", "bytes_up"]
_NEEDS = {"lost_steps": ["steps"], "bytes": _COUNTS[1:], "lost_bytes": _COUNTS[1:]}
"""Columns without which a figure is unknown, if an update that arrived lacks them."""
_OF_CLIENTS = (
    "client_updates_per_h",
    "per_update",
    "contributed",
    "gini",
    "dispatches",
    "lost_dispatches",
)
"""Figures that a log of whole rounds cannot give."""
_UNKNOWN = ("energy_j", "compute_s", "paused_s", "lost_seconds")
_OF_PHASES = ("downloaded_s", "computed_s", "download_s", "compute_s", "upload_s")


@contextlib.contextmanager
def logs_as_runs(paths: Any) -> Iterator[list[Any]]:
    """Paths in which each log is replaced by a run folder that exists within the block."""
    is_one = isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable)
    listed = [paths] if is_one else list(paths)
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(listed):
            if not isinstance(path, str | os.PathLike) or Path(path).is_dir():
                continue
            if Path(path).exists():  # It may be a pipe.
                listed[number] = Path(folder) / str(number) / _name(path)
                write_run(Path(path), RunFolder(listed[number]))
        yield listed


def _name(path: str | os.PathLike[str]) -> str:
    return str(printable(Path(path).name, lines=False))


def write_run(path: Path, folder: RunFolder) -> None:
    """Write a log as a run folder without metrics, energy and phases; ``run.json`` names the figures it cannot give.

    An update enters the first version that was dispatched at its arrival or later. The version is made when the last
    of its updates arrives, or when it is dispatched first if the round before it lost an update. A dispatch that never
    arrived ends with its round if the log does not say when.
    """
    log = read_log(path)
    clients = log.clients()
    rows = numbered(log.dispatches, clients)
    if rows["round"].isna().any():
        hint = "write the number of the round, or the version of the model that was dispatched"
        message = "to be compared, a log needs the column round in every row"
        raise UserError(message, where=path, hint=hint)
    rounds, version = np.unique(rows["round"], return_inverse=True)
    begin_s = rows.groupby(version)["start_s"].min().to_numpy()
    if (back := np.flatnonzero(np.diff(begin_s) < 0)).size:
        message = f"round {rounds[back[0] + 1]:g} begins before round {rounds[back[0]]:g}"
        raise UserError(message, where=path, hint="number the rounds in order of time")
    start_s, arrived_s = rows["start_s"].to_numpy(), rows["end_s"].to_numpy()
    came, over_s = ~np.isnan(arrived_s), float(rows[["start_s", "end_s", "ended_s"]].max().max())
    codes = rows["outcome"].astype(object).map(OUTCOME_LABELS.index, na_action="ignore").fillna(0)
    outcome = np.where(came | (codes > 0), codes, Outcome.DROPPED).astype(np.int8)
    entered = np.maximum(np.searchsorted(begin_s, arrived_s), version + 1)
    entered = np.where(outcome == Outcome.AGGREGATED, entered, -1)
    closed_s = np.maximum(np.append(begin_s[1:], over_s)[version], start_s)
    ended_s = np.where(came, arrived_s, rows["ended_s"].fillna(rows["start_s"] * 0 + closed_s))
    counts = rows[_COUNTS].fillna(0).astype(np.int64)
    columns = {
        **dict.fromkeys(_OF_PHASES, np.full(len(rows), np.nan)),
        **{name: counts[name].to_numpy() for name in _COUNTS},
        "dispatch_id": np.arange(len(rows)),
        "client_id": rows["client"].to_numpy(),
        "version": version,
        "round": version,
        "dispatched_s": start_s,
        "arrived_s": arrived_s,
        **{f"steps_{name}": counts["steps"].to_numpy() for name in ("assigned", "done")},
        "outcome": outcome,
        "staleness": np.where(entered > 0, entered - 1 - version, -1),
        "aggregated_version": entered,
        "energy_j": np.zeros(len(rows)),
        "sequence": rows.groupby("client").cumcount().to_numpy(),
        "group": np.zeros(len(rows), np.int64),
        "ended_s": ended_s,
        "cause": np.full(len(rows), -1),
    }
    missing = rows[came].isna().any()
    unknown = [figure for figure, names in _NEEDS.items() if missing[names].any()]
    versions = int(max(len(begin_s) - 1, entered.max()))
    unknown += _OF_CLIENTS if WHOLE_ROUNDS in log.flags else ()
    step_s = rows["compute_s"].fillna(rows["end_s"] - rows["start_s"]) / rows["steps"]
    bits, wire_s = (
        8 * (rows["bytes_down"] + rows["bytes_up"]),
        rows["download_s"] + rows["upload_s"],
    )
    notes = [*log.flags, *unit_flags(step_s, bits / wire_s)]
    info = {"log": _name(path), "unknown": [*unknown, *_UNKNOWN], "clock": "wall", "seed": 0}
    info |= {"notes": notes, "clients": len(clients), "rounds": versions, "simulated_s": over_s}
    with folder.claimed():
        folder.begin(to_yaml({"name": Path(_name(path)).stem, "server": {}}), info)
        writer = RunWriter(folder, clients=len(clients), columns=lambda ended: ended[0])
        writer.append_dispatch(columns)
        for number in range(1, versions + 1):
            ids = np.flatnonzero(entered == number)
            ids = ids[np.argsort(arrived_s[ids], kind="stable")]
            stale = number - 1 - version[ids]
            clients_of = rows["client"].to_numpy()[ids]
            waited = not len(ids) or (entered[version == number - 1] < 0).any()
            made_s = begin_s[number] if waited and number < len(begin_s) else arrived_s[ids[-1]]
            updates = map(Contribution, ids.tolist(), clients_of.tolist(), stale.tolist())
            writer.append_aggregation(Aggregate(number, made_s, number - 1, tuple(updates)))
        writer.finish()
        folder.close(Status.COMPLETE)
