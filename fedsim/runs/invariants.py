"""What must hold of every finished run, whatever its scenario; checked at the end of each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.errors import InvariantViolation
from fedsim.outcomes import Outcome
from fedsim.runs.phases import aggregated_versions, aggregation_times, outcome_codes, phases
from fedsim.runs.run import Run

Mask = npt.NDArray[np.bool_]


class _Findings:
    """Collects violations of one table, each with the number of rows and the first of them."""

    def __init__(self, table: str, keys: npt.NDArray[np.int64], messages: list[str]) -> None:
        self.table = table
        self.keys = keys
        self.messages = messages

    def forbid(self, broken: Mask, rule: str) -> None:
        rows = np.flatnonzero(broken)
        if len(rows):
            self.messages.append(f"{self.table} {self.keys[rows[0]]} ({len(rows)} in all): {rule}")


def verify_run(run: Run) -> None:
    """Check a finished run against itself.

    Conservation (one outcome a dispatch, every aggregated update in exactly one server update), monotone
    time, consecutive versions, one dispatch at a time a client, no negative quantity, and clients that equal
    the sums over their dispatches.

    Raises:
        InvariantViolation: with every rule that is broken and a row that breaks it.
    """
    messages: list[str] = []
    for check in _CHECKS:
        check(run, messages)
    if messages:
        raise InvariantViolation(f"{run.path} contradicts itself:\n  " + "\n  ".join(messages))


def _dispatches(run: Run, messages: list[str]) -> None:
    table = run.dispatches
    ids = table["dispatch_id"].to_numpy()
    find = _Findings("dispatch", ids, messages)
    find.forbid(ids != np.arange(len(ids)), "ids are not consecutive from 0")
    outcome = outcome_codes(table)
    find.forbid(outcome < 0, "has no outcome")
    entered = aggregated_versions(table) > 0
    find.forbid(
        entered != (outcome == Outcome.AGGREGATED), "outcome and aggregated_version disagree"
    )

    dispatched, downloaded, computed, arrived, ended = (
        table[f"{name}_s"].to_numpy()
        for name in ("dispatched", "downloaded", "computed", "arrived", "ended")
    )
    find.forbid(~(dispatched >= 0), "was dispatched before the start, or never")
    last = dispatched
    for name, mark in (("downloaded", downloaded), ("computed", computed), ("arrived", arrived)):
        find.forbid(mark < last, f"time runs backwards at {name}_s")
        find.forbid(~np.isnan(mark) & np.isnan(last), f"has {name}_s without the phase before")
        last = np.where(np.isnan(last), last, mark)
    latest = np.fmax.reduce([dispatched, downloaded, computed, arrived])
    find.forbid(~(ended >= latest), "time runs backwards at ended_s, or it never ended")
    find.forbid(~np.isnan(arrived) & (ended != arrived), "arrived, and ended at another time")
    find.forbid(ended > run.simulated_s, "ended after the run")
    gone = (outcome == Outcome.DROPPED) | (outcome == Outcome.CUT)
    find.forbid(gone & ~np.isnan(arrived), "was dropped or cut, and arrived")
    came = (outcome == Outcome.AGGREGATED) | (outcome == Outcome.LATE)
    find.forbid(came & np.isnan(arrived), "is aggregated or late, and never arrived")

    done = table["steps_done"].to_numpy()
    find.forbid(
        (done < 0) | (done > table["steps_assigned"].to_numpy()),
        "did more steps than asked, or less than none",
    )
    for column in ("bytes_down", "bytes_up", "energy_j"):
        find.forbid(table[column].to_numpy() < 0, f"{column} is negative")
    staleness = table["staleness"].to_numpy(dtype=np.int64, na_value=0)
    find.forbid(staleness < 0, "staleness is negative")

    order = np.lexsort((ids, table["client_id"].to_numpy()))
    clients = table["client_id"].to_numpy()[order]
    first = np.r_[True, clients[1:] != clients[:-1]] if len(clients) else np.zeros(0, np.bool_)
    starts = (
        np.maximum.accumulate(np.where(first, np.arange(len(order)), 0)) if len(order) else order
    )
    find = _Findings("dispatch", ids[order], messages)
    find.forbid(
        table["sequence"].to_numpy()[order] != np.arange(len(order)) - starts,
        "sequence is not the number of the client's earlier dispatches",
    )
    before = np.r_[-np.inf, ended[order][:-1]] if len(order) else ended
    find.forbid(~first & (dispatched[order] < before), "its client was still at its last dispatch")


def _aggregations(run: Run, messages: list[str]) -> None:
    table, dispatches = run.aggregations, run.dispatches
    versions, times = table["version"].to_numpy(), table["time_s"].to_numpy()
    find = _Findings("version", versions, messages)
    find.forbid(versions != np.arange(1, len(versions) + 1), "versions are not consecutive from 1")
    find.forbid(np.diff(times, prepend=0.0) < 0, "time runs backwards")
    find.forbid(times > run.simulated_s, "was made after the run")
    sizes = table["contributor_ids"].map(len).to_numpy(dtype=np.int64)
    find.forbid(
        sizes != table["contributors"].to_numpy(), "contributors and contributor_ids disagree"
    )

    listed = np.concatenate([np.zeros(0, np.int64), *table["contributor_ids"]])
    listed_versions = np.repeat(versions, sizes)
    ids = dispatches["dispatch_id"].to_numpy()
    find = _Findings("dispatch", listed, messages)
    position = np.searchsorted(ids, listed)
    position[position == len(ids)] = 0
    known = ids[position] == listed if len(ids) else np.zeros(len(listed), np.bool_)
    find.forbid(~known, "contributed, and is not among the dispatches")
    unique, counts = np.unique(listed, return_counts=True)
    _Findings("dispatch", unique, messages).forbid(counts > 1, "contributed more than once")
    entered = aggregated_versions(dispatches)
    if known.all() and len(ids):
        find.forbid(
            entered[position] != listed_versions, "contributed to another version than its row says"
        )
    find = _Findings("dispatch", ids, messages)
    find.forbid(
        (entered > 0) & ~np.isin(ids, listed), "is aggregated, and contributed to no version"
    )

    find.forbid(
        aggregation_times(dispatches, table) < dispatches["arrived_s"].to_numpy(),
        "was aggregated before it arrived",
    )
    version = dispatches["version"].to_numpy()
    staleness = dispatches["staleness"].to_numpy(dtype=np.int64, na_value=0)
    find.forbid(
        (entered > 0) & (staleness > entered - 1 - version),
        "is staler at arrival than at its aggregation",
    )
    made = np.r_[0.0, times]
    find.forbid(
        (version < 0) | (version > len(times)), "started from a version that was never made"
    )
    within = np.clip(version, 0, len(times))
    find.forbid(
        dispatches["dispatched_s"].to_numpy() < made[within],
        "started from a version before it was made",
    )


def _metrics(run: Run, messages: list[str]) -> None:
    table = run.metrics
    times, versions = table["time_s"].to_numpy(), table["version"].to_numpy()
    find = _Findings("evaluation", np.arange(len(table)), messages)
    find.forbid(np.diff(times, prepend=0.0) < 0, "time runs backwards")
    made = np.r_[0.0, run.aggregations["time_s"].to_numpy()]
    find.forbid((versions < 0) | (versions >= len(made)), "measured a version that was never made")
    find.forbid(
        times < made[np.clip(versions, 0, len(made) - 1)], "measured a version before it was made"
    )


def _clients(run: Run, messages: list[str]) -> None:
    if not run.has_clients:
        return
    table, dispatches = run.clients, run.dispatches
    find = _Findings("client", table["client_id"].to_numpy(), messages)
    spent = phases(dispatches, run.aggregations, run.simulated_s)
    rows = pd.DataFrame(
        {
            "dispatches": 1,
            "aggregated": outcome_codes(dispatches) == Outcome.AGGREGATED,
            "steps": dispatches["steps_done"],
            **dispatches[["bytes_down", "bytes_up", "energy_j"]],
            **spent,
        }
    )
    sums = rows.groupby(dispatches["client_id"]).sum().reindex(table["client_id"], fill_value=0)
    for column in sums:
        expected, found = (
            sums[column].to_numpy(dtype=np.float64),
            table[column].to_numpy(dtype=np.float64),
        )
        find.forbid(
            ~np.isclose(found, expected, rtol=1e-9, atol=1e-6),
            f"{column} is not the sum over its dispatches",
        )
    parts = ["download_s", "compute_s", "upload_s", "waiting_s", "idle_s", "offline_s"]
    whole = table[parts].sum(axis=1).to_numpy()
    find.forbid(
        ~np.isclose(whole, run.simulated_s, rtol=1e-9, atol=1e-6),
        "its seconds do not add up to the run's",
    )
    if len(sums):
        unknown = ~dispatches["client_id"].isin(table["client_id"]).to_numpy()
        _Findings("dispatch", dispatches["dispatch_id"].to_numpy(), messages).forbid(
            unknown, "its client is not in the table of clients"
        )


_CHECKS: tuple[Callable[[Run, list[str]], None], ...] = (
    _dispatches,
    _aggregations,
    _metrics,
    _clients,
)
