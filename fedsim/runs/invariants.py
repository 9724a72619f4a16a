"""The rules that every finished run obeys, regardless of its scenario; checked at the end of each run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.errors import InvariantViolation
from fedsim.runs.phases import (
    INSTANTS,
    WORK_PHASES,
    aggregated_versions,
    outcome_codes,
    rows_by_client,
)
from fedsim.runs.run import Run
from fedsim.runs.schema import LASTING_S, SPENT
from fedsim.vocabulary.arrays import Bools, Floats, Ints
from fedsim.vocabulary.outcomes import Outcome

Forbid = Callable[[Bools, str], None]


def verify_run(run: Run) -> None:
    """Check a finished run's consistency.

    Conservation (one outcome per dispatch, every aggregated update in exactly one server update), monotone time,
    consecutive versions, one dispatch at a time per client, no negative quantity, and clients that equal the sums
    over their dispatches.

    Raises:
        InvariantViolation: lists every broken rule with a row that breaks it.
    """
    messages: list[str] = []
    _dispatches(run, run.dispatches, run.phases, run.pauses, messages)
    if run.has_edges:
        _dispatches(run, run.edge_dispatches, run.edge_phases, None, messages)
        _aggregations(run, run.aggregations, run.edge_dispatches, messages)
        of_edge = dict(list(run.dispatches.groupby("edge")))
        for edge, versions in run.edge_aggregations.groupby("edge"):
            _aggregations(run, versions, of_edge.get(edge, run.dispatches[:0]), messages)
    else:
        _aggregations(run, run.aggregations, run.dispatches, messages)
    _metrics(run, messages)
    _clients(run, messages)
    if messages:
        raise InvariantViolation(f"{run.path} contradicts itself:\n  " + "\n  ".join(messages))


def _rules(table: str, keys: Ints, messages: list[str]) -> Forbid:
    """A function that records the violations of a rule in a table: how many rows break it, and the first such row."""

    def forbid(broken: Bools, rule: str) -> None:
        rows = np.flatnonzero(broken)
        if len(rows):
            messages.append(f"{table} {keys[rows[0]]} ({len(rows):,} in all): {rule}")

    return forbid


def _dispatches(
    run: Run,
    table: pd.DataFrame,
    phases: pd.DataFrame,
    pauses: pd.DataFrame | None,
    messages: list[str],
) -> None:
    ids = table["dispatch_id"].to_numpy()
    forbid = _rules("dispatch", ids, messages)
    forbid(ids != np.arange(len(ids)), "ids are not consecutive from 0")
    outcome = outcome_codes(table)
    forbid(outcome < 0, "has no outcome")
    entered = aggregated_versions(table) > 0
    forbid(entered != (outcome == Outcome.AGGREGATED), "outcome and aggregated_version disagree")

    dispatched, downloaded, computed, arrived, ended = (
        table[f"{name}_s"].to_numpy() for name in (*INSTANTS, "ended")
    )
    forbid(~(dispatched >= 0), "was dispatched before the start, or never")
    last = dispatched
    for name, mark in (("downloaded", downloaded), ("computed", computed), ("arrived", arrived)):
        forbid(mark < last, f"time runs backward at {name}_s")
        forbid(~np.isnan(mark) & np.isnan(last), f"has {name}_s without the phase before")
        last = np.where(np.isnan(last), last, mark)
    latest = np.fmax.reduce([dispatched, downloaded, computed, arrived])
    forbid(~(ended >= latest), "time runs backward at ended_s, or it never ended")
    forbid(~np.isnan(arrived) & (ended != arrived), "arrived, but ended at a different time")
    forbid(ended > run.simulated_s, "ended after the run")
    gone = (outcome == Outcome.DROPPED) | (outcome == Outcome.CUT)
    forbid(gone & ~np.isnan(arrived), "was dropped or cut, but arrived")
    came = (outcome == Outcome.AGGREGATED) | (outcome == Outcome.LATE)
    forbid(came & np.isnan(arrived), "is aggregated or late, but never arrived")

    has_cause = table["cause"].notna().to_numpy()
    forbid(
        has_cause != (outcome == Outcome.DROPPED),
        "cause and outcome disagree on whether it was dropped",
    )

    done = table["steps_done"].to_numpy()
    forbid(
        (done < 0) | (done > table["steps_assigned"].to_numpy()),
        "did more steps than assigned, or fewer than none",
    )
    for column in ("bytes_down", "bytes_up", "energy_j"):
        forbid(table[column].to_numpy() < 0, f"{column} is negative")
    whole_s = ended - dispatched
    worked_s = np.zeros_like(whole_s)
    for name in WORK_PHASES:
        spent_s = phases[f"{name}_s"].to_numpy()
        forbid(spent_s < 0, f"{name}_s is negative")
        worked_s += spent_s
    forbid(_differ(np.maximum(worked_s, whole_s), whole_s), "worked for longer than it lasted")
    compute_s = table["compute_s"].to_numpy()
    if not run.info.get("steps_ahead"):
        forbid(
            _differ(compute_s, phases["compute_s"].to_numpy()),
            "computed for longer than its steps lasted",
        )
    if pauses is not None:
        _pauses(run, pauses, messages)
    staleness = table["staleness"].to_numpy(dtype=np.int64, na_value=0)
    forbid(staleness < 0, "staleness is negative")

    order, is_followed = rows_by_client(table["client_id"], ids)
    heads = np.flatnonzero(~np.append(False, is_followed[:-1]))
    position = np.arange(len(order))
    sequence = np.empty_like(position)
    sequence[order] = position - np.repeat(heads, np.diff(heads, append=len(order)))
    forbid(
        table["sequence"].to_numpy() != sequence,
        "sequence is not the number of the client's earlier dispatches",
    )
    earlier, later = order[:-1][is_followed[:-1]], order[1:][is_followed[:-1]]
    overlaps = np.zeros(len(order), np.bool_)
    overlaps[later] = dispatched[later] < ended[earlier]
    forbid(overlaps, "its client was still working on its previous dispatch")


def _pauses(run: Run, pauses: pd.DataFrame, messages: list[str]) -> None:
    ids = run.dispatches["dispatch_id"].to_numpy()
    paused = pauses["dispatch_id"].to_numpy()
    begin, end = pauses["from_s"].to_numpy(), pauses["to_s"].to_numpy()
    forbid = _rules("dispatch", paused, messages)
    # Rows are numbered as dispatches are, which _dispatches checks.
    known = (paused >= 0) & (paused < len(ids))
    forbid(~known & (paused != -1), "paused, but is not among the dispatches")
    paused, begin, end = paused[known], begin[known], end[known]
    forbid = _rules("dispatch", paused, messages)
    dispatched, ended = (run.dispatches[f"{name}_s"].to_numpy() for name in ("dispatched", "ended"))
    forbid(~(begin < end), "has a pause that ends before it begins")
    forbid(
        (begin < dispatched[paused]) | (end > ended[paused]), "paused while it was not under way"
    )
    sums = np.bincount(paused, end - begin, minlength=len(ids)).astype(np.float64)
    _rules("dispatch", ids, messages)(
        _differ(sums, run.phases["paused_s"].to_numpy()),
        "its work and its pauses do not add up to its time",
    )


def _aggregations(
    run: Run, table: pd.DataFrame, dispatches: pd.DataFrame, messages: list[str]
) -> None:
    versions, times = table["version"].to_numpy(), table["time_s"].to_numpy()
    forbid = _rules("version", versions, messages)
    forbid(versions != np.arange(1, len(versions) + 1), "versions are not consecutive from 1")
    forbid(np.diff(times, prepend=0.0) < 0, "time runs backward")
    forbid(times > run.simulated_s, "was made after the run")
    sizes = table["contributor_ids"].map(len).to_numpy(dtype=np.int64)
    forbid(sizes != table["contributors"].to_numpy(), "contributors and contributor_ids disagree")

    listed = np.concatenate([np.zeros(0, np.int64), *table["contributor_ids"]])
    listed_versions = np.repeat(versions, sizes)
    ids = dispatches["dispatch_id"].to_numpy()
    forbid = _rules("dispatch", listed, messages)
    rows = np.searchsorted(ids, listed)
    known = rows < len(ids)
    known[known] = ids[rows[known]] == listed[known]
    forbid(~known, "contributed, but is not among the dispatches")
    times_listed = np.bincount(rows[known], minlength=len(ids))
    entered = aggregated_versions(dispatches)
    differs = np.zeros(len(listed), np.bool_)
    differs[known] = entered[rows[known]] != listed_versions[known]
    forbid(differs, "contributed to a different version from the one in its row")
    forbid = _rules("dispatch", ids, messages)
    forbid(times_listed > 1, "contributed more than once")
    forbid((entered > 0) & (times_listed == 0), "is aggregated, but contributed to no version")

    forbid(
        np.r_[np.nan, times][np.where(entered <= len(times), entered, 0)]
        < dispatches["arrived_s"].to_numpy(),
        "was aggregated before it arrived",
    )
    version = dispatches["version"].to_numpy()
    staleness = dispatches["staleness"].to_numpy(dtype=np.int64, na_value=0)
    forbid(
        (entered > 0) & (staleness > entered - 1 - version),
        "is staler at arrival than at its aggregation",
    )
    made = np.r_[0.0, times]
    forbid((version < 0) | (version > len(times)), "started from a version that was never made")
    within = np.clip(version, 0, len(times))
    forbid(
        dispatches["dispatched_s"].to_numpy() < made[within],
        "started from a version before it was made",
    )


def _metrics(run: Run, messages: list[str]) -> None:
    table = run.metrics
    times, versions = table["time_s"].to_numpy(), table["version"].to_numpy()
    forbid = _rules("evaluation", np.arange(len(table)), messages)
    forbid(np.diff(times, prepend=0.0) < 0, "time runs backward")
    made = np.r_[0.0, run.aggregations["time_s"].to_numpy()]
    forbid((versions < 0) | (versions >= len(made)), "measured a version that was never made")
    forbid(
        times < made[np.clip(versions, 0, len(made) - 1)], "measured a version before it was made"
    )


def _clients(run: Run, messages: list[str]) -> None:
    if not run.has_clients:
        return
    table, dispatches = run.clients, run.work
    ids, clients = table["client_id"].to_numpy(), dispatches["client_id"].to_numpy()
    forbid = _rules("client", ids, messages)
    forbid(ids != np.arange(len(ids)), "ids are not consecutive from 0")
    known = (clients >= 0) & (clients < len(ids))
    # Selecting all rows would copy every column.
    rows = slice(None) if known.all() else known
    outcome = outcome_codes(dispatches)
    values = {
        "dispatches": outcome >= 0,
        "aggregated": outcome == Outcome.AGGREGATED,
        "steps": dispatches["steps_done"].to_numpy(),
        **{name: dispatches[name].to_numpy() for name in ("bytes_down", "bytes_up", "energy_j")},
        **{name: dispatches[name].to_numpy() for name in SPENT if name in dispatches},
        **{str(name): column.to_numpy() for name, column in run.work_phases.items()},
    }
    for name, column in values.items():
        sums = np.bincount(clients[rows], column[rows], minlength=len(ids)).astype(np.float64)
        forbid(_differ(table[name], sums), f"{name} is not the sum over its dispatches")
    forbid(
        table["recharging_s"].to_numpy() > table["idle_s"].to_numpy(),
        "recharged for longer than idle",
    )
    whole = table[[*LASTING_S]].sum(axis=1).to_numpy()
    forbid(_differ(whole, run.simulated_s), "its seconds do not add up to the run's")
    _rules("dispatch", dispatches["dispatch_id"].to_numpy(), messages)(
        ~known, "its client is not in the table of clients"
    )


def _differ(recorded: npt.ArrayLike, expected: Floats | float) -> Bools:
    """The mask of the rows in which two columns differ by more than rounding."""
    difference = np.abs(np.asarray(recorded, np.float64) - expected)
    differ: Bools = ~(difference <= 1e-6 + 1e-9 * np.abs(expected))
    return differ
