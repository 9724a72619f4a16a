"""The columns of ``dispatches``, from dispatches that have ended.

Many dispatches are converted at once, because a division or a row for each of them would cost more than its event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.devices.battery import Power
from fedsim.devices.grid import Footprint
from fedsim.devices.population import Population
from fedsim.simulation.updates import Ended
from fedsim.units import NS_PER_S
from fedsim.vocabulary.outcomes import Ending, Outcome

Column = npt.NDArray[Any]
_Ints = npt.NDArray[np.int64]
_RENAMED = {"dispatched_s": "dispatched_ns", "steps_assigned": "steps"}
_FROM_DISPATCH: dict[str, Callable[[Any], int]] = {
    column: attrgetter(_RENAMED.get(column, column))
    for column in (
        "dispatch_id",
        "client_id",
        "version",
        "round",
        "staleness",
        "sequence",
        *_RENAMED,
    )
}
_EXACT_NS = 1 << 53


def recorded(population: Population) -> dict[str, Any]:
    """What a :class:`~fedsim.runs.writer.RunWriter` needs to know about the dispatches of a population."""
    footprint = population.footprint
    columns = partial(dispatch_columns, population.power, footprint=footprint)
    return {"columns": columns, "spent": [] if footprint is None else footprint.names}


def dispatch_columns(
    power: Power, ended: Sequence[Ended], footprint: Footprint | None = None
) -> dict[str, Column]:
    """The columns of ``dispatches`` by name, (n,) each; times are NaN and whole numbers -1 if there is none.

    ``power`` gives the energy that their devices use, and ``footprint`` its emissions and cost.
    """
    dispatches, plans, *marks = zip(*ended, strict=True)
    count = len(ended)
    columns: dict[str, Column] = {
        name: np.fromiter(map(read, dispatches), np.int64, count)
        for name, read in _FROM_DISPATCH.items()
    }
    if dispatches[0].edge >= 0:
        columns["edge"] = np.fromiter((dispatch.edge for dispatch in dispatches), np.int64, count)
    outcome, version, group, now_ns = (np.fromiter(mark, np.int64, count) for mark in marks)
    end_ns, endings, downloaded, computed, steps_done, down, up, *work = zip(*plans, strict=True)
    work_ns = np.array(work, dtype=np.int64)
    end = np.fromiter(end_ns, np.int64, count)
    ending = np.fromiter(endings, np.int64, count)
    arrived = ending == Ending.ARRIVED
    columns["dispatched_s"] = _seconds(columns["dispatched_s"])
    columns["downloaded_s"] = _seconds_or_nan(np.fromiter(downloaded, np.int64, count))
    columns["computed_s"] = _seconds_or_nan(np.fromiter(computed, np.int64, count))
    columns["arrived_s"] = _seconds_or_nan(np.where(arrived, end, -1))
    columns["steps_done"] = np.fromiter(steps_done, np.int64, count)
    columns["outcome"] = outcome
    columns["staleness"] = np.where(arrived, columns["staleness"], -1)
    columns["aggregated_version"] = version
    columns["bytes_down"] = np.rint(np.fromiter(down, np.float64, count)).astype(np.int64)
    columns["bytes_up"] = np.rint(np.fromiter(up, np.float64, count)).astype(np.int64)
    watts = power.watts[power.of_client[columns["client_id"]]]
    columns["energy_j"] = (watts.T * work_ns).sum(0) / NS_PER_S
    columns["group"] = group
    columns["ended_s"] = _seconds(np.minimum(end, now_ns))
    for name, spent_ns in zip(("download_s", "compute_s", "upload_s"), work_ns, strict=True):
        columns[name] = _seconds(spent_ns)
    if footprint is not None:
        columns |= footprint.columns(columns)
    columns["cause"] = np.where(outcome == Outcome.DROPPED, ending - Ending.OFFLINE, -1)
    return columns


def _seconds_or_nan(time_ns: _Ints) -> npt.NDArray[np.float64]:
    """Seconds; NaN for negative times."""
    return np.where(time_ns < 0, np.nan, _seconds(time_ns))


def _seconds(time_ns: _Ints) -> npt.NDArray[np.float64]:
    """The floating-point numbers nearest to the exact quotients, as Python's division of integers gives them."""
    if time_ns.max(initial=0) > _EXACT_NS:
        return np.array([value / NS_PER_S for value in time_ns.tolist()])
    return time_ns / NS_PER_S
