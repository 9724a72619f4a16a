"""Emissions and cost of a run's dispatches, from the carbon intensity of the grid and from prices."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedsim.analysis.figures.base import section
from fedsim.errors import UserError
from fedsim.runs import Run
from fedsim.runs.phases import WORK_PHASES
from fedsim.scenario.model import Devices, Energy, EnergyClass

Floats = npt.NDArray[np.float64]
_J_PER_KWH = 3.6e6
_TIMES = ("datetime", "from", "time")
_INTENSITIES = ("life cycle", "lca", "actual", "intensity")
"""What names of columns contain: of the beginning of an interval, and of its intensity, the best first."""


class Intensity:
    """Carbon intensity in g CO2e per kWh, constant in each interval; the series repeats forever.

    Args:
        begins_s: beginnings of the intervals, ascending from 0, (n,).
        values: intensities, (n,).
        period_s: end of the last interval.
    """

    def __init__(self, begins_s: Floats, values: Floats, period_s: float) -> None:
        self._edges = np.append(begins_s, period_s)
        self._values = values
        # Extended precision: what is wanted is a small difference of large sums.
        steps = np.diff(self._edges).astype(np.longdouble) * values
        self._sums = np.concatenate([[np.longdouble(0)], np.cumsum(steps)])

    def integral(self, from_s: Floats, to_s: Floats) -> Floats:
        """Exact integrals over spans, (n,), in g CO2e s / kWh."""
        return (self._until(to_s) - self._until(from_s)).astype(np.float64)

    def _until(self, time_s: Floats) -> npt.NDArray[np.longdouble]:
        periods, rest = np.divmod(time_s, self._edges[-1])
        at = np.searchsorted(self._edges, rest, side="right") - 1
        within = (rest.astype(np.longdouble) - self._edges[at]) * self._values[at]
        result: npt.NDArray[np.longdouble] = periods * self._sums[-1] + self._sums[at] + within
        return result

    @classmethod
    def read(cls, path: Path, region: str | None = None) -> Intensity:
        """The series of a CSV file as Electricity Maps or the carbon-intensity service of Great Britain writes it.

        Args:
            path: the file; its first interval begins at simulated time 0.
            region: value of the zone's column, if the file has several zones.

        Raises:
            UserError: the file has no such columns or region, or its times do not ascend.
        """
        table = pd.read_csv(path)
        zones = [
            name for name in table.columns if name.lower() in ("zone id", "zone name", "region")
        ]
        if region is not None:
            table = (
                table[np.any([table[name] == region for name in zones], axis=0)]
                if zones
                else table[:0]
            )
        columns = [
            next((c for part in parts for c in table.columns if part in c.lower()), None)
            for parts in (_TIMES, _INTENSITIES)
        ]
        if None in columns or len(table) < 2:
            what = (
                f"rows of region '{region}'"
                if None not in columns
                else "columns of time and carbon intensity"
            )
            raise UserError(
                f"{path} has no {what}",
                where="devices.carbon",
                hint="its columns are: " + ", ".join(map(str, table.columns)),
            )
        times = pd.to_datetime(table[columns[0]], utc=True)
        begins_s: Floats = np.asarray((times - times.iloc[0]).dt.total_seconds(), dtype=np.float64)
        if any(later <= earlier for earlier, later in pairwise(begins_s)):
            hint = (
                "name one (devices.carbon.region)" if zones and region is None else "sort the file"
            )
            raise UserError(f"the times of {path} do not ascend", where="devices.carbon", hint=hint)
        period_s = 2 * begins_s[-1] - begins_s[-2]
        return cls(begins_s, table[columns[1]].to_numpy(np.float64), float(period_s))


def footprint(run: Run) -> pd.DataFrame | None:
    """Emissions and cost of each dispatch; None if the scenario gives neither ``devices.carbon`` nor ``devices.cost``.

    Columns: ``client_id``, ``outcome``, ``gco2e`` (grams) and ``cost``, each only if the scenario defines it. A
    phase draws its energy evenly between its instants, which is exact unless the client pauses in it.
    """
    devices = Devices.model_validate(section(run, "devices"))
    table = run.dispatches
    result = table[["client_id", "outcome"]].copy()
    if devices.carbon is not None:
        result["gco2e"] = _grams(run, devices)
    if devices.cost is not None:
        hours = sum(table[f"{phase}_s"] for phase in WORK_PHASES) / 3600
        moved = table["bytes_down"] + table["bytes_up"]
        result["cost"] = moved * devices.cost.per_byte + hours * devices.cost.per_device_hour
    return result if result.shape[1] > 2 else None


def _grams(run: Run, devices: Devices) -> Floats:
    assert devices.carbon is not None
    intensity = Intensity.read(devices.carbon.file, devices.carbon.region)
    table, energy = run.dispatches, devices.energy
    ended = table["ended_s"].to_numpy()
    instants = [table["dispatched_s"].to_numpy()]
    for name in ("downloaded_s", "computed_s"):
        instants.append(np.minimum(table[name].fillna(np.inf).to_numpy(), ended))
    instants.append(ended)
    watts = _watts(run, energy)[table["client_id"]]
    grams = np.zeros(len(table))
    for number, (phase, (begins, ends)) in enumerate(
        zip(WORK_PHASES, pairwise(instants), strict=True)
    ):
        joules = watts[:, number] * table[f"{phase}_s"].to_numpy()
        spans = ends - begins
        with np.errstate(all="ignore"):
            mean = intensity.integral(begins, ends) / spans
        grams += np.where(spans > 0, joules * mean, 0.0) / _J_PER_KWH
    return grams


def _watts(run: Run, energy: Energy) -> Floats:
    """Power of each client's device while downloading, computing and uploading, (N, 3)."""
    figures: list[Energy | EnergyClass] = [energy, *energy.classes.values()]
    watts = np.array([[one.download_w, one.compute_w, one.upload_w] for one in figures])
    kinds = pd.Index(list(energy.classes)).get_indexer(pd.Index(run.clients["kind"]))
    of_clients: Floats = watts[kinds + 1]
    return of_clients
