"""FedScale's device traces: when clients were active, how fast they computed, how fast their links were.

Source: Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML 2022; the
same two files are read by REFL, Oort and FLOAT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import Eligibility, TraceBundle
from fedsim.traces.importers import Importer, ImporterParams
from fedsim.traces.importers._assemble import (
    STATIC_HORIZON_US,
    availability_table,
    bundle,
    check_times,
    devices_table,
    microseconds,
)
from fedsim.traces.importers._files import SourceFile, record_object, source_files
from fedsim.traces.importers._pickles import load_records
from fedsim.traces.ordering import normalise
from fedsim.traces.tables import constant_column, id_column, make_table

Records = dict[str, Mapping[str, Any]]
Floats = npt.NDArray[np.float64]


class FedScaleParams(ImporterParams):
    """Options of the FedScale importer."""

    bits_per_kbit: Literal[1000, 1024] = 1000
    """Bits in a kilobit of ``communication``. 1000 is what was measured; 1024 repeats the transfer times of FedScale's
    own code, which divides bytes by 1024."""


class FedScale(Importer):
    """Behaviour and capacity files, as JSON or pickle; give either or both.

    FedScale tests ``t % finish_time`` against intervals with both ends included; here intervals are half open, so a
    client leaves at ``inactive`` and not one instant later. Touching intervals stay apart, as in the source. Given both
    files, clients of only one of them are dropped.
    """

    name: ClassVar[str] = "fedscale"
    description: ClassVar[str] = "FedScale client behaviour and device capacity (pickle or JSON)"
    Params: ClassVar[type[Parameters]] = FedScaleParams

    @classmethod
    def read(cls, paths: Sequence[Path], params: FedScaleParams) -> TraceBundle:
        """See :meth:`Importer.read`."""
        behaviour, capacity = _load(paths)
        counts: dict[str, int] = {}
        if behaviour is not None and capacity is not None:
            ids = [key for key in behaviour[1] if key in capacity[1]]
            counts["behaviour_without_capacity"] = len(behaviour[1]) - len(ids)
            counts["capacity_without_behaviour"] = len(capacity[1]) - len(ids)
            if not ids:
                raise UserError(
                    "no client is in both files",
                    where=f"{behaviour[0].where} and {capacity[0].where}",
                    hint="import them apart and pair them with `fedsim traces join`",
                )
        else:
            ids = list((behaviour or capacity or _nothing(paths))[1])

        tables: dict[str, Any] = {}
        if behaviour is not None:
            tables |= _behaviour_tables(behaviour[0], ids, behaviour[1], counts)
        else:
            tables["devices"] = devices_table(ids, window_end_us=STATIC_HORIZON_US, kind="phone")
        if capacity is not None:
            tables |= _capacity_tables(capacity[0], ids, capacity[1], params)
        horizon_us = int(tables["devices"].column("window_end_us").to_numpy().max())
        return bundle(
            cls,
            params,
            paths,
            tables,
            counts,
            horizon_us=horizon_us,
            clock="device-relative",
            on_end="wrap",
            eligibility=Eligibility(words="active in FedScale's behaviour trace"),
            caveats=["time 0 is each device's own trace start: hours of different devices differ"],
        )


def _nothing(paths: Sequence[Path]) -> Any:
    raise UserError("no FedScale records", where=", ".join(map(str, paths)))


def _load(
    paths: Sequence[Path],
) -> tuple[tuple[SourceFile, Records] | None, tuple[SourceFile, Records] | None]:
    behaviour: tuple[SourceFile, Records] | None = None
    capacity: tuple[SourceFile, Records] | None = None
    for source in source_files(paths):
        content = load_records(source)
        records = record_object(content, source, "clients")
        first = next(iter(records.values()))
        if "active" in first:
            if behaviour is not None:
                raise UserError("a second behaviour file", where=source.where, hint="give one")
            behaviour = source, records
        elif "computation" in first:
            if capacity is not None:
                raise UserError("a second capacity file", where=source.where, hint="give one")
            capacity = source, records
        else:
            raise UserError(
                f"has neither 'active' nor 'computation' in its first record, but: {', '.join(map(str, first))}",
                where=source.where,
                hint="give FedScale's client_behave_trace or client_device_capacity",
            )
    return behaviour, capacity


def _field(source: SourceFile, ids: Sequence[str], records: Records, field: str) -> list[Any]:
    try:
        return [records[key][field] for key in ids]
    except KeyError:
        key = next(key for key in ids if field not in records[key])
        raise UserError(
            f"has no '{field}'",
            where=f"{source.where}, client {key}",
            hint=f"it has: {', '.join(map(str, records[key]))}",
        ) from None


def _numbers(source: SourceFile, ids: Sequence[str], values: list[Any], field: str) -> Floats:
    try:
        return np.fromiter(values, np.float64, len(values))
    except (TypeError, ValueError):
        for key, value in zip(ids, values, strict=True):
            if not isinstance(value, int | float):
                raise UserError(
                    f"'{field}' is {value!r}, not a number", where=f"{source.where}, client {key}"
                ) from None
        raise


def _flat(source: SourceFile, ids: Sequence[str], lists: list[Any], field: str) -> Floats:
    try:
        return np.fromiter(chain.from_iterable(lists), np.float64)
    except (TypeError, ValueError):
        for key, values in zip(ids, lists, strict=True):
            if not isinstance(values, list | tuple) or not all(
                isinstance(value, int | float) for value in values
            ):
                raise UserError(
                    f"'{field}' is not a list of numbers",
                    where=f"{source.where}, client {key}",
                    hint="it must hold seconds from the client's trace start",
                ) from None
        raise


def _behaviour_tables(
    source: SourceFile, ids: Sequence[str], records: Records, counts: dict[str, int]
) -> dict[str, Any]:
    active = _field(source, ids, records, "active")
    inactive = _field(source, ids, records, "inactive")
    start_s = _flat(source, ids, active, "active")
    end_s = _flat(source, ids, inactive, "inactive")
    lengths = np.fromiter(map(len, active), np.int64, len(ids))
    ends = np.fromiter(map(len, inactive), np.int64, len(ids))
    unequal = np.flatnonzero(lengths != ends)
    if len(unequal):
        row = int(unequal[0])
        raise UserError(
            f"has {lengths[row]} 'active' but {ends[row]} 'inactive' times",
            where=f"{source.where}, client {ids[row]}",
            hint="every start needs its end",
        )
    device = np.repeat(np.arange(len(ids), dtype=np.int64), lengths)
    finish_s = _numbers(source, ids, _field(source, ids, records, "finish_time"), "finish_time")
    for seconds, field in ((start_s, "active"), (end_s, "inactive")):
        check_times(seconds, lambda row: f"client {ids[int(device[row])]}", source, f"'{field}'")
    check_times(finish_s, lambda row: f"client {ids[row]}", source, "'finish_time'")
    bad = np.flatnonzero(finish_s < 1e-6)
    if len(bad):
        raise UserError(
            f"'finish_time' is {finish_s[bad[0]]:g}; the period must be longer than 0",
            where=f"{source.where}, client {ids[bad[0]]}",
        )

    period_us = microseconds(finish_s)
    intervals = normalise(
        device,
        microseconds(start_s),
        microseconds(end_s),
        window_start=np.zeros(len(ids), np.int64),
        window_end=period_us,
    )
    counts |= intervals.counts
    if all("duration" in records[key] for key in ids):
        claimed = _numbers(source, ids, _field(source, ids, records, "duration"), "duration")
        total = np.zeros(len(ids), np.int64)
        np.add.at(total, intervals.device, intervals.end - intervals.start)
        counts["duration_differs"] = int(np.count_nonzero(total != microseconds(claimed)))
    model = [None if (m := records[key].get("model")) is None else str(m) for key in ids]
    devices = devices_table(
        ids, window_end_us=period_us, kind="phone", period_us=period_us, model=model
    )
    availability = availability_table(
        intervals, ids, window_start_us=np.zeros(len(ids), np.int64), window_end_us=period_us
    )
    return {"devices": devices, "availability": availability}


def _capacity_tables(
    source: SourceFile, ids: Sequence[str], records: Records, params: FedScaleParams
) -> dict[str, Any]:
    columns = {}
    for field, unit in (("computation", "ms a sample"), ("communication", "kbit/s")):
        values = _numbers(source, ids, _field(source, ids, records, field), field)
        bad = np.flatnonzero(~((values > 0) & np.isfinite(values)))
        if len(bad):
            raise UserError(
                f"'{field}' is {values[bad[0]]:g}; it must be a positive number ({unit})",
                where=f"{source.where}, client {ids[bad[0]]}",
            )
        columns[field] = values
    count = len(ids)
    device = id_column(np.arange(count), ids)
    compute = make_table(
        "compute",
        {
            "device_id": device,
            "task": constant_column("*", count),
            "phase": constant_column("inference", count),
            "step_fixed_s": np.zeros(count),
            "sample_s": columns["computation"] / 1000.0,
        },
    )
    network = make_table(
        "network",
        {
            "device_id": device,
            "direction": constant_column("both", count),
            "bandwidth_bps": columns["communication"] * float(params.bits_per_kbit),
        },
    )
    return {"compute": compute, "network": network}
