"""Writes the tables about the clients of a run, when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedsim.composition.pauses import (
    pauses_table,
    recharged_s,
    waited_offline_s,
    worked_offline_s,
)
from fedsim.devices.population import Population
from fedsim.network.base import Direction
from fedsim.runs.clients import clients_table, sampled_clients
from fedsim.runs.run import Run
from fedsim.runs.schema import CLIENTS, ONLINE, PAUSES, PRESENCE
from fedsim.runs.tables import from_columns, write_parquet
from fedsim.units import NS_PER_S, to_ns

if TYPE_CHECKING:
    from fedsim.learning.evaluation import ClientMetrics

_ONLINE_POINTS = 2000
_ONLINE_STEP_S = 300.0


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
