"""Rates of links over time: the formats of Pensieve, NYU-METS, Mahimahi and UCC 5G.

Pensieve's "cooked" traces have lines of ``time_s TAB Mbit/s``; many bandwidth collections are published in this form
(Mao, Netravali, Alizadeh, "Neural Adaptive Video Streaming with Pensieve", SIGCOMM 2017). NYU-METS has one line per
second, ``value,unit`` or eight columns of which the first is in Mbit/s, and no clock (Mei, Hu, Cao, Liu, Han, Li, Li,
"Realtime Mobile Bandwidth Prediction Using LSTM Neural Network", PAM 2019). A line of Mahimahi's traces is the
millisecond in which one 1,500-byte packet can be delivered (Netravali et al., "Mahimahi: Accurate Record-and-Replay for
HTTP", ATC 2015; Winstein, Sivaraman, Balakrishnan, "Stochastic Forecasts Achieve High Throughput and Low Delay over
Cellular Networks", NSDI 2013). UCC 5G has logs of phones in an Irish production network, about one row per second
(Raca, Leahy, Sreenan, Quinlan, "Beyond Throughput, the Next Generation: a 5G Dataset with Channel and Context Metrics",
MMSys 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedsim.files.cells import NAT, RATES, TIME_S, Bounds, Floats, Ints
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import link, link_tables, microseconds, named_sources
from fedsim.traces.tables import run_starts
from fedsim.units import DAY_S, US_PER_S

PACKET_BITS = 12_000
_BPS_PER_PACKET = PACKET_BITS / 0.001
_TIMES = Bounds(0, 100 * 366 * 1000 * DAY_S, words="from 0 to a hundred years")
_BITRATES = {"down": "DL_bitrate", "up": "UL_bitrate"}
REQUIRED = ("Timestamp", "NetworkMode", "State", *_BITRATES.values())
_PLAYERS = ("Amazon_Prime", "Netflix")
_RADIO: Mapping[str, str] = {
    **dict.fromkeys(("umts", "hspa", "hspa+", "hsdpa", "hsupa"), "3g"),
    **dict.fromkeys(("edge", "gprs", "gsm"), "2g"),
    "lte": "lte",
    "5g": "5g",
}


class Pensieve(Importer):
    """One series per file, from its first time; the rate in the first line belongs to no interval and is dropped.

    Of several lines with the same time, the first one counts. The series repeats at its end.
    """

    name = "pensieve"
    description = "Pensieve cooked throughput traces (time, Mbit/s), one file per link"
    signature = r"^[^\n]*\n(\d+(\.\d*)?([eE]-?\d+)?[\t ]+\d+\.\d*([eE]-?\d+)?[ ]*\r?\n){2}"

    class Params(ImporterParams):
        """Options of the Pensieve importer."""

        direction: Literal["down", "up", "both"] = "down"
        """Direction that was measured."""
        app_limited: bool = False
        """The rates are those of an application such as a video player, not the link's capacity (Puffer); noted in the
        manifest, because such a link appears slower than it is."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One series per file."""
        counts = {"first_rates": 0, "zero_length": 0}
        links = []
        for name, source in named_sources(sources, (".txt", ".log", ".csv")):
            file = TableFile(source, header=False)
            if len(file.names) != 2:
                message = f"has {len(file.names)} fields, not 2"
                raise source.error(
                    message, "a cooked trace has lines of: time in seconds, a tab, Mbit/s", line=1
                )
            frame = Frame([file], {"time": "1", "rate": "2"}).load(("time", "rate"))
            time_us = microseconds(frame.number("time", 1.0, TIME_S, "s"))
            rate_bps = frame.number("rate", 1e6, unit="Mbit/s")
            length = np.diff(time_us)
            frame.refuse(
                np.append(False, length < 0),
                "the time is {}, before the one above it",
                "times must not decrease; split the file there",
                "time",
            )
            keep = length > 0
            if not keep.any():
                raise source.error("has no interval between two times")
            counts["first_rates"] += 1
            counts["zero_length"] += int(np.count_nonzero(~keep))
            edges_us = np.append(0, np.cumsum(length[keep]))
            links.append(link(name, params.direction, edges_us, rate_bps[1:][keep], source.where))
        caveats = ["rates of an application, not of the link"] if params.app_limited else []
        return Imported(link_tables(links), counts, caveats)


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


class Mahimahi(Importer):
    """One link per pair of ``NAME.down`` and ``NAME.up``, or per single file.

    n opportunities at millisecond t become the rate n x 12 Mbit/s in [t, t + 1) ms; adjacent milliseconds with the same
    rate are one row. The series is thus one millisecond longer than Mahimahi's loop, which restarts at its last
    timestamp.
    """

    name = "mahimahi"
    description = "Mahimahi packet-delivery traces (.down, .up)"
    signature = r"^[^\n]*\.(down|up)\n\s*\d+\s"

    class Params(ImporterParams):
        """Options of the Mahimahi importer."""

        direction: Literal["down", "up"] | None = None
        """Direction of the link; by default that of the file's ending (``.down`` or ``.up``)."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One series per file; the files of a pair belong to one link."""
        counts = {"opportunities": 0, "out_of_order": 0}
        links = []
        for name, source in named_sources(sources):
            ending = next((ending for ending in (".down", ".up") if name.endswith(ending)), "")
            direction = params.direction or ending.removeprefix(".")
            if not direction:
                hint = "end the name in .down or .up, or set direction=down"
                raise source.error("its name does not give the direction", hint)
            frame = Frame([TableFile(source, header=False)], {"the time": "1"}).load(["the time"])
            time_ms = frame.number("the time", 1.0, _TIMES, "ms")
            frame.refuse(
                time_ms % 1 != 0, "the time is {}", "it must be a whole number of ms", "the time"
            )
            counts["opportunities"] += len(time_ms)
            counts["out_of_order"] += int(np.count_nonzero(np.diff(time_ms) < 0))
            edges_us, packets = _pieces(np.sort(time_ms.astype(np.int64)))
            links.append(
                link(
                    name.removesuffix(ending),
                    direction,
                    edges_us,
                    packets * _BPS_PER_PACKET,
                    source.where,
                )
            )
        return Imported(link_tables(links), counts)


def _pieces(time_ms: Ints) -> tuple[Ints, Floats]:
    """Runs of milliseconds with the same number of packets: edges (us), shape (n + 1,), and that number, shape (n,)."""
    busy, packets = np.unique(time_ms, return_counts=True)
    # Each busy millisecond and the idle time after it, which is empty if the next millisecond is busy too.
    edges = np.append(0, np.column_stack([busy, busy + 1]).ravel())
    number = np.append(0, np.column_stack([packets, np.zeros_like(packets)]).ravel())[:-1]
    keep = np.diff(edges) > 0
    start, number = edges[:-1][keep], number[keep]
    first = run_starts(number)
    edges_us = np.append(start[first], busy[-1] + 1) * 1000
    return edges_us.astype(np.int64), number[first].astype(np.float64)


class Ucc5g(Importer):
    """One link per file, down and up, with radio, round-trip time and loss if they were measured.

    Rows of the same second are averaged. Missing rates, and rates measured while nothing was downloaded (a state
    without a D), do not show the link's capacity; they are replaced by the last known rate. A row applies until the
    next one.
    """

    name = "ucc5g"
    description = "UCC 5G production traces (CSV, folder or zip)"
    signature = r"NetworkMode.*DL_bitrate"

    class Params(ImporterParams):
        """Options of the UCC 5G importer."""

        app_limited: bool = False
        """Also import the traces of video players (Amazon_Prime, Netflix), whose rates are those that the player
        requested, not the link's capacity."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """Two series per file."""
        kinds = "rows same_second out_of_order seconds_without_row missing_rates idle_rows"
        files = list(sources)
        chosen = [
            file
            for file in files
            if params.app_limited or not any(player in file.where for player in _PLAYERS)
        ]
        counts = {"files": len(chosen), "app_limited_files": len(files) - len(chosen)}
        counts |= dict.fromkeys(kinds.split(), 0)
        links = [
            piece
            for name, file in named_sources(chosen, (".csv",))
            for piece in _links(name, file, counts)
        ]
        if not links:
            raise sources.error(
                "contains only traces of video players, whose rates are not those of the link",
                "import the Download traces, or set app_limited=true",
            )
        caveats = ["a row is an average over about a second and misses shorter outages"]
        if params.app_limited:
            caveats.append("some rates are those of a video player, not of the link")
        return Imported(link_tables(links, kind="phone"), counts, caveats)


def _links(name: str, source: SourceFile, counts: dict[str, int]) -> list[pd.DataFrame]:
    """The two directions of one file."""
    file = TableFile(source)
    if lacking := [column for column in REQUIRED if column not in file.names]:
        hint = f"a UCC 5G log has the columns: {', '.join(REQUIRED)}"
        raise source.error(f"has no column {', '.join(lacking)}", hint, line=1)
    optional = [column for column in ("PINGAVG", "PINGLOSS") if column in file.names]
    frame = Frame([file], {column: column for column in (*REQUIRED, *optional)})
    frame.load([*REQUIRED, *optional], ["NetworkMode", "State"])
    if not len(frame):
        raise source.error("has no rows")
    time_us = frame.instants("Timestamp", form="%Y.%m.%d_%H.%M.%S").us
    frame.refuse(time_us == NAT, "has no Timestamp")
    state, states = frame.text("State")
    mode, modes = frame.text("NetworkMode", lower=True)
    rows = pd.DataFrame(
        {column: frame.number(column) for column in (*_BITRATES.values(), *optional)}
    )
    idle = ~np.array([*("D" in word for word in states), False])[state]
    counts["rows"] += len(rows)
    counts["out_of_order"] += int(np.count_nonzero(np.diff(time_us) < 0))
    counts["idle_rows"] += int(np.count_nonzero(idle))
    counts["missing_rates"] += int(rows[list(_BITRATES.values())].isna().to_numpy().sum())
    rows.loc[idle, list(_BITRATES.values())] = np.nan
    rows["mode"] = mode
    rows["time"] = time_us - time_us.min()
    seconds = rows.groupby("time").mean()
    start_us = seconds.index.to_numpy(np.int64)
    counts["same_second"] += len(rows) - len(seconds)
    edges_us = np.append(start_us, start_us[-1] + US_PER_S)
    counts["seconds_without_row"] += int(edges_us[-1] // US_PER_S) - len(seconds)
    radios = np.array([*(_RADIO.get(word) for word in modes), None], dtype=object)
    other: dict[str, Any] = {"radio": radios[rows.groupby("time")["mode"].nth(0).to_numpy()]}
    if "PINGAVG" in optional:
        other["rtt_s"] = seconds["PINGAVG"].to_numpy() / 1000.0
    if "PINGLOSS" in optional:
        other["loss"] = np.minimum(seconds["PINGLOSS"].to_numpy() / 100, 1)
    for column in _BITRATES.values():
        if seconds[column].isna().all():
            raise source.error(f"no row gives {column} while data were being downloaded")
    return [
        link(name, way, edges_us, seconds[column].to_numpy() * 1000.0, source.where, **other)
        for way, column in _BITRATES.items()
    ]
