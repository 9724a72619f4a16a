"""FedScale's device traces: activity of clients, compute speeds and link rates.

Source: Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML 2022; the
same two files are read by REFL, Oort and FLOAT.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Literal

import numpy as np

from fedsim.errors import UserError
from fedsim.files.cells import POSITIVE, TIME_S, Bounds
from fedsim.files.sources import Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import (
    Records,
    devices_table,
    microseconds,
    numbers_of,
    observed_tables,
    per_device,
    records_by_field,
)


class FedScale(Importer):
    """Behavior and capacity files, as JSON or pickle; give either or both.

    FedScale tests ``t % finish_time`` against intervals that include both ends; here intervals are half open, so a
    client leaves at ``inactive`` and not one instant later. Touching intervals stay separate, as in the source. If both
    files are given, clients in only one of them are dropped.
    """

    name = "fedscale"
    description = "FedScale client behavior and device capacity (pickle or JSON)"
    signature = r"active.*finish_time|finish_time.*active|computation.*communication"

    class Params(ImporterParams):
        """Options of the FedScale importer."""

        bits_per_kbit: Literal[1000, 1024] = 1000
        """Bits in a kilobit of ``communication``. 1000 is correct; 1024 gives the transfer times of FedScale's own
        code, which divides bytes by 1024."""

    @classmethod
    def read(cls, sources: Sources, params: Params) -> Imported:
        """One device per client."""
        files = records_by_field(
            sources,
            {"active": "behavior", "computation": "capacity"},
            "clients",
            "give FedScale's client_behave_trace or client_device_capacity",
        )
        behavior, capacity = files.get("active"), files.get("computation")
        counts: dict[str, int] = {}
        if behavior is not None and capacity is not None:
            ids = [key for key in behavior.by_id if key in capacity.by_id]
            counts["behavior_without_capacity"] = len(behavior.by_id) - len(ids)
            counts["capacity_without_behavior"] = len(capacity.by_id) - len(ids)
            if not ids:
                raise UserError(
                    "no client is in both files",
                    where=f"{behavior.source.where} and {capacity.source.where}",
                    hint="import them separately and pair them with `fedsim traces join`",
                )
            behavior.ids = capacity.ids = ids
        tables: dict[str, Any] = {}
        if behavior is not None:
            tables |= _behavior_tables(behavior, counts)
        if capacity is not None:
            if behavior is None:
                tables["devices"] = devices_table(capacity.ids, kind="phone")
            tables |= _capacity_tables(capacity, params)
        caveat = "time 0 is each device's own trace start: hours of different devices differ"
        words = "active in FedScale's behavior trace"
        return Imported(tables, counts, [caveat], eligibility=words)


def _behavior_tables(file: Records, counts: dict[str, int]) -> dict[str, Any]:
    active, inactive = lists = file.field("active"), file.field("inactive")
    for row, pair in enumerate(zip(*lists, strict=True)):
        are_lists = all(isinstance(times, list | tuple) for times in pair)
        if not are_lists or len(pair[0]) != len(pair[1]):
            raise UserError(
                "'active' and 'inactive' are not two lists of equal length",
                where=file.where(row),
                hint="they must contain the starts and ends in seconds from the client's trace start",
            )
    lengths = np.fromiter(map(len, active), np.int64, len(active))
    device = np.repeat(np.arange(len(file.ids), dtype=np.int64), lengths)
    start_s, end_s = (
        numbers_of(
            list(chain.from_iterable(values)),
            f"'{name}'",
            lambda row: file.where(int(device[row])),
            TIME_S,
            "s",
        )
        for name, values in (("active", active), ("inactive", inactive))
    )
    period_us = microseconds(file.numbers("finish_time", "s", Bounds(1e-6, TIME_S.high)))
    tables, intervals = observed_tables(
        file.ids,
        device,
        microseconds(start_s),
        microseconds(end_s),
        (0, period_us),
        counts,
        kind="phone",
        period_us=period_us,
        model=file.texts("model"),
    )
    if all("duration" in file.by_id[key] for key in file.ids):
        total = np.zeros(len(file.ids), np.int64)
        np.add.at(total, intervals.device, intervals.end - intervals.start)
        claimed = microseconds(file.numbers("duration", "s", TIME_S))
        counts["duration_differs"] = int(np.count_nonzero(total != claimed))
    return tables


def _capacity_tables(file: Records, params: FedScale.Params) -> dict[str, Any]:
    sample_s = file.numbers("computation", "ms per sample", POSITIVE) / 1000.0
    rate_bps = file.numbers("communication", "kbit/s", POSITIVE) * float(params.bits_per_kbit)
    return {
        "compute": per_device(
            file.ids,
            "compute",
            task="*",
            phase="inference",
            step_fixed_s=np.zeros(len(file.ids)),
            sample_s=sample_s,
        ),
        "network": per_device(file.ids, "network", direction="both", bandwidth_bps=rate_bps),
    }
