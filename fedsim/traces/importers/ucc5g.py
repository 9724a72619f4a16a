"""UCC 5G: logs of phones in an Irish production network, about one row per second.

Source: Raca, Leahy, Sreenan, Quinlan, "Beyond Throughput, the Next Generation: a 5G Dataset with Channel and Context
Metrics", MMSys 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedsim.files.cells import NAT
from fedsim.files.frames import Frame, TableFile
from fedsim.files.sources import SourceFile, Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import link, link_tables, named_sources
from fedsim.units import US_PER_S

RATES = {"down": "DL_bitrate", "up": "UL_bitrate"}
REQUIRED = ("Timestamp", "NetworkMode", "State", *RATES.values())
_PLAYERS = ("Amazon_Prime", "Netflix")
_RADIO: Mapping[str, str] = {
    **dict.fromkeys(("umts", "hspa", "hspa+", "hsdpa", "hsupa"), "3g"),
    **dict.fromkeys(("edge", "gprs", "gsm"), "2g"),
    "lte": "lte",
    "5g": "5g",
}


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
    rows = pd.DataFrame({column: frame.number(column) for column in (*RATES.values(), *optional)})
    idle = ~np.array([*("D" in word for word in states), False])[state]
    counts["rows"] += len(rows)
    counts["out_of_order"] += int(np.count_nonzero(np.diff(time_us) < 0))
    counts["idle_rows"] += int(np.count_nonzero(idle))
    counts["missing_rates"] += int(rows[list(RATES.values())].isna().to_numpy().sum())
    rows.loc[idle, list(RATES.values())] = np.nan
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
    for column in RATES.values():
        if seconds[column].isna().all():
            raise source.error(f"no row gives {column} while data were being downloaded")
    return [
        link(name, way, edges_us, seconds[column].to_numpy() * 1000.0, source.where, **other)
        for way, column in RATES.items()
    ]
