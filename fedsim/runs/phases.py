"""How each dispatch spent its time, from the instants in its row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.vocabulary.arrays import Bools, Floats, Ints
from fedsim.vocabulary.outcomes import OUTCOME_LABELS, Outcome

_LARGEST_KEY = 1 << 62

WORK_PHASES = ("download", "compute", "upload")
"""The phases of a dispatch in which its client works, in order."""
DISPATCH_PARTS = (*WORK_PHASES, "paused", "waiting")
"""The uses of a dispatch's time: ``paused`` is the time in which its client is offline and does not work."""
INSTANTS = ("dispatched", "downloaded", "computed", "arrived")
"""Where the phases of a dispatch begin; the first three end where the next begins."""

_ROUNDING_S = 1e-6
"""Differences of instants below this are rounding errors."""


def outcome_codes(dispatches: pd.DataFrame) -> npt.NDArray[np.int8]:
    """The outcomes as values of :class:`~fedsim.vocabulary.outcomes.Outcome`."""
    outcomes = dispatches["outcome"].cat
    if list(outcomes.categories) != list(OUTCOME_LABELS):
        outcomes = outcomes.set_categories(list(OUTCOME_LABELS)).cat
    return outcomes.codes.to_numpy().astype(np.int8, copy=False)


def aggregated_versions(dispatches: pd.DataFrame) -> Ints:
    """The version that each update entered; 0 if it entered none."""
    return dispatches["aggregated_version"].to_numpy(dtype=np.int64, na_value=0)


def aggregation_times(dispatches: pd.DataFrame, aggregations: pd.DataFrame) -> Floats:
    """Simulated seconds at which each update was aggregated; NaN if it was not (or is not recorded yet).

    ``aggregations`` are those of the servers that made these dispatches.
    """
    entered = aggregated_versions(dispatches)
    versions, times = aggregations["version"].to_numpy(), aggregations["time_s"].to_numpy()
    if "edge" in dispatches:
        # Versions of all edge servers, numbered one server after the other.
        servers = max(aggregations["edge"].max() if len(aggregations) else 0, 0) + 1
        versions = versions * servers + aggregations["edge"].to_numpy()
        entered = np.where(entered > 0, entered * servers + dispatches["edge"].to_numpy(), 0)
    latest = min(versions.max(initial=0), entered.max(initial=0))
    known = np.flatnonzero((versions > 0) & (versions <= latest))[::-1]
    by_version: Floats = np.full(latest + 2, np.nan)
    # In reverse, so that the first row counts if a damaged table repeats a version.
    by_version[versions[known]] = times[known]
    made: Floats = by_version[np.minimum(entered, latest + 1)]
    return made


def rows_by_client(client_ids: pd.Series[int], ids: Ints) -> tuple[npt.NDArray[np.intp], Bools]:
    """Row numbers by client and then by ``ids``, and whether each of these rows is followed by one of its client."""
    clients = client_ids.to_numpy().astype(np.int64, copy=False)
    rows = len(ids)
    if rows and (ids[1:] > ids[:-1]).all() and np.abs(clients).max() < _LARGEST_KEY // rows:
        # Pairs of client and row as single integers, which sort many times faster than pairs do.
        order = np.sort(clients * rows + np.arange(rows)) % rows
    else:
        order = np.lexsort((ids, clients))
    ordered = clients[order]
    return order, np.append(ordered[1:] == ordered[:-1], np.zeros(len(order[:1]), np.bool_))


def work_changes(dispatches: pd.DataFrame, pauses: pd.DataFrame | None) -> tuple[Floats, Floats]:
    """Instants at which a client begins and at which one stops to work, as many of both, in any order.

    Args:
        dispatches: as :attr:`Run.dispatches`.
        pauses: as :attr:`Run.pauses`; None if they are unknown, and count as work.
    """
    begun, ended = (dispatches[name].to_numpy() for name in ("dispatched_s", "ended_s"))
    if pauses is not None:
        begun = np.concatenate([begun, pauses["to_s"].to_numpy()])
        ended = np.concatenate([ended, pauses["from_s"].to_numpy()])
    return begun, ended


def phases(dispatches: pd.DataFrame, aggregations: pd.DataFrame, duration_s: float) -> pd.DataFrame:
    """Seconds of every dispatch, aligned with the rows of ``dispatches``.

    Columns: ``download_s``, ``compute_s`` and ``upload_s``, the time at work, without local steps done ahead of the
    download (:meth:`fedsim.methods.base.Method.steps_ahead`); ``paused_s``, in which the client was offline and did not
    work; together they last from the dispatch to its end. Then ``waiting_s`` from the arrival of
    an update to its aggregation (or to the end of the run if that is still to come), or to the next dispatch of its
    client if that is earlier.

    Args:
        dispatches: as :attr:`Run.dispatches`, or :attr:`Run.work`.
        aggregations: as :attr:`Run.aggregations`.
        duration_s: simulated seconds of the run.
    """
    started, ended = (dispatches[f"{name}_s"].to_numpy() for name in ("dispatched", "ended"))
    spent = {f"{name}_s": dispatches[f"{name}_s"].to_numpy() for name in WORK_PHASES}
    computed = dispatches["computed_s"].fillna(dispatches["ended_s"]).to_numpy()
    after_download_s = computed - dispatches["downloaded_s"].to_numpy()
    compute_s = spent["compute_s"]
    is_ahead = compute_s > after_download_s + _ROUNDING_S
    spent["compute_s"] = np.where(is_ahead, after_download_s, compute_s)
    paused = ended - started - sum(spent.values())
    spent["paused_s"] = np.where(paused < _ROUNDING_S, 0.0, np.round(paused, 9))
    arrived = dispatches["arrived_s"].to_numpy()
    pending = (outcome_codes(dispatches) == Outcome.UNFINISHED) & ~np.isnan(arrived)
    until = np.where(pending, duration_s, aggregation_times(dispatches, aggregations))
    # When the client was dispatched next, if it was.
    order, is_followed = rows_by_client(dispatches["client_id"], np.arange(len(dispatches)))
    following = np.full(len(order), np.inf)
    following[order[is_followed]] = started[order[np.flatnonzero(is_followed) + 1]]
    until = np.minimum(until, following)
    spent["waiting_s"] = np.where(np.isnan(until) | np.isnan(arrived), 0.0, until - arrived)
    return pd.DataFrame(spent, index=dispatches.index)
