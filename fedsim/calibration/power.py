"""Power of the devices in each phase of a log's dispatches, from tables of power readings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

import numpy as np
import pandas as pd

from fedsim.calibration.clock import instants
from fedsim.calibration.log import NAMES, Log, numbered, spelled
from fedsim.errors import UserError
from fedsim.files import cells
from fedsim.files.frames import Frame, TableFile, readable
from fedsim.files.lines import as_table
from fedsim.files.sources import Sources

_MILLIWATTS = ("power_mw", "power_draw_mw", "milliwatts")
_NAMES = {
    "client": NAMES["client"],
    "time": ("time", "timestamp"),
    "power": ("power", "power_w", "watts", "power_draw", "power_draw_w", *_MILLIWATTS),
    "energy": ("energy_consumed", "energy_kwh"),
    "duration": ("duration", "duration_s"),
    "part": ("index", "uuid", "pci_bus_id"),
}
_J_PER_KWH = 3.6e6
_MOST_W = 2000.0
"""Median reading of a part of a device above which watts are doubted."""


@readable
def read_power(paths: Sequence[Path], log: Log) -> tuple[dict[str, float], list[str]]:
    """Watts above idle (``download_w``, ``compute_w``, ``upload_w``), watts while idle (``idle_w``), and flags.

    A reading counts in the phase that contains it; a phase without readings has no watts. Watts are means over the
    readings of each part of a device (a GPU), summed over its parts, and then means over the devices.

    Args:
        paths: tables of power (W), or of energy (kWh) and duration (s) until the time; a file without a column of
            clients is of the client whose name it has.
        log: the log.
    """
    frame = Frame([TableFile(as_table(source)[0]) for source in Sources(paths)])
    column = spelled(_NAMES, frame)
    if "time" not in column or not ("power" in column or {"energy", "duration"} <= column.keys()):
        hint = (
            "give time and power (W) or power_mw, or time, energy_consumed (kWh) and duration (s)"
        )
        frame.require_header()
        message = f"the table has no power readings, but {', '.join(frame.names)}"
        raise UserError(message, where=frame.where, hint=hint)
    frame.load(column.values(), [column[each] for each in ("client", "part") if each in column])
    seconds, clock = instants(frame, {"time": column["time"]})
    number_of = {name: number for number, name in enumerate(log.clients())}
    client = np.full(len(frame), -1)
    for index, file in enumerate(frame.files):
        client[slice(*frame.starts[index : index + 2])] = number_of.get(
            PurePath(file.source.name).stem, -1
        )
    if "client" in column:
        codes, words = frame.text(column["client"])
        client = np.where(
            codes < 0, client, np.array([*(number_of.get(each, -1) for each in words), -1])[codes]
        )
    duration_s = np.zeros(len(frame))
    if "power" in column:
        power_w = frame.number(column["power"], 1e-3 if column["power"] in _MILLIWATTS else 1.0)
    else:
        duration_s = frame.number(column["duration"], 1.0, cells.POSITIVE)
        power_w = frame.number(column["energy"], _J_PER_KWH) / duration_s
    to_s = seconds["time"] - log.origin_s
    part = frame.text(column["part"])[0] if "part" in column else 0
    rows = {"client": client, "part": part, "from_s": to_s - duration_s, "to_s": to_s, "w": power_w}
    readings = pd.DataFrame(rows).dropna().sort_values("from_s")
    dispatches = numbered(log.dispatches, log.clients())
    dispatches["next_s"] = dispatches.groupby("client")["start_s"].shift(-1)
    at = pd.merge_asof(readings, dispatches, left_on="from_s", right_on="start_s", by="client")
    whole = at["downloaded_s"].isna() & at["computed_s"].isna()
    gone_s = at["end_s"].fillna(at["ended_s"]).fillna(np.inf).mask(at["start_s"].isna(), -np.inf)
    phases = {
        "download_w": at["to_s"] <= at["downloaded_s"],
        "compute_w": (at["from_s"] >= at["downloaded_s"].mask(whole, -np.inf))
        & (at["to_s"] <= at["computed_s"].mask(whole, at["end_s"])),
        "upload_w": (at["from_s"] >= at["computed_s"]) & (at["to_s"] <= at["end_s"]),
        "idle_w": (at["from_s"] >= gone_s) & ~(at["to_s"] > at["next_s"]) & (at["client"] >= 0),
    }
    at["phase"] = np.select(list(phases.values()), list(phases), "")
    by_part = at[at["phase"] != ""].groupby(["client", "part", "phase"])["w"].mean()
    by_client = by_part.groupby(["client", "phase"]).sum().unstack().reindex(columns=list(phases))
    if by_client.drop(columns="idle_w").isna().all(axis=None):
        fix = "give each file the name of its client, or a column client, and the log's clock (without offset: UTC)"
        message = "no power reading lies in a dispatch of its client"
        raise UserError(message, where=frame.where, hint=fix)
    idle_w = by_client["idle_w"].fillna(by_client["idle_w"].mean()).fillna(0.0)
    watts = by_client.sub(idle_w, axis=0).assign(idle_w=by_client["idle_w"]).mean().dropna()
    flags = []
    if (middle := readings["w"].median()) > _MOST_W:
        flags.append(
            f"The median power reading is {middle:,.0f} W: if it is in mW, call the column power_mw."
        )
    if "idle_w" not in watts:
        flags.append("No power reading lies between dispatches: the watts include those of idling.")
    if (watts < 0).any() or (clock.is_local and not log.clock.is_local):
        flags.append(
            "Check the clock of the power readings: without an offset they are read as UTC."
        )
    return {str(name): max(float(watts[name]), 0.0) for name in watts.index}, flags
