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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsim.files.cells import AMOUNT, NAT, RATES, TIME_S, Bounds
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import SourceFile
from fedsim.traces.importers import Imported, ImporterParams
from fedsim.traces.importers._assemble import LinkImporter, Notes, link, microseconds
from fedsim.traces.tables import run_starts
from fedsim.units import DAY_S, US_PER_S

PACKET_BITS = 12_000
_BPS_PER_PACKET = PACKET_BITS / 0.001
_TIMES = Bounds(0, 100 * 366 * 1000 * DAY_S, words="from 0 to a hundred years")
_BITRATES = {"down": "DL_bitrate", "up": "UL_bitrate"}
REQUIRED = ("Timestamp", "NetworkMode", "State", *_BITRATES.values())
_PINGS = {"PINGAVG": ("rtt_s", 1000.0), "PINGLOSS": ("loss", 100.0)}
_PLAYERS = ("Amazon_Prime", "Netflix")
_RADIO: Mapping[str, str] = {
    **dict.fromkeys(("umts", "hspa", "hspa+", "hsdpa", "hsupa"), "3g"),
    **dict.fromkeys(("edge", "gprs", "gsm"), "2g"),
    "lte": "lte",
    "5g": "5g",
}


def _lines(source: SourceFile, names: Sequence[str], layout: str, *widths: int) -> Frame:
    """The first columns of lines without a header, which have one of these numbers of fields."""
    file = TableFile(source, header=False)
    if widths and len(file.names) not in widths:
        wanted = " or ".join(map(str, widths))
        raise source.error(f"has {len(file.names)} fields, not {wanted}", layout, line=1)
    return Frame([file], {name: str(n) for n, name in enumerate(names, 1)}).load(names)


def _require_order(frame: Frame, times: NDArray[Any], name: str) -> None:
    message, hint = (
        "the time is {}, before the one above it",
        "times must not decrease; split the file there",
    )
    frame.refuse(np.append(False, np.diff(times) < 0), message, hint, name)


class Pensieve(LinkImporter):
    """One series per file, from its first time; the rate in the first line belongs to no interval and is dropped.

    Of several lines with the same time, the first one counts. The series repeats at its end.
    """

    name = "pensieve"
    description = "Pensieve cooked throughput traces (time, Mbit/s), one file per link"
    signature = r"^[^\n]*\n(\d+(\.\d*)?([eE]-?\d+)?[\t ]+\d+\.\d*([eE]-?\d+)?[ ]*\r?\n){2}"
    kinds = "first_rates zero_length"

    class Params(ImporterParams):
        """Options of the Pensieve importer."""

        direction: Literal["down", "up", "both"] = "down"
        """Direction that was measured."""
        app_limited: bool = False
        """The rates are those of an application such as a video player, not the link's capacity (Puffer); noted in the
        manifest, because such a link appears slower than it is."""

    @classmethod
    def links(cls, name: str, source: SourceFile, params: Any, notes: Notes) -> pd.DataFrame:
        layout = "a cooked trace has lines of: time in seconds, a tab, Mbit/s"
        frame = _lines(source, ("time", "rate"), layout, 2)
        seconds = frame.number("time", 1.0, TIME_S, "s")
        frame.refuse(np.isnan(seconds), "has no time")
        time_us = microseconds(seconds)
        rate_bps = frame.number("rate", 1e6, unit="Mbit/s")
        _require_order(frame, time_us, "time")
        length = np.diff(time_us)
        keep = length > 0
        notes.counts["first_rates"] += 1
        notes.counts["zero_length"] += int(np.count_nonzero(~keep))
        rates_bps = rate_bps[1:][keep]
        if missing := int(np.count_nonzero(np.isnan(rates_bps))):
            notes.counts["missing_rates"] = notes.counts.get("missing_rates", 0) + missing
        if params.app_limited and not notes.caveats:
            notes.caveats.append("rates of an application, not of the link")
        return link(name, params.direction, length[keep], rates_bps)


class NyuMets(LinkImporter):
    """One downlink per file, one second per line, each with its own unit. A missing cell repeats the last rate."""

    name = "nyu_mets"
    description = "NYU-METS LTE throughput (value,unit per second; or multivariate)"
    signature = r"\n[\d.]*, ?[KMG]?bits/sec"
    kind = "phone"
    kinds = "seconds missing_rates"

    @classmethod
    def links(cls, name: str, source: SourceFile, params: Any, notes: Notes) -> pd.DataFrame:
        layout = "a line is value,unit or the multivariate set's eight columns"
        for number, text in enumerate(source.text().rstrip().splitlines(), 1):
            if not text.strip(" \t,"):
                hint = "each line is a second: write one without a rate as ,Mbits/sec"
                raise source.error("is empty", hint, line=number)
        frame = _lines(source, ("the rate", "the unit"), layout, 2, 8)
        bits: Any = 1e6
        if len(frame.files[0].names) == 2:
            code, words = frame.text("the unit")
            bits = np.array([*(RATES.get(word, np.nan) for word in words), np.nan])[code]
            hint = "a line is a number and one of bits/sec, Kbits/sec, Mbits/sec, Gbits/sec"
            frame.refuse(np.isnan(bits), "{} is not a unit", hint, "the unit")
        rate_bps = frame.number("the rate", 1.0, AMOUNT) * bits
        notes.counts["seconds"] += len(frame)
        notes.counts["missing_rates"] += int(np.count_nonzero(np.isnan(rate_bps)))
        length_us = np.full(len(frame), US_PER_S)
        return link(name, "down", length_us, rate_bps, radio="lte")


class Mahimahi(LinkImporter):
    """One link per pair of ``NAME.down`` and ``NAME.up``, or per single file.

    n opportunities at millisecond t become the rate n x 12 Mbit/s in [t, t + 1) ms; adjacent milliseconds with the same
    rate are one row. The series is thus one millisecond longer than Mahimahi's loop, which restarts at its last
    timestamp.
    """

    name = "mahimahi"
    description = "Mahimahi packet-delivery traces (.down, .up)"
    signature = r"^[^\n]*\.(down|up)\n\s*\d+\s"
    kinds = "opportunities"

    class Params(ImporterParams):
        """Options of the Mahimahi importer."""

        direction: Literal["down", "up"] | None = None
        """Direction of the link; by default that of the file's ending (``.down`` or ``.up``)."""

    @classmethod
    def links(cls, name: str, source: SourceFile, params: Any, notes: Notes) -> pd.DataFrame:
        """The series of a file: runs of milliseconds with the same number of packets."""
        ending = next((ending for ending in (".down", ".up") if name.endswith(ending)), "")
        direction = params.direction or ending.removeprefix(".")
        if not direction:
            hint = "end the name in .down or .up, or set direction=down"
            raise source.error("its name does not give the direction", hint)
        frame = _lines(source, ["the time"], "a line is the millisecond of one packet", 1)
        time_ms = frame.number("the time", 1.0, _TIMES, "ms")
        whole = "it must be a whole number of ms"
        frame.refuse(time_ms % 1 != 0, "the time is {}", whole, "the time")
        _require_order(frame, time_ms, "the time")
        notes.counts["opportunities"] += len(time_ms)
        busy, packets = np.unique(time_ms.astype(np.int64), return_counts=True)
        # Each busy millisecond and the idle time after it, which is empty if the next millisecond is busy too.
        edges = np.append(0, np.column_stack([busy, busy + 1]).ravel())
        number = np.append(0, np.column_stack([packets, np.zeros_like(packets)]).ravel())[:-1]
        keep = np.diff(edges) > 0
        start, number = edges[:-1][keep], number[keep]
        first = run_starts(number)
        length_us = np.diff(np.append(start[first], busy[-1:] + 1)) * 1000
        rates = number[first] * _BPS_PER_PACKET
        return link(name.removesuffix(ending), direction, length_us, rates)


class Ucc5g(LinkImporter):
    """One link per file, down and up, with radio, round-trip time and loss if they were measured.

    Rows of the same second are averaged. Missing rates, and rates measured while nothing was downloaded (a state
    without a D), do not show the link's capacity; they are replaced by the last known rate. A row applies until the
    next one.
    """

    name = "ucc5g"
    description = "UCC 5G production traces (CSV, folder or zip)"
    signature = r"NetworkMode.*DL_bitrate"
    kind = "phone"
    kinds = "rows same_second out_of_order seconds_without_row missing_rates idle_rows"

    class Params(ImporterParams):
        """Options of the UCC 5G importer."""

        app_limited: bool = False
        """Also import the traces of video players (Amazon_Prime, Netflix), whose rates are those that the player
        requested, not the link's capacity."""

    @classmethod
    def read(cls, sources: Iterable[SourceFile], params: Any) -> Imported:
        """Two series per file."""
        files = list(sources)
        chosen = [
            file
            for file in files
            if params.app_limited or not any(name in file.where for name in _PLAYERS)
        ]
        if not chosen:
            raise files[0].error(
                "is a trace of a video player, as all others are, whose rates are not those of the link",
                "import the Download traces, or set app_limited=true",
            )
        imported = super().read(chosen, params)
        counts = {"files": len(chosen), "app_limited_files": len(files) - len(chosen)}
        caveats = ["a row is an average over about a second and misses shorter outages"]
        if params.app_limited:
            caveats.append("some rates are those of a video player, not of the link")
        return Imported(imported.tables, {**counts, **imported.counts}, caveats)

    @classmethod
    def links(cls, name: str, source: SourceFile, params: Any, notes: Notes) -> pd.DataFrame:
        """The two directions of one file."""
        file = TableFile(source)
        numbers = [*_BITRATES.values()]
        numbers += [column for column in _PINGS if column in file.names]
        used = {column: column for column in (*REQUIRED, *numbers)}
        frame = Frame([file], used).load(used, ["NetworkMode", "State"])
        time_us = frame.instants("Timestamp", form="%Y.%m.%d_%H.%M.%S").us
        frame.refuse(time_us == NAT, "has no Timestamp")
        state, states = frame.text("State")
        mode, modes = frame.text("NetworkMode", lower=True)
        radios = np.array([*(_RADIO.get(word) for word in modes), None], dtype=object)
        idle = ~np.array([*("D" in word for word in states), False])[state]
        bounds = dict.fromkeys(numbers, AMOUNT) | {"PINGLOSS": Bounds(0, 100)}
        rows = pd.DataFrame({each: frame.number(each, 1.0, bounds[each]) for each in numbers})
        rates = rows[numbers[:2]]
        notes.counts["rows"] += len(rows)
        notes.counts["out_of_order"] += int(np.count_nonzero(np.diff(time_us) < 0))
        notes.counts["idle_rows"] += int(np.count_nonzero(idle))
        notes.counts["missing_rates"] += int(rates.isna().to_numpy().sum())
        rows[numbers[:2]] = rates.mask(np.tile(idle[:, None], 2))
        by_second = rows.groupby(time_us - time_us.min())
        seconds = by_second.mean()
        start_us = seconds.index.to_numpy(np.int64)
        length_us = np.diff(np.append(start_us, start_us[-1] + US_PER_S))
        notes.counts["same_second"] += len(rows) - len(seconds)
        notes.counts["seconds_without_row"] += int(length_us.sum() // US_PER_S) - len(seconds)
        first = pd.Series(mode).groupby(time_us).first().to_numpy()
        other: dict[str, Any] = {"radio": radios[first]}
        for column in numbers[2:]:
            name_of, unit = _PINGS[column]
            other[name_of] = seconds[column].to_numpy() / unit
        ways = []
        for way, column in _BITRATES.items():
            if seconds[column].isna().all():
                raise source.error(f"no row gives {column} while data were being downloaded")
            ways.append(link(name, way, length_us, seconds[column].to_numpy() * 1000.0, **other))
        return pd.concat(ways)
