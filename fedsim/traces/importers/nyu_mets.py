"""NYU-METS: LTE throughput around New York, one line per second and no clock.

Two forms: lines of ``value,unit``, and the eight columns of the multivariate set, the first in Mbit/s. Source: Mei, Hu,
Cao, Liu, Han, Li, Li, "Realtime Mobile Bandwidth Prediction Using LSTM Neural Network", PAM 2019.
"""

from __future__ import annotations

import numpy as np

from fedsim.files.cells import RATES
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import link, link_tables, named_sources
from fedsim.units import US_PER_S


class NyuMets(Importer):
    """One downlink per file, one second per line, each with its own unit. A missing cell repeats the last rate."""

    name = "nyu_mets"
    description = "NYU-METS LTE throughput (value,unit per second; or multivariate)"
    signature = r"\n[\d.]*, ?[KMG]?bits/sec"

    @classmethod
    def read(cls, sources: Sources, params: ImporterParams) -> Imported:
        """One series per file; a missing rate repeats the last one."""
        counts = {"seconds": 0, "missing_rates": 0}
        links = []
        for name, source in named_sources(sources, (".csv", ".txt")):
            file = TableFile(source, header=False)
            if len(file.names) not in (2, 8):
                layout = "a line is value,unit or the multivariate set's eight columns"
                raise source.error(f"has {len(file.names)} fields, not 2 or 8", layout, line=1)
            frame = Frame([file], {"the rate": "1", "the unit": "2"}).load(("the rate", "the unit"))
            rate_bps = frame.number("the rate", 1e6)
            if len(file.names) == 2:
                code, words = frame.text("the unit")
                bits = np.array([*(RATES.get(word, np.nan) for word in words), np.nan])[code]
                hint = "a line is a number and one of bits/sec, Kbits/sec, Mbits/sec, Gbits/sec"
                frame.refuse(np.isnan(bits), "{} is not a unit", hint, "the unit")
                rate_bps = frame.number("the rate") * bits
            counts["seconds"] += len(frame)
            counts["missing_rates"] += int(np.count_nonzero(np.isnan(rate_bps)))
            edges_us = np.arange(len(frame) + 1, dtype=np.int64) * US_PER_S
            links.append(link(name, "down", edges_us, rate_bps, source.where, radio="lte"))
        return Imported(link_tables(links, kind="phone"), counts)
