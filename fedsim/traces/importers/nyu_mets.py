"""NYU-METS: LTE throughput around New York, a line a second and no clock.

Two forms: ``value,unit`` lines, and the multivariate set's eight columns, whose first is Mbit/s. Source: Mei, Hu, Cao,
Liu, Han, Li, Li, "Realtime Mobile Bandwidth Prediction Using LSTM Neural Network", PAM 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._assemble import bundle
from fedsim.traces.importers._files import SourceFile, source_files
from fedsim.traces.importers._series import (
    Series,
    hold_unknown,
    require_single,
    series_names,
    series_tables,
)

UNITS: Mapping[str, float] = {
    "bits/sec": 1.0,
    "Kbits/sec": 1e3,
    "Mbits/sec": 1e6,
    "Gbits/sec": 1e9,
}
MULTIVARIATE_COLUMNS = 8


class NyuMetsParams(ImporterParams):
    """The NYU-METS importer has no options of its own."""


class NyuMets(Importer):
    """A downlink a file, one second a line; every line's own unit counts. A missing cell holds the last rate known."""

    name: ClassVar[str] = "nyu_mets"
    description: ClassVar[str] = "NYU-METS LTE throughput (value,unit a second; or multivariate)"
    Params: ClassVar[type[Parameters]] = NyuMetsParams

    @classmethod
    def read(cls, paths: Sequence[Path], params: NyuMetsParams) -> TraceBundle:
        """See :meth:`Importer.read`."""
        sources = list(source_files(paths))
        names = series_names([source.name for source in sources], (".csv", ".txt"))
        require_single(names, [source.where for source in sources])
        counts = {"seconds": 0, "missing_rates": 0}
        series = []
        for name, source in zip(names, sources, strict=True):
            rate_bps = _rates(source)
            try:
                held, missing = hold_unknown(rate_bps)
            except ValueError:
                raise UserError("has no rates", where=source.where) from None
            counts["seconds"] += len(held)
            counts["missing_rates"] += missing
            edges_us = np.arange(len(held) + 1, dtype=np.int64) * 1_000_000
            series.append(Series(name, "down", edges_us, held, radio=["lte"] * len(held)))
        tables = series_tables(series, kind="phone")
        return bundle(
            cls,
            params,
            paths,
            tables,
            counts,
            horizon_us=int(tables["devices"].column("window_end_us").to_numpy().max()),
            on_end="wrap",
        )


def _rates(source: SourceFile) -> npt.NDArray[np.float64]:
    rates = []
    for line, text in enumerate(source.text().splitlines(), start=1):
        if not text.strip():
            continue
        fields = [field.strip() for field in text.split(",")]
        if len(fields) == 2:
            if fields[1] not in UNITS:
                raise UserError(
                    f"'{fields[1]}' is not a unit",
                    where=source.line(line),
                    hint=f"a line is a number and one of: {', '.join(UNITS)}",
                )
            factor = UNITS[fields[1]]
        elif len(fields) == MULTIVARIATE_COLUMNS:
            factor = 1e6
        else:
            raise UserError(
                f"has {len(fields)} fields, not 2 or {MULTIVARIATE_COLUMNS}",
                where=source.line(line),
                hint="a line is value,unit or the multivariate set's eight columns",
            )
        try:
            value = float(fields[0]) if fields[0] else np.nan
        except ValueError:
            value = -1.0
        if value < 0 or value == np.inf or (np.isnan(value) and fields[0]):
            raise UserError(
                f"'{fields[0]}' is not a rate of 0 or more",
                where=source.line(line),
                hint="leave the cell empty where the rate is missing",
            )
        rates.append(value * factor)
    return np.array(rates, np.float64)
