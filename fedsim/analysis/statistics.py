"""Statistics of one run, computed from its tables alone.

Tables are those of :class:`~fedsim.runs.Run` of the same names, ``spent`` is its ``phases`` or ``work_phases``; N is
the number of ``clients``, with those that never participated, and T that of server ``updates``.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedsim.runs.clients import absences
from fedsim.runs.phases import (
    DISPATCH_PARTS,
    WORK_PHASES,
    aggregated_versions,
    aggregation_times,
    outcome_codes,
    work_changes,
)
from fedsim.vocabulary.arrays import Floats, Ints
from fedsim.vocabulary.outcomes import OUTCOME_LABELS, Outcome


def outcome_counts(dispatches: pd.DataFrame) -> dict[str, int]:
    """Number of dispatches with each outcome, all six in order."""
    counts = dispatches["outcome"].value_counts().reindex(list(OUTCOME_LABELS), fill_value=0)
    return dict(zip(OUTCOME_LABELS, counts.tolist(), strict=True))


def where_time_went(spent: pd.DataFrame, clients: pd.DataFrame | None = None) -> dict[str, float]:
    """Client-seconds of the run by activity.

    ``download``, ``compute`` and ``upload`` count all work, useful or not; ``paused`` is the time offline in the middle
    of a dispatch; ``waiting`` is from the arrival of an update to its aggregation (or the client's next dispatch, or
    the end of the run), whether the client is online or not. With the table of clients, there are also ``idle`` and
    ``offline``, the rest of the time online and offline, and ``recharging``, the part of the time online in which the
    battery was below the floor; the eight add up to the number of clients times the duration of the run.
    """
    seconds = {name: float(spent[f"{name}_s"].sum()) for name in DISPATCH_PARTS}
    if clients is not None:
        rest = {
            name: float(clients[f"{name}_s"].sum()) for name in ("idle", "recharging", "offline")
        }
        rest["idle"] -= rest["recharging"]
        seconds |= rest
        # Idle time is a difference: below a nanosecond per client it is a rounding error.
        seconds = {name: 0.0 if s < 1e-9 * len(clients) else s for name, s in seconds.items()}
    return seconds


def work_by_outcome(dispatches: pd.DataFrame, spent: pd.DataFrame) -> pd.DataFrame:
    """The work that went into dispatches: one row per outcome, all six in order.

    Columns: ``dispatches``, ``steps``, ``bytes`` (down and up), ``energy_j``, and ``seconds`` (client-seconds of
    download, compute and upload, without pauses).
    """
    work = pd.DataFrame(
        {
            "dispatches": 1,
            "steps": dispatches["steps_done"],
            "bytes": dispatches["bytes_down"] + dispatches["bytes_up"],
            "energy_j": dispatches["energy_j"],
            "seconds": spent[[f"{name}_s" for name in WORK_PHASES]].sum(axis=1),
        },
        index=dispatches.index,
    )
    return work.groupby(dispatches["outcome"], observed=False).sum()


def update_intervals_s(aggregations: pd.DataFrame) -> Floats:
    """Seconds between consecutive server updates, the first since the run began, shape (updates,).

    With rounds, these are the durations of the rounds, including the time in which a round waits for clients.
    """
    intervals: Floats = np.diff(aggregations["time_s"].to_numpy(), prepend=0.0)
    return intervals


def turnaround_s(dispatches: pd.DataFrame) -> Floats:
    """Seconds from the dispatch to the arrival of each update that arrived, in order of dispatch."""
    seconds = (dispatches["arrived_s"] - dispatches["dispatched_s"]).dropna()
    arrived: Floats = seconds.to_numpy()
    return arrived


def participation_counts(dispatches: pd.DataFrame, clients: int) -> Ints:
    """Number of aggregated updates of each client, shape (clients,)."""
    rows = outcome_codes(dispatches) == Outcome.AGGREGATED
    counted: Ints = np.bincount(dispatches["client_id"].to_numpy()[rows], minlength=clients)
    return counted


def lorenz_curve(counts: Ints) -> Floats:
    """Share of all updates given by the k least active clients, k = 0..N; shape (N + 1,), from 0 to 1.

    All zero if there is no update.
    """
    total = counts.sum()
    given = np.concatenate([[0.0], np.cumsum(np.sort(counts))])
    return given / total if total else given


def gini(counts: Ints) -> float:
    """Inequality of participation.

    0 if all clients gave equally many updates, (N-1)/N if one gave all of them, NaN without updates.
    """
    if not counts.sum():
        return float("nan")
    curve = lorenz_curve(counts)
    return max(float(1.0 - (curve[1:] + curve[:-1]).mean()), 0.0)


def staleness(dispatches: pd.DataFrame, aggregations: pd.DataFrame) -> pd.DataFrame:
    """Age of the updates that entered the model: one row per update, in order of dispatch.

    Columns: ``versions`` (server versions made between dispatch and arrival) and ``seconds`` (simulated time from the
    dispatch to the aggregation).
    """
    age = aggregation_times(dispatches, aggregations) - dispatches["dispatched_s"].to_numpy()
    versions = dispatches["staleness"].to_numpy(dtype=np.int64, na_value=0)
    rows = outcome_codes(dispatches) == Outcome.AGGREGATED
    return pd.DataFrame({"versions": versions[rows], "seconds": age[rows]})


def delays(dispatches: pd.DataFrame, clients: int, updates: int) -> Ints:
    """FedSUM's delay tau_t of each server update t = 0..T-1, shape (T,), see section 2.2, equations 2 to 4.

    It is the number of updates since the longest-absent client last contributed; t + 1 if a client never has.
    """
    entered = aggregated_versions(dispatches)
    entered = np.where(entered > updates, 0, entered)  # Of a killed run, whose last rows may lack.
    order = np.argsort(entered, kind="stable")[(entered == 0).sum() :]
    sizes = np.bincount(entered[order], minlength=updates + 1)[1:]
    client_ids = dispatches["client_id"].to_numpy()[order]
    return absences(np.zeros(clients, np.int64), np.arange(1, updates + 1), sizes, client_ids)


def participation_term(dispatches: pd.DataFrame, clients: int, updates: int, window: int) -> Floats:
    """B of each of the T // P full windows of P server updates: N * sum_n (qbar_n - 1/N)**2.

    qbar_n is the mean weight of client n in the window; the contributions to a server update have equal weights, with
    sum 1. B is the part of Wang & Ji's participation term (equations 7 and 15) that needs no data: 0 if all clients had
    equal mean weight, N/S - 1 for one update with S equal contributions.
    """
    entered = aggregated_versions(dispatches)
    rows, count = entered > 0, updates // window
    update = entered[rows] - 1
    weights = pd.Series(1.0 / np.bincount(update, minlength=updates)[update], dtype=np.float64)
    number = update // window
    means = weights.groupby([number, dispatches["client_id"].to_numpy()[rows]]).sum() / window
    squares, sums = (
        each.groupby(level=0).sum().reindex(np.arange(count), fill_value=0.0).to_numpy()
        for each in (means**2, means)
    )
    return np.asarray(clients * squares - 2.0 * sums + 1.0, dtype=np.float64)


def at_work(
    dispatches: pd.DataFrame, pauses: pd.DataFrame | None, edges_s: Floats
) -> tuple[int, Floats]:
    """The largest number of dispatches in progress at once (begun at or before an instant, ended after it) and not
    paused, if pauses are known, and the mean number between each of M + 1 increasing instants and the next, (M,)."""
    begun, ended = map(np.sort, work_changes(dispatches, pauses))
    past_begun, past_ended = (np.searchsorted(s, begun, side="right") for s in (begun, ended))

    def since(ordered: Floats) -> Floats:
        # Sum over all starts before an edge of the time from the start to the edge: edge * count - sum of starts.
        count = np.searchsorted(ordered, edges_s, side="right")
        past: Floats = edges_s * count - np.concatenate([[0.0], np.cumsum(ordered)])[count]
        return past

    worked = since(begun) - since(ended)
    # Differences of large sums can leave a rounding error in intervals without work.
    means: Floats = np.maximum(np.diff(worked) / np.diff(edges_s), 0.0)
    return int((past_begun - past_ended).max(initial=0)), means


def spent_by(dispatches: pd.DataFrame, values: Floats | Ints, times_s: Floats) -> Floats:
    """Sum of ``values`` (one per dispatch) over the dispatches that had ended by each instant."""
    ended = dispatches["ended_s"].to_numpy()
    order = np.argsort(ended, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(values[order], dtype=np.float64)])
    return total[np.searchsorted(ended[order], times_s, side="right")]
