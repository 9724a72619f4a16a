"""Writes the tables about the clients of a run, when it ends.

A client that has work pauses exactly while it is offline, except if it continues its local steps offline
(``on_disconnect: finish``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from fedsim.devices.population import Population
from fedsim.network.base import Direction
from fedsim.runs.clients import clients_table, sampled_clients
from fedsim.runs.run import Run
from fedsim.runs.schema import CLIENTS, ONLINE, PAUSES, PRESENCE
from fedsim.runs.tables import from_columns, write_parquet
from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.intervals import ranks
from fedsim.units import NS_PER_S, to_ns

if TYPE_CHECKING:
    from fedsim.learning.evaluation import ClientMetrics

_ONLINE_POINTS = 2000
_ONLINE_STEP_S = 300.0
_CLIENTS_AT_ONCE = 10_000

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def write_population(
    run: Run,
    population: Population,
    samples: npt.NDArray[np.int64],
    end_ns: int,
    measured: ClientMetrics | None = None,
    names: Mapping[str, Any] | None = None,
) -> None:
    """Write ``clients``, ``online``, ``presence`` and ``pauses`` of a run whose other tables are finished.

    Args:
        run: the run, whose ``simulated_s`` is known.
        population: the clients' devices.
        samples: training samples of each client, (N,).
        end_ns: simulated nanoseconds that the run lasted.
        measured: the last metrics of the clients.
        names: names of the clients and their devices, as for :func:`~fedsim.runs.clients.clients_table`.
    """
    folder = run.folder
    step_ns = max(to_ns(_ONLINE_STEP_S), end_ns // _ONLINE_POINTS)
    times_ns = np.arange(0, end_ns + 1, max(1, min(step_ns, max(1, end_ns // 50))), dtype=np.int64)
    counts, online_ns = population.availability.online_summary(times_ns, 0, end_ns)
    network = population.network
    busy_offline_s = worked_offline_s(run.dispatches, population, end_ns)
    waiting_s = run.phases["waiting_s"].to_numpy()
    busy_offline_s += waited_offline_s(
        run.dispatches, waiting_s, population, online_ns < end_ns, end_ns
    )
    table = clients_table(
        run.dispatches,
        run.phases,
        duration_s=run.simulated_s,
        samples=samples,
        step_s=population.compute.step_s,
        down_bps=network.rates_bps(Direction.DOWN),
        up_bps=network.rates_bps(Direction.UP),
        online_fraction=online_ns / max(1, end_ns),
        busy_offline_s=busy_offline_s,
        recharging_s=recharged_s(run.dispatches, waiting_s, population, end_ns),
        last_accuracy=None if measured is None else measured.accuracy,
        last_mae=None if measured is None else measured.error,
        names=names,
    )
    run.written({CLIENTS.name: write_parquet(folder.parquet(CLIENTS.name), CLIENTS, table)})
    del table
    columns = {"time_s": times_ns / NS_PER_S, "online": counts}
    write_parquet(folder.parquet(ONLINE.name), ONLINE, from_columns(ONLINE, columns))
    clients = sampled_clients(run.dispatches["client_id"].to_numpy())
    rows, from_ns, until_ns = population.availability.intervals_between(clients, 0, end_ns)
    columns = {
        "client_id": clients[rows],
        "from_s": from_ns / NS_PER_S,
        "to_s": until_ns / NS_PER_S,
    }
    write_parquet(folder.parquet(PRESENCE.name), PRESENCE, from_columns(PRESENCE, columns))
    pauses = pauses_table(run.dispatches, run.phases["paused_s"].to_numpy(), population, end_ns)
    run.written({PAUSES.name: write_parquet(folder.parquet(PAUSES.name), PAUSES, pauses)})


def pauses_table(
    dispatches: pd.DataFrame, paused_s: Floats, population: Population, end_ns: int
) -> pa.Table:
    """One row per pause, ready for ``pauses.parquet``.

    Args:
        dispatches: as :attr:`Run.dispatches`.
        paused_s: how long each of them paused, (n,).
        population: the clients' devices.
        end_ns: simulated nanoseconds that the run lasted.
    """
    table = dispatches[paused_s > 0]
    begin_s, end_s = (table[f"{name}_s"].to_numpy() for name in ("dispatched", "ended"))
    row, from_s, to_s = _absences(table["client_id"].to_numpy(), begin_s, end_s, population, end_ns)
    if population.on_disconnect == "finish":
        # Offline time during local steps is no pause.
        works_from, works_until = (
            table[name].fillna(np.inf).to_numpy()[row] for name in ("downloaded_s", "computed_s")
        )
        row = np.concatenate([row, row])
        from_s = np.concatenate([from_s, np.maximum(from_s, works_until)])
        to_s = np.concatenate([np.minimum(to_s, works_from), to_s])
    some = from_s < to_s
    dispatch_id = table["dispatch_id"].to_numpy()[row[some]]
    return from_columns(
        PAUSES, {"dispatch_id": dispatch_id, "from_s": from_s[some], "to_s": to_s[some]}
    )


def worked_offline_s(dispatches: pd.DataFrame, population: Population, end_ns: int) -> Floats:
    """How long each client did local steps while it was offline, (clients,).

    Args:
        dispatches: as :attr:`Run.dispatches`.
        population: the clients' devices.
        end_ns: simulated nanoseconds that the run lasted.
    """
    if population.on_disconnect != "finish":
        return np.zeros(population.clients)
    table = dispatches[dispatches["downloaded_s"].notna()]
    clients = table["client_id"].to_numpy()
    end_s = table["computed_s"].fillna(table["ended_s"]).to_numpy()
    begin_s = table["downloaded_s"].to_numpy()
    row, from_s, to_s = _absences(clients, begin_s, end_s, population, end_ns)
    worked = np.bincount(clients[row], to_s - from_s, minlength=population.clients)
    return worked.astype(np.float64, copy=False)


def waited_offline_s(
    dispatches: pd.DataFrame,
    waiting_s: Floats,
    population: Population,
    leaves: npt.NDArray[np.bool_],
    end_ns: int,
) -> Floats:
    """How long each client was offline while its arrived update waited for aggregation, (clients,).

    Args:
        dispatches: as :attr:`Run.dispatches`.
        waiting_s: how long the update of each of them waited, (n,).
        population: the clients' devices.
        leaves: whether each client is offline at any time of the run, (clients,).
        end_ns: simulated nanoseconds that the run lasted.
    """
    clients = dispatches["client_id"].to_numpy()
    arrived_s = dispatches["arrived_s"].to_numpy()
    rows = np.flatnonzero((waiting_s > 0) & leaves[clients])
    # Most waiting is short: one look-up per update leaves few clients that go offline meanwhile.
    arrived_ns = np.rint(arrived_s[rows] * NS_PER_S).astype(np.int64)
    online_until_ns = population.availability.online_until_many(clients[rows], arrived_ns)
    rows = rows[online_until_ns / NS_PER_S < arrived_s[rows] + waiting_s[rows]]
    clients, begin_s = clients[rows], arrived_s[rows]
    row, from_s, to_s = _absences(clients, begin_s, begin_s + waiting_s[rows], population, end_ns)
    waited = np.bincount(clients[row], to_s - from_s, minlength=population.clients)
    return waited.astype(np.float64, copy=False)


def recharged_s(
    dispatches: pd.DataFrame, waiting_s: Floats, population: Population, end_ns: int
) -> Floats:
    """How long each client was online and idle while its battery was below the floor, (clients,).

    Args:
        dispatches: as :attr:`Run.dispatches`.
        waiting_s: how long the update of each of them waited, (n,).
        population: the clients' devices.
        end_ns: simulated nanoseconds that the run lasted.
    """
    clients = dispatches["client_id"].to_numpy()
    if population.batteries is None:
        return np.zeros(population.clients)
    ended_s = dispatches["ended_s"].to_numpy()
    begin_ns, ended_ns = (
        np.rint(times_s * NS_PER_S).astype(np.int64)
        for times_s in (dispatches["dispatched_s"].to_numpy(), ended_s)
    )
    energy_j = dispatches["energy_j"].to_numpy()
    ready_ns = population.batteries.replay(clients, begin_ns, ended_ns, energy_j).ready_ns
    # An update that waits is not idle time.
    begin_s = ended_s + waiting_s
    until_s = np.minimum(ready_ns, end_ns) / NS_PER_S
    rows = np.flatnonzero((ready_ns > ended_ns) & (begin_s < until_s))
    clients, begin_s, until_s = clients[rows], begin_s[rows], until_s[rows]
    row, from_s, to_s = _absences(clients, begin_s, until_s, population, end_ns)
    count = population.clients
    low_s = np.bincount(clients, until_s - begin_s, minlength=count)
    away_s = np.bincount(clients[row], to_s - from_s, minlength=count)
    online_s: Floats = np.maximum(low_s - away_s, 0.0)
    return online_s


def _absences(
    client_ids: Integers, begin_s: Floats, end_s: Floats, population: Population, end_ns: int
) -> tuple[Integers, Floats, Floats]:
    """When clients are offline within spans of time.

    Args:
        client_ids, begin_s, end_s: client, begin and end of each span, (n,).
        population, end_ns: as for :func:`pauses_table`.

    Returns:
        The position of the span, begin and end of each absence, clipped to its span.
    """
    clients, client_index = np.unique(client_ids, return_inverse=True)
    parts = [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))]
    for first in range(0, len(clients), _CLIENTS_AT_ONCE):
        chunk = clients[first : first + _CLIENTS_AT_ONCE]
        rows = np.flatnonzero((client_index >= first) & (client_index < first + len(chunk)))
        away = _Absences(population.availability, chunk, end_ns)
        span, from_s, to_s = away.within(client_index[rows] - first, begin_s[rows], end_s[rows])
        parts.append((rows[span], from_s, to_s))
    row, from_s, to_s = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    return row, from_s, to_s


class _Absences:
    """When some clients are offline between the start and the end of a run."""

    def __init__(self, availability: AvailabilityIndex, clients: Integers, end_ns: int) -> None:
        owner, from_ns, until_ns = availability.intervals_between(clients, 0, end_ns)
        counts = np.bincount(owner, minlength=len(clients))
        ends = np.cumsum(counts)
        self._client = np.repeat(np.arange(len(clients)), counts + 1)
        # A client is offline before, between and after its intervals; some of these absences have no length.
        self._from_s = np.insert(until_ns, ends - counts, 0) / NS_PER_S
        self._to_s = np.insert(from_ns, ends, end_ns) / NS_PER_S

    def within(
        self, client: Integers, begin_s: Floats, end_s: Floats
    ) -> tuple[Integers, Floats, Floats]:
        """The absences within spans of time.

        Args:
            client, begin_s, end_s: the client (as its position among the clients) and the ends of each span, (n,).

        Returns:
            The position of the span, begin and end of each absence, clipped to its span.
        """
        times = np.concatenate([self._from_s, self._to_s, begin_s, end_s])
        rank = np.unique(times, return_inverse=True)[1]
        # Pairs of client and instant as single integers.
        owner = np.concatenate([self._client, self._client, client, client])
        keys = np.split(
            owner * len(times) + rank,
            np.cumsum([len(self._from_s), len(self._to_s), len(begin_s)]),
        )
        first = np.searchsorted(keys[1], keys[2], side="right")
        counts = np.maximum(np.searchsorted(keys[0], keys[3], side="left") - first, 0)
        span = np.repeat(np.arange(len(client)), counts)
        absence = np.repeat(first, counts) + ranks(counts)
        from_s = np.maximum(self._from_s[absence], begin_s[span])
        return span, from_s, np.minimum(self._to_s[absence], end_s[span])
