"""Power of the devices in each phase of a log's dispatches, from tables of power readings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

import numpy as np
import pandas as pd

from fedsim.calibration.clock import FAR_DATES, instants
from fedsim.calibration.log import NAMES, Log, numbered, spelled
from fedsim.errors import UserError
from fedsim.files import cells
from fedsim.files.frames import Frame, TableFile
from fedsim.files.lines import as_table
from fedsim.files.sources import Sources
from fedsim.vocabulary.formatting import (
    format_counted,
    format_interval,
    format_names,
    format_number,
)

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
_PHASES = ("download_w", "compute_w", "upload_w", "idle_w")
_ROUNDING_S = 1e-6
_MOST_W, _MOST_RATIO = 2000.0, 500.0
"""Power of a part of a device, and ratio of two readings, above which watts are doubted."""
_HIGHEST_W = 1e9


def read_power(paths: Sequence[Path], log: Log) -> tuple[dict[str, float], list[str]]:
    """Watts above idle (``download_w``, ``compute_w``, ``upload_w``), watts while idle (``idle_w``), and flags.

    A reading stands for the ``duration`` until its time, or else for the time since the previous one of its part, at
    most the median of these, as most meters average. It counts in the phase that contains this time; in a phase without
    any, the readings at an instant of it do. A phase without readings has no watts. Watts are means over the
    readings of each part of a device (a GPU), summed over its parts, and then means over the devices. Readings of a
    part at the same time count as one, their mean.

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
    frame.require_in_all([column["time"]])
    frame.require_values([each for every in _NAMES.values() for each in every])
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
    duration_s = np.full(len(frame), np.nan)
    if "duration" in column:
        duration_s = frame.number(column["duration"], 1.0, cells.POSITIVE, form="duration")
    if "power" in column:
        power_w = frame.number(column["power"], 1e-3 if column["power"] in _MILLIWATTS else 1.0)
    else:
        with np.errstate(over="ignore"):
            power_w = frame.number(column["energy"], _J_PER_KWH) / duration_s
    name = column.get("power", column.get("energy", ""))
    fix = f"it must be at most {_HIGHEST_W:g} W, or empty if unknown"
    frame.refuse(power_w > _HIGHEST_W, f"{name} is {{}}", fix, name)
    to_s = seconds["time"] - log.origin_s
    part = frame.text(column["part"])[0] if "part" in column else 0
    rows = {"client": client, "part": part, "lasts_s": duration_s, "to_s": to_s, "w": power_w}
    every = pd.DataFrame(rows).dropna(subset=["to_s", "w"])
    if every.empty:
        hint = f"measure again; {FAR_DATES} are unknown"
        raise frame.error("has no reading with a time and a power", hint)
    if not (
        every.duplicated(["client", "part"]).any() or every.duplicated(["client", "to_s"]).any()
    ):
        every["part"] = 0  # They count the rows, as the index of pandas does.
    by_time = every.groupby(["client", "part", "to_s"])
    differing = int((by_time["w"].nunique() > 1).sum())
    readings = by_time.mean().reset_index().sort_values("to_s", kind="stable")
    since_s = readings.groupby(["client", "part"])["to_s"].diff()
    usual_s = since_s.groupby([readings["client"], readings["part"]]).transform("median")
    is_measured = readings["lasts_s"].notna()
    lasts_s = readings["lasts_s"].fillna(since_s.fillna(np.inf).clip(upper=usual_s)).fillna(0.0)
    dispatches = numbered(log.dispatches, log.clients())
    dispatches["next_s"] = dispatches.groupby("client")["start_s"].shift(-1)
    by_client = _by_phase(readings.assign(lasts_s=lasts_s), dispatches)
    at_instants = _by_phase(readings[~is_measured].assign(lasts_s=0.0), dispatches)
    blurred = [
        name for name in _PHASES if by_client[name].isna().all() & at_instants[name].notna().any()
    ]
    by_client = by_client.combine_first(at_instants)[list(_PHASES)]
    if by_client.drop(columns="idle_w").isna().all(axis=None):
        fix = "give each file the name of its client, or a column client, and the log's clock (without offset: UTC)"
        message = "no power reading lies in a dispatch of its client"
        raise UserError(message, where=frame.where, hint=fix)
    idle_w = by_client["idle_w"].fillna(by_client["idle_w"].mean()).fillna(0.0)
    watts = by_client.sub(idle_w, axis=0).assign(idle_w=by_client["idle_w"]).mean().dropna()
    flags = []
    if others := int((every["client"] < 0).sum()):
        count = format_counted(others, "power reading")
        flags.append(f"{count} of clients that the log does not have: they do not count.")
    if differing:
        flags.append(
            f"{format_counted(differing, 'time')} with different power readings of one client: their mean counts. For "
            "several parts, such as GPUs, give the column index."
        )
    if blurred:
        flags.append(
            f"Phases shorter than the time between power readings: {format_names(blurred)} may hold those beside them."
        )
    low, high = readings.loc[readings["w"] > 0, "w"].quantile([0.05, 0.95])
    if high > min(_MOST_W, _MOST_RATIO * low):
        between = format_interval(low, high, format_number)
        flags.append(
            f"90% of the power readings are {between} W: if they are in mW, call the column power_mw; if only some are,"
            " convert these."
        )
    if "idle_w" not in watts:
        flags.append("No power reading lies between dispatches: the watts include those of idling.")
    if (watts < 0).any() or (clock.is_local and not log.clock.is_local):
        flags.append(
            "Check the clock of the power readings (without an offset they are read as UTC), and that each stands for "
            "the time before it: a meter that reports changes needs durations."
        )
    return {str(name): max(float(watts[name]), 0.0) for name in watts.index}, flags


def _by_phase(readings: pd.DataFrame, dispatches: pd.DataFrame) -> pd.DataFrame:
    """Watts of each client in each phase, NaN without a reading that lies in it, summed over the client's parts."""
    readings = readings.assign(from_s=readings["to_s"] - readings["lasts_s"] + _ROUNDING_S)
    at = pd.merge_asof(
        readings.sort_values("from_s"),
        dispatches,
        left_on="from_s",
        right_on="start_s",
        by="client",
    )
    first_s = at["client"].map(dispatches.groupby("client")["start_s"].min())
    next_s = at["next_s"].where(at["start_s"].notna(), first_s)
    whole = at["downloaded_s"].isna() & at["computed_s"].isna()
    gone_s = at["end_s"].fillna(at["ended_s"]).fillna(np.inf).mask(at["start_s"].isna(), -np.inf)
    is_in = (
        at["to_s"] <= at["downloaded_s"],
        (at["from_s"] >= at["downloaded_s"].mask(whole, -np.inf))
        & (at["to_s"] <= at["computed_s"].mask(whole, at["end_s"])),
        (at["from_s"] >= at["computed_s"]) & (at["to_s"] <= at["end_s"]),
        (at["from_s"] >= gone_s) & ~(at["to_s"] > next_s) & (at["client"] >= 0),
    )
    at["phase"] = np.select(is_in, _PHASES, "")
    by_part = at[at["phase"] != ""].groupby(["client", "part", "phase"])["w"].mean()
    table = by_part.groupby(["client", "phase"]).sum().unstack()
    return table.reindex(columns=list(_PHASES))
