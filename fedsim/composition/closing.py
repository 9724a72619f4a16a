"""Writes the tables about the clients of a run, when it ends.

A client that has work pauses exactly while it is offline, except if it continues its local steps offline
(``on_disconnect: finish``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fedsim.devices.population import Population
from fedsim.network.base import Direction
from fedsim.runs.clients import clients_table, sampled_clients
from fedsim.runs.critical import critical_path
from fedsim.runs.run import Run
from fedsim.runs.schema import CLIENTS, CRITICAL, ONLINE, PAUSES, PRESENCE, SPENT
from fedsim.runs.tables import from_columns, write_parquet
from fedsim.traces.intervals import ranks
from fedsim.units import NS_PER_S, to_ns
from fedsim.vocabulary.arrays import Bools, Floats, Ints

if TYPE_CHECKING:
    from fedsim.learning.evaluation import ClientMetrics

_ONLINE_POINTS = 2000
_ONLINE_STEP_S = 300.0
_CLIENTS_AT_ONCE = 10_000


def write_population(
    run: Run,
    population: Population,
    samples: Ints,
    end_ns: int,
    measured: ClientMetrics | None = None,
    names: Mapping[str, Any] | None = None,
) -> None:
    """Write the tables of a run that follow from its streamed ones, which are finished, and from its devices.

    Args:
        run: the run, whose ``simulated_s`` is known.
        population: the clients' devices.
        samples: training samples of each client, (N,).
        end_ns: simulated nanoseconds that the run lasted.
        measured: the last metrics of the clients.
        names: names of the clients and their devices, as for :func:`~fedsim.runs.clients.clients_table`.
    """
    folder, network, availability = run.folder, population.network, population.availability
    step_ns = max(to_ns(_ONLINE_STEP_S), end_ns // _ONLINE_POINTS)
    step_ns = max(1, min(step_ns, end_ns // 50))
    counts, online_ns = availability.online_summary(step_ns, end_ns)
    absences = _Absences(run, population, end_ns)
    footprint = population.footprint
    known = dict(names or {})
    if footprint is not None and footprint.regions is not None:
        known["region"] = footprint.regions
    if measured is not None:
        known["last_accuracy"] = measured.accuracy
    if measured is not None and measured.error is not None:
        known["last_mae"] = measured.error
    clients = clients_table(
        run.work,
        run.work_phases,
        duration_s=run.simulated_s,
        samples=samples,
        step_s=population.compute.step_s,
        down_bps=network.rates_bps(Direction.DOWN),
        up_bps=network.rates_bps(Direction.UP),
        online_fraction=online_ns / max(1, end_ns),
        busy_offline_s=absences.worked_s() + absences.waited_s(online_ns < end_ns),
        recharging_s=absences.recharged_s(),
        known=known,
    )
    run.written({CLIENTS.name: write_parquet(folder.parquet(CLIENTS.name), CLIENTS, clients)})
    del clients
    columns = {"time_s": np.arange(len(counts)) * step_ns / NS_PER_S, "online": counts}
    write_parquet(folder.parquet(ONLINE.name), ONLINE, from_columns(ONLINE, columns))
    sampled = sampled_clients(run.dispatches["client_id"].to_numpy())
    rows, from_ns, until_ns = availability.intervals_between(sampled, 0, end_ns)
    columns = {
        "client_id": sampled[rows],
        "from_s": from_ns / NS_PER_S,
        "to_s": until_ns / NS_PER_S,
    }
    write_parquet(folder.parquet(PRESENCE.name), PRESENCE, from_columns(PRESENCE, columns))
    pauses = write_parquet(folder.parquet(PAUSES.name), PAUSES, absences.pauses())
    run.written({PAUSES.name: pauses})
    columns = {str(name): column.to_numpy() for name, column in critical_path(run).items()}
    write_parquet(folder.parquet(CRITICAL.name), CRITICAL, from_columns(CRITICAL, columns))


def spent(run: Run) -> dict[str, float]:
    """The entries of ``run.json`` with the sums of the clients' emissions and cost, as far as the run has them."""
    return {name: float(run.clients[name].sum()) for name in SPENT if name in run.clients}


class _Absences:
    """What clients did while they were offline."""

    def __init__(self, run: Run, population: Population, end_ns: int) -> None:
        self._work = run.work
        self._clients: Ints = run.work["client_id"].to_numpy()
        self._paused_s: Floats = run.work_phases["paused_s"].to_numpy()
        self._waiting_s: Floats = run.work_phases["waiting_s"].to_numpy()
        self._population = population
        self._end_ns = end_ns

    def pauses(self) -> pa.Table:
        """One row per pause, ready for ``pauses.parquet``."""
        table = self._work[self._paused_s > 0]
        clients, begin_s, end_s = (
            table[name].to_numpy() for name in ("client_id", "dispatched_s", "ended_s")
        )
        row, from_s, to_s = self._within(clients, begin_s, end_s)
        if self._population.on_disconnect == "finish":
            # Offline time during local steps is no pause.
            works_from, works_until = (
                table[name].fillna(np.inf).to_numpy()[row]
                for name in ("downloaded_s", "computed_s")
            )
            row = np.concatenate([row, row])
            from_s = np.concatenate([from_s, np.maximum(from_s, works_until)])
            to_s = np.concatenate([np.minimum(to_s, works_from), to_s])
        some = from_s < to_s
        ids = table["dispatch_id"].fillna(-1).to_numpy(np.int64)[row[some]]
        return from_columns(
            PAUSES, {"dispatch_id": ids, "from_s": from_s[some], "to_s": to_s[some]}
        )

    def worked_s(self) -> Floats:
        """How long each client did local steps while it was offline, (clients,)."""
        if self._population.on_disconnect != "finish":
            return np.zeros(self._population.clients)
        table = self._work[self._work["downloaded_s"].notna()]
        end_s = table["computed_s"].fillna(table["ended_s"]).to_numpy()
        return self._total_s(table["client_id"].to_numpy(), table["downloaded_s"].to_numpy(), end_s)

    def waited_s(self, leaves: Bools) -> Floats:
        """How long each client was offline while its arrived update waited for aggregation, (clients,).

        ``leaves`` says of each client whether it is offline at any time of the run.
        """
        rows = np.flatnonzero((self._waiting_s > 0) & leaves[self._clients])
        clients, waiting_s = self._clients[rows], self._waiting_s[rows]
        arrived_s = self._work["arrived_s"].to_numpy()[rows]
        # Most waiting is short: one look-up per update leaves few clients that go offline meanwhile.
        arrived_ns = np.rint(arrived_s * NS_PER_S).astype(np.int64)
        online, change_ns = self._population.availability.state_many(clients, arrived_ns)
        online_until_ns = np.where(online, change_ns, arrived_ns)
        few = online_until_ns / NS_PER_S < arrived_s + waiting_s
        return self._total_s(clients[few], arrived_s[few], arrived_s[few] + waiting_s[few])

    def recharged_s(self) -> Floats:
        """How long each client was online and idle while its battery was below the floor, (clients,)."""
        batteries, count = self._population.batteries, self._population.clients
        if batteries is None:
            return np.zeros(count)
        dispatched_s, ended_s, energy_j = (
            self._work[name].to_numpy() for name in ("dispatched_s", "ended_s", "energy_j")
        )
        begin_ns, ended_ns = (
            np.rint(times_s * NS_PER_S).astype(np.int64) for times_s in (dispatched_s, ended_s)
        )
        ready_ns = batteries.replay(self._clients, begin_ns, ended_ns, energy_j).ready_ns
        # An update that waits is not idle time.
        begin_s = ended_s + self._waiting_s
        until_s = np.minimum(ready_ns, self._end_ns) / NS_PER_S
        rows = np.flatnonzero((ready_ns > ended_ns) & (begin_s < until_s))
        clients, begin_s, until_s = self._clients[rows], begin_s[rows], until_s[rows]
        low_s = np.bincount(clients, until_s - begin_s, minlength=count)
        online_s: Floats = np.maximum(low_s - self._total_s(clients, begin_s, until_s), 0.0)
        return online_s

    def _total_s(self, clients: Ints, begin_s: Floats, end_s: Floats) -> Floats:
        """How long each client was offline within these spans, (clients,)."""
        row, from_s, to_s = self._within(clients, begin_s, end_s)
        total_s = np.bincount(clients[row], to_s - from_s, minlength=self._population.clients)
        return total_s.astype(np.float64, copy=False)

    def _within(
        self, client_ids: Ints, begin_s: Floats, end_s: Floats
    ) -> tuple[Ints, Floats, Floats]:
        """The position of the span, begin and end of each absence within spans of time, clipped to them."""
        every, client_index = np.unique(client_ids, return_inverse=True)
        parts = [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))]
        for start in range(0, len(every), _CLIENTS_AT_ONCE):
            clients = every[start : start + _CLIENTS_AT_ONCE]
            rows = np.flatnonzero((client_index >= start) & (client_index < start + len(clients)))
            of_client, begins_s, ends_s = client_index[rows] - start, begin_s[rows], end_s[rows]
            interval_owner, online_ns, offline_ns = self._population.availability.intervals_between(
                clients, 0, self._end_ns
            )
            counts = np.bincount(interval_owner, minlength=len(clients))
            ends = np.cumsum(counts)
            owner = np.repeat(np.arange(len(clients)), counts + 1)
            # A client is offline before, between and after its intervals; some of these absences have no length.
            away_s = np.insert(offline_ns, ends - counts, 0) / NS_PER_S
            back_s = np.insert(online_ns, ends, self._end_ns) / NS_PER_S
            times = np.concatenate([away_s, back_s, begins_s, ends_s])
            rank = np.unique(times, return_inverse=True)[1]
            # Pairs of client and instant as single integers.
            pairs = np.concatenate([owner, owner, of_client, of_client]) * len(times) + rank
            away, back, begin, end = np.split(
                pairs, np.cumsum([len(away_s), len(back_s), len(begins_s)])
            )
            first = np.searchsorted(back, begin, side="right")
            counts = np.maximum(np.searchsorted(away, end, side="left") - first, 0)
            span = np.repeat(np.arange(len(rows)), counts)
            absence = np.repeat(first, counts) + ranks(counts)
            from_s = np.maximum(away_s[absence], begins_s[span])
            parts.append((rows[span], from_s, np.minimum(back_s[absence], ends_s[span])))
        row, from_s, to_s = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
        return row, from_s, to_s
