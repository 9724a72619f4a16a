"""The columns of ``dispatches``, from dispatches that have ended.

Many dispatches are converted at once, because a division or a row for each of them would cost more than its event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

    def column(values: Iterable[Any], dtype: type[Any] = np.int64) -> Column:
        return np.fromiter(values, dtype, len(ended))

    def of_dispatch(name: str) -> Column:
        return column(map(attrgetter(name), dispatches))

    outcome, version, group, now_ns = map(column, marks)
    end_ns, endings, downloaded, computed, steps_done, down, up, *work = zip(*plans, strict=True)
    work_ns, end, ending = np.array(work, dtype=np.int64), column(end_ns), column(endings)
    arrived = ending == Ending.ARRIVED
    names = ("dispatch_id", "client_id", "version", "round", "sequence")
    columns = {name: of_dispatch(name) for name in names}
    watts = power.watts[power.of_client[columns["client_id"]]]
    columns |= {
        "steps_assigned": of_dispatch("steps"),
        "dispatched_s": _seconds(of_dispatch("dispatched_ns")),
        "downloaded_s": _seconds_or_nan(column(downloaded)),
        "computed_s": _seconds_or_nan(column(computed)),
        "arrived_s": _seconds_or_nan(np.where(arrived, end, -1)),
        "steps_done": column(steps_done),
        "outcome": outcome,
        "staleness": np.where(arrived, of_dispatch("staleness"), -1),
        "aggregated_version": version,
        "bytes_down": np.rint(column(down, np.float64)).astype(np.int64),
        "bytes_up": np.rint(column(up, np.float64)).astype(np.int64),
        "energy_j": (watts.T * work_ns).sum(0) / NS_PER_S,
        "group": group,
        "ended_s": _seconds(np.minimum(end, now_ns)),
        **dict(zip(("download_s", "compute_s", "upload_s"), map(_seconds, work_ns), strict=True)),
    }
    if dispatches[0].edge >= 0:
        columns["edge"] = of_dispatch("edge")
    if footprint is not None:
        columns |= footprint.columns(columns)
    columns["cause"] = np.where(outcome == Outcome.DROPPED, ending - Ending.OFFLINE, -1)
    return columns


def _seconds_or_nan(time_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Seconds; NaN for negative times."""
    return np.where(time_ns < 0, np.nan, _seconds(time_ns))


def _seconds(time_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The floating-point numbers nearest to the exact quotients, as Python's division of integers gives them."""
    if time_ns.max(initial=0) > _EXACT_NS:
        return np.array([value / NS_PER_S for value in time_ns.tolist()])
    return time_ns / NS_PER_S
