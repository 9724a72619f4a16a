"""The table of clients, summed from the dispatches, their absences, and the sample whose life a report shows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from fedsim.runs.phases import outcome_codes
from fedsim.runs.schema import CLIENTS, SPENT, Table, with_columns
from fedsim.runs.tables import from_columns
from fedsim.vocabulary.arrays import Floats, Ints
from fedsim.vocabulary.outcomes import Outcome

_MOST_CLIENTS, _MOST_DISPATCHES, _LEAST_CLIENTS = 300, 5000, 40


def clients_table(
    dispatches: pd.DataFrame,
    spent: pd.DataFrame,
    *,
    duration_s: float,
    samples: npt.NDArray[np.int64 | np.float64],
    step_s: Floats,
    down_bps: Floats,
    up_bps: Floats,
    online_fraction: Floats,
    busy_offline_s: Floats | float = 0.0,
    recharging_s: Floats | float = 0.0,
    table: Table = CLIENTS,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> pa.Table:
    """One row per client, ready for ``clients.parquet``, or per edge server, with the columns of ``table``.

    Download, compute, upload, paused, waiting, idle and offline seconds of a client add up to ``duration_s``. Waiting
    is the time from the arrival of its update to the aggregation, whether the client is online or not; idle and offline
    are the times online and offline in which it neither works, pauses nor waits. Recharging is a part of idle.

    Args:
        dispatches: as :attr:`Run.work`.
        spent: as :attr:`Run.work_phases`.
        duration_s: simulated seconds of the run.
        samples: training samples of each client, shape (N,), as all others; its length is the number of clients.
        step_s: nominal seconds per local step.
        down_bps, up_bps: nominal rates in bit/s.
        online_fraction: share of ``duration_s`` that each client was online and eligible, recharging included.
        busy_offline_s: how long each client worked, or its update waited, while it was offline.
        recharging_s: how long each client was idle while its battery was below the floor.
        table: CLIENTS or EDGES.
        known: the columns last_accuracy, last_mae, name, device, kind and part, if they are known; and the optional
            columns edge and region.
    """
    count = len(samples)
    clients = dispatches["client_id"].to_numpy()

    def total(values: npt.NDArray[np.float64 | np.int64]) -> Floats:
        return np.bincount(clients, values, minlength=count).astype(np.float64, copy=False)

    def count_of(column: str) -> Ints:
        # Sums in float64 are exact below 2**53.
        return total(dispatches[column].to_numpy()).astype(np.int64)

    seconds = {str(name): total(spent[name].to_numpy()) for name in spent}
    rest_s = np.maximum(duration_s - sum(seconds.values()), 0.0)
    away_s = duration_s * (1.0 - online_fraction) - seconds["paused_s"] - busy_offline_s
    offline_s = np.minimum(rest_s, np.maximum(away_s, 0.0))
    idle_s = rest_s - offline_s
    outcome = outcome_codes(dispatches)
    spending = {name: total(dispatches[name].to_numpy()) for name in SPENT if name in dispatches}
    return from_columns(
        with_columns(table, {**known, **spending}),
        {
            "client_id": np.arange(count),
            "samples": samples,
            "step_s": step_s,
            "down_bps": down_bps,
            "up_bps": up_bps,
            "online_fraction": online_fraction,
            "dispatches": np.bincount(clients[outcome >= 0], minlength=count),
            "aggregated": np.bincount(clients[outcome == Outcome.AGGREGATED], minlength=count),
            "steps": count_of("steps_done"),
            "bytes_down": count_of("bytes_down"),
            "bytes_up": count_of("bytes_up"),
            "energy_j": total(dispatches["energy_j"].to_numpy()),
            **seconds,
            "idle_s": idle_s,
            "recharging_s": np.minimum(recharging_s, idle_s),
            "offline_s": offline_s,
            **dict.fromkeys(("last_accuracy", "last_mae"), np.full(count, np.nan)),
            "part": np.ones(count),
            **dict.fromkeys(("name", "device", "kind"), pa.nulls(count, pa.string())),
            **known,
            **spending,
        },
    )


def sampled_clients(client_ids: Ints) -> Ints:
    """The clients whose life is recorded and shown, from the most to the least often dispatched.

    All dispatched clients, if these are at most 300 with about 5,000 dispatches; otherwise clients evenly spaced in
    that order, at least 40.
    """
    counts = np.bincount(client_ids)
    clients = np.flatnonzero(counts)
    if not len(clients):
        return clients
    counts = counts[clients]
    ranked = clients[np.argsort(-counts, kind="stable")]
    affordable = max(int(_MOST_DISPATCHES / counts.mean()), _LEAST_CLIENTS)
    number = min(len(ranked), _MOST_CLIENTS, affordable)
    picked: Ints = ranked[
        np.unique(np.linspace(0, len(ranked) - 1, number).round().astype(np.int64))
    ]
    return picked


def absences(last_version: Ints, versions: Ints, sizes: Ints, clients: Ints) -> Ints:
    """For each server update, the number of updates since the client absent for longest last contributed.

    Args:
        last_version: the version that each client last contributed to, 0 if none, shape (N,); brought up to date.
        versions, sizes: version created and number of contributions of each update, (n,).
        clients: the clients that contributed, one update after the other.
    """
    updates = len(versions)
    # Pairs of client and update as single integers, which sort many times faster than pairs do.
    pairs = np.sort(clients * updates + np.repeat(np.arange(updates), sizes))
    client_ids, when = np.divmod(pairs, updates)
    first = np.diff(client_ids, prepend=-1) != 0
    last = np.append(first[1:], True)[: len(first)]
    # A client's last contribution is that of an update until (not including) its next one.
    until = np.where(last, updates, np.append(when[1:], updates)[: len(when)])
    values = np.concatenate([last_version[client_ids[first]], versions[when]])
    ends = np.concatenate([when[first], until])
    others = np.ones(len(last_version), np.bool_)
    others[client_ids] = False
    if others.any():
        values = np.append(values, last_version[others].min())
        ends = np.append(ends, updates)
    last_version[client_ids[last]] = versions[when[last]]
    # The oldest one at an update is thus the smallest whose stretch reaches beyond it.
    order = np.argsort(values, kind="stable")
    reach = np.maximum.accumulate(ends[order])
    oldest = values[order[np.searchsorted(reach, np.arange(updates), side="right")]]
    return np.asarray(versions - oldest)
