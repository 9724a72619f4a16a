"""Carbon intensity and prices of the grid at each client's place, and the emissions and cost of its work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.devices.battery import Power
from fedsim.errors import UserError
from fedsim.files.checksums import require_file
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import BY_GROUP, Cost, GridSeries
from fedsim.vocabulary.arrays import Array, Floats, Ints
from fedsim.vocabulary.formatting import format_names

_J_PER_KWH = 3.6e6
_MOST = 1e6
"""The largest carbon intensity or price; with much larger ones, a table may not contain the sums."""
_WORK = ("download_s", "compute_s", "upload_s")


class Series:
    """Carbon intensity (g CO2e) or price per kWh, constant in each interval; the series repeats forever.

    Args:
        edges_s: beginnings of the intervals from 0, and the end of the last one, ascending, (n + 1,).
        values: values, (n,).
    """

    def __init__(self, edges_s: Floats, values: Floats) -> None:
        self._edges = edges_s
        self._values = values
        # Extended precision: what is wanted is a small difference of large sums.
        steps = np.diff(self._edges).astype(np.longdouble) * values
        self._sums = np.concatenate([[np.longdouble(0)], np.cumsum(steps)])

    def integral(self, from_s: Floats, to_s: Floats) -> Floats:
        """Exact integrals over spans, (n,), in seconds times the unit."""
        return (self._until(to_s) - self._until(from_s)).astype(np.float64)

    def means(self, from_s: Floats, to_s: Floats) -> Floats:
        """Mean over each span, (n,); of an empty one, the value at its instant."""
        at = np.searchsorted(self._edges, from_s % self._edges[-1], side="right") - 1
        spans = to_s - from_s
        means: Floats = self._values[at]
        return np.divide(self.integral(from_s, to_s), spans, out=means, where=spans > 0)

    def _until(self, time_s: Floats) -> npt.NDArray[np.longdouble]:
        periods, rest = np.divmod(time_s, self._edges[-1])
        at = np.searchsorted(self._edges, rest, side="right") - 1
        within = (rest.astype(np.longdouble) - self._edges[at]) * self._values[at]
        result: npt.NDArray[np.longdouble] = periods * self._sums[-1] + self._sums[at] + within
        return result

    def cleanest_s(self, from_s: float, until_s: float) -> float:
        """The first instant of a span at which the value is least."""
        until_s = min(until_s, from_s + float(self._edges[-1]))  # One period has all values.
        first, last = int(from_s // self._edges[-1]), int(until_s // self._edges[-1])
        begins = np.add.outer(np.arange(first, last + 1) * self._edges[-1], self._edges[:-1])
        at, end = np.searchsorted(begins.ravel(), [from_s, until_s], side="right")
        values = np.tile(self._values, last - first + 1)[at - 1 : end]
        return max(from_s, float(begins.ravel()[at - 1 + int(values.argmin())]))


@dataclass(frozen=True, slots=True)
class Grid:
    """The carbon intensity or the prices of all regions, and the region of each client.

    Attributes:
        regions: the series.
        of_client: number of each client's region, (N,).
        names: the names of the regions, if there are several.
    """

    regions: Sequence[Series]
    of_client: Ints
    names: Sequence[str] = ()

    @classmethod
    def read(
        cls, given: GridSeries, clients: int, seed: int, groups: Sequence[str | None] = ()
    ) -> Grid:
        """The grid of a scenario, from files, which are imported, or a trace bundle; for :func:`regions` of clients."""
        names = regions(given, clients, seed, groups)
        distinct: list[str] = [given.region] if isinstance(given.region, str) else [""]
        of_client = np.zeros(clients, dtype=np.int64)
        if names is not None:
            unique, of_client = np.unique(np.asarray(names, dtype=str), return_inverse=True)
            distinct = unique.tolist()
        wanted: dict[Path, list[str]] = {}
        for name in distinct:
            wanted.setdefault(given.file_of(name), []).extend(filter(None, [name]))
        files = {path: _read(given, path, names) for path, names in wanted.items()}
        series, units = [], set()
        for name in distinct:
            known = files[path := given.file_of(name)]
            region = name if name or len(known) > 1 else next(iter(known))
            if region not in known:
                raise UserError(
                    f"has no region '{name}'" if name else "has several regions, and none is named",
                    where=path,
                    hint=f"its regions are {format_names(sorted(known), 20)}; name one: region: {next(iter(known))}",
                )
            series.append(known[region][1])
            units.add(known[region][0])
        if len(units) > 1:
            raise UserError(
                f"the regions have prices in {format_names(sorted(units))}",
                where=f"{given.key}.file",
                hint="convert them to one currency",
            )
        return cls(series, of_client, () if names is None else distinct)

    def means(self, clients: Ints, from_s: Floats, to_s: Floats) -> Floats:
        """Mean over a span at the place of each of some clients, (n,); the value at an instant."""
        means = np.zeros(len(clients))
        of_client = self.of_client[clients]
        for number, series in enumerate(self.regions):
            rows = of_client == number
            means[rows] = series.means(from_s[rows], to_s[rows])
        return means

    def of(self, members: Any) -> Grid:
        """The grid of some clients, by number or slice."""
        return Grid(self.regions, self.of_client[members], self.names)


@dataclass(frozen=True, slots=True)
class Footprint:
    """The emissions and the cost of dispatches.

    Attributes:
        power: watts of the devices while working.
        carbon: carbon intensity; None if the scenario does not give it.
        cost: prices; None if the scenario does not give them.
        prices: prices of the energy; None if it costs nothing.
    """

    power: Power
    carbon: Grid | None
    cost: Cost | None
    prices: Grid | None

    @property
    def regions(self) -> Any:
        """The name of each client's region, (N,); None if there is one."""
        grid = self.carbon or self.prices
        return np.array(grid.names)[grid.of_client] if grid and grid.names else None

    @property
    def names(self) -> list[str]:
        """The names of the :meth:`columns`."""
        given = {"gco2e": self.carbon, "cost": self.cost}
        return [name for name, one in given.items() if one is not None]

    def columns(self, dispatches: Mapping[str, Array]) -> dict[str, Floats]:
        """``gco2e`` (grams) and ``cost`` of each dispatch, (n,), each only if the scenario gives it.

        A phase draws its energy evenly between its instants, which is exact unless the client pauses in it.

        Args:
            dispatches: columns of :data:`fedsim.runs.schema.DISPATCHES`.
        """
        result = {}
        if self.carbon is not None:
            result["gco2e"] = self._of_energy(self.carbon, dispatches)
        if self.cost is not None:
            hours = sum(dispatches[name] for name in _WORK) / 3600
            moved = dispatches["bytes_down"] + dispatches["bytes_up"]
            result["cost"] = moved * self.cost.per_byte + hours * self.cost.per_device_hour
            if self.prices is not None:
                result["cost"] += self._of_energy(self.prices, dispatches)
        return result

    def _of_energy(self, grid: Grid, dispatches: Mapping[str, Array]) -> Floats:
        clients, ended_s = dispatches["client_id"], dispatches["ended_s"]
        watts = self.power.watts[self.power.of_client[clients]]
        # A phase that did not end has no instant, and one that ended later was not awaited.
        marks = (np.fmin(dispatches[name], ended_s) for name in ("downloaded_s", "computed_s"))
        instants = [dispatches["dispatched_s"], *marks, ended_s]
        total = np.zeros(len(clients))
        for phase, (begin_s, end_s) in enumerate(pairwise(instants)):
            joules = watts[:, phase] * dispatches[_WORK[phase]]
            total += joules * grid.means(clients, begin_s, end_s) / _J_PER_KWH
        return total


def _read(given: GridSeries, path: Path, wanted: Sequence[str]) -> dict[str, tuple[str, Series]]:
    """Unit and series of each region of a file or of the trace bundle in a folder."""
    # Slow to import, and few scenarios need them.
    from fedsim.traces.bundle import TraceBundle
    from fedsim.traces.importers import grid as importer
    from fedsim.traces.importers import import_bundle
    from fedsim.traces.validation import require_sound

    if path.is_dir():
        bundle = TraceBundle.read(path, tables=["grid"])
        require_sound(bundle)
    else:
        require_file(path)
        options = {"column": given.column, "unit": given.unit, "regions": wanted}
        bundle = import_bundle(importer.Grid, [path], importer.Grid.Params(**options))
    nothing = UserError(f"gives no {given.quantity}", where=path)
    result = {}
    groups = bundle.table("grid").to_pandas().groupby(["region", "unit"], observed=True)
    for (name, unit), rows in groups:
        if importer.measured(unit) == given.quantity:
            # Before its first interval, a series has its first value.
            edges_us = np.append(0, rows["start_us"] + rows["dur_us"])
            if rows["value"].isna().all():
                raise nothing
            # An unknown value is the last one before it, or else the first one.
            values = rows["value"].ffill().bfill().to_numpy()
            if (most := np.abs(values).max()) > _MOST:
                hint = f"values must be at most {_MOST:g} {unit}"
                raise UserError(f"has the value {most:g} {unit}", where=path, hint=hint)
            result[name] = (unit, Series(edges_us / 1e6, values))
    if not result:
        raise nothing
    return result


def regions(
    given: GridSeries, clients: int, seed: int, groups: Sequence[str | None]
) -> list[str] | None:
    """The region of each client, (N,); None if all are in one.

    With shares, clients are ordered at random and divided among the regions, exactly to one client.

    Args:
        given: the section.
        clients: number of clients N.
        seed: seed of the devices.
        groups: the column ``group`` of the clients' devices; empty without a trace.
    """
    if isinstance(given.region, dict):
        rank = Stream(seed, Purpose.REGION).uniforms(np.arange(clients)).argsort().argsort()
        ends = np.cumsum(list(given.region.values())) * clients / sum(given.region.values())
        names = list(given.region)
        return [names[place] for place in np.searchsorted(ends, rank + 0.5).tolist()]
    if given.region != BY_GROUP:
        return None
    known = [group for group in groups if group is not None]
    if len(known) < clients:
        raise UserError(
            "devices of the trace have no group",
            where=f"{given.key}.region",
            hint="fill the column group of its table devices, or give shares: region: {FR: 0.6, DE: 0.4}",
        )
    return known
