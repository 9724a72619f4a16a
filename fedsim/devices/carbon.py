"""The carbon intensity of the grid at each client's place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import BY_GROUP, Carbon

Floats = npt.NDArray[np.float64]
_TIMES = ("datetime", "from", "time")
_INTENSITIES = ("life cycle", "lca", "actual", "intensity")
"""What names of columns contain: of the beginning of an interval, and of its intensity, the best first."""
_REGION = "{region}"


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

    def cleanest_s(self, from_s: float, until_s: float) -> float:
        """The first instant of a span at which the intensity is least."""
        first, last = int(from_s // self._edges[-1]), int(until_s // self._edges[-1])
        begins = np.add.outer(np.arange(first, last + 1) * self._edges[-1], self._edges[:-1])
        at, end = np.searchsorted(begins.ravel(), [from_s, until_s], side="right")
        values = np.tile(self._values, last - first + 1)[at - 1 : end]
        return max(from_s, float(begins.ravel()[at - 1 + int(values.argmin())]))

    @classmethod
    def read(cls, path: Path, region: str | None = None) -> Intensity:
        """The series of a CSV file as Electricity Maps or the carbon-intensity service of Great Britain writes it.

        Args:
            path: the file; its first interval begins at simulated time 0.
            region: value of the zone's column, if the file has several zones.

        Raises:
            UserError: the file has no such columns or region, or its times do not ascend.
        """
        import pandas as pd

        where = "devices.carbon"
        try:
            table = pd.read_csv(path)
        except (OSError, ValueError) as error:
            raise UserError(f"cannot be read: {error}", where=f"{where}.file: {path}") from None
        zones = [
            name for name in table.columns if name.lower() in ("zone id", "zone name", "region")
        ]
        if region is not None:
            table = table[(table[zones] == region).any(axis=1)]
        columns = [
            next((c for part in parts for c in table.columns if part in c.lower()), None)
            for parts in (_TIMES, _INTENSITIES)
        ]
        if None in columns or len(table) < 2:
            raise UserError(
                f"{path} has no columns of time and carbon intensity or no rows of region '{region}'",
                where=where,
                hint=f"its columns are: {', '.join(map(str, table.columns))}",
            )
        # An interval that is not known has the value before it.
        table = table.dropna(subset=[columns[1]])
        times = pd.to_datetime(table[columns[0]], utc=True)
        begins_s: Floats = np.asarray((times - times.iloc[0]).dt.total_seconds(), dtype=np.float64)
        if (np.diff(begins_s) <= 0).any():
            hint = "sort the file, or name one of its zones (devices.carbon.region)"
            raise UserError(f"the times of {path} do not ascend", where=where, hint=hint)
        period_s = 2 * begins_s[-1] - begins_s[-2]
        return cls(begins_s, table[columns[1]].to_numpy(np.float64), float(period_s))


@dataclass(frozen=True, slots=True)
class Grid:
    """The intensities of all regions, and the region of each client.

    Attributes:
        regions: the intensities.
        of_client: number of each client's region, (N,).
    """

    regions: Sequence[Intensity]
    of_client: npt.NDArray[np.int64]

    @classmethod
    def read(cls, carbon: Carbon, names: Sequence[str] | None, clients: int) -> Grid:
        """The grid of a scenario.

        Args:
            carbon: the section.
            names: the region of each client, (N,); None if all are in the one of the section.
            clients: number of clients N.

        Raises:
            UserError: a file is missing or not as :meth:`Intensity.read` says.
        """
        if names is None:
            assert carbon.region is None or isinstance(carbon.region, str)
            distinct, of_client = [carbon.region], np.zeros(clients, dtype=np.int64)
        else:
            unique, of_client = np.unique(np.asarray(names, dtype=str), return_inverse=True)
            distinct = unique.tolist()
        is_pattern = _REGION in str(carbon.file)
        series = [
            Intensity.read(
                Path(str(carbon.file).replace(_REGION, name or "")), None if is_pattern else name
            )
            for name in distinct
        ]
        return cls(series, of_client)

    def of(self, members: Any) -> Grid:
        """The grid of some clients, by number or slice."""
        return Grid(self.regions, self.of_client[members])


def regions(
    carbon: Carbon, clients: int, seed: int, groups: Sequence[str | None] | None
) -> list[str] | None:
    """The region of each client, (N,); None if all are in one.

    With shares, clients are ordered at random and divided among the regions, exactly to one client.

    Args:
        carbon: the section.
        clients: number of clients N.
        seed: seed of the devices.
        groups: the column ``group`` of the clients' devices; None without a trace or the column.

    Raises:
        UserError: regions are to be those of groups, but a device has none.
    """
    if isinstance(carbon.region, dict):
        rank = Stream(seed, Purpose.REGION).uniforms(np.arange(clients)).argsort().argsort()
        ends = np.cumsum(list(carbon.region.values())) * clients / sum(carbon.region.values())
        names = list(carbon.region)
        return [names[place] for place in np.searchsorted(ends, rank + 0.5).tolist()]
    if carbon.region != BY_GROUP:
        return None
    known = [group for group in groups or () if group is not None]
    if len(known) < clients:
        raise UserError(
            "devices of the trace have no group",
            where="devices.carbon.region",
            hint="fill the column group of its table devices, or give shares: region: {FR: 0.6, DE: 0.4}",
        )
    return known
