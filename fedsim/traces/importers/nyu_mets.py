"""NYU-METS: LTE throughput around New York, one line per second and no clock.

Two forms: lines of ``value,unit``, and the eight columns of the multivariate set, the first in Mbit/s. Source: Mei, Hu,
Cao, Liu, Han, Li, Li, "Realtime Mobile Bandwidth Prediction Using LSTM Neural Network", PAM 2019.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsim.traces.importers import Imported, Importer, ImporterParams, SourceFile, Sources
from fedsim.traces.importers._numbers import Number
from fedsim.traces.importers._series import Series, hold_unknown, named_sources, series_tables
from fedsim.traces.tables import Floats

UNITS: Mapping[str, float] = {
    "bits/sec": 1.0,
    "Kbits/sec": 1e3,
    "Mbits/sec": 1e6,
    "Gbits/sec": 1e9,
}
MULTIVARIATE_COLUMNS = 8
RATE = Number("the rate", missing=("",))


class NyuMets(Importer):
    """One downlink per file, one second per line, each with its own unit. A missing cell repeats the last rate."""

    name = "nyu_mets"
    description = "NYU-METS LTE throughput (value,unit per second; or multivariate)"
    signature = r"\n[\d.]*, ?[KMG]?bits/sec"

    @classmethod
    def read(cls, sources: Sources, params: ImporterParams) -> Imported:
        """One series per file; a missing rate repeats the last one."""
        counts = {"seconds": 0, "missing_rates": 0}
        series = []
        for name, source in named_sources(sources, (".csv", ".txt")):
            held, missing = hold_unknown(_rates(source), source.error("has no rates"))
            counts["seconds"] += len(held)
            counts["missing_rates"] += missing
            edges_us = np.arange(len(held) + 1, dtype=np.int64) * 1_000_000
            radio = ["lte"] * len(held)
            series.append(Series(name, "down", edges_us, held, radio=radio, where=source.where))
        return Imported(series_tables(series, kind="phone"), counts)


def _rates(source: SourceFile) -> Floats:
    """Rate of each second (bit/s); NaN if missing."""
    cells, factors, lines = [], [], []
    layout = "a line is value,unit or the multivariate set's eight columns"
    for line, fields in source.cells(",", [2, MULTIVARIATE_COLUMNS], layout):
        if len(fields) == 2 and fields[1] not in UNITS:
            hint = f"a line is a number and one of: {', '.join(UNITS)}"
            raise source.error(f"'{fields[1]}' is not a unit", hint, line=line)
        cells.append(fields[0])
        factors.append(UNITS[fields[1]] if len(fields) == 2 else 1e6)
        lines.append(line)
    rates = RATE.read(cells, lambda row: source.line(lines[row]))
    return np.asarray(rates * np.array(factors))
