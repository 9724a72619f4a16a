"""FedScale's device traces: activity of clients, compute speeds and link rates.

Source: Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML 2022; the
same two files are read by REFL, Oort and FLOAT.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedsim.errors import UserError
from fedsim.files.cells import AMOUNT, TIME_S, Bounds
from fedsim.files.sources import Sources
from fedsim.traces.importers import Imported, Importer, ImporterParams
from fedsim.traces.importers._assemble import (
    Records,
    microseconds,
    observed_tables,
    records_by_field,
)

_SPEED = Bounds(0, AMOUNT.high, open_low=True)


class FedScale(Importer):
    """Behavior and capacity files, as JSON or pickle; give either or both.

    Each client has its own window, with which it repeats: its ``finish_time``. FedScale tests ``t % finish_time``
    against intervals that include both ends; here intervals are half open, so a client leaves at ``inactive`` and not
    one instant later. Touching intervals stay separate, as in the source. If both files are given, clients in only one
    of them are dropped.
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
            tables = _behavior_tables(behavior, counts)
        if capacity is not None:
            devices = capacity.ids
            sample_s = capacity.numbers("computation", "ms per sample", _SPEED) / 1000.0
            rate_bps = capacity.numbers("communication", "kbit/s", _SPEED)
            rate_bps *= float(params.bits_per_kbit)
            work = {"task": "*", "phase": "inference", "step_fixed_s": 0.0, "sample_s": sample_s}
            tables.setdefault("devices", {"device_id": devices, "kind": "phone"})
            tables["compute"] = {"device_id": devices, **work}
            tables["network"] = {
                "device_id": devices,
                "direction": "both",
                "bandwidth_bps": rate_bps,
            }
        caveat = "time 0 is each device's own trace start: hours of different devices differ"
        words = "active in FedScale's behavior trace"
        return Imported(tables, counts, [caveat], eligibility=words)


def _behavior_tables(file: Records, counts: dict[str, int]) -> dict[str, Any]:
    device, start_us = file.instants_us(file.field("active"), "'active'")
    again, end_us = file.instants_us(file.field("inactive"), "'inactive'")
    if not np.array_equal(device, again):
        raise file.source.error("'active' and 'inactive' are not two lists of equal length")
    period_us = microseconds(file.numbers("finish_time", "s", Bounds(1e-6, TIME_S.high)))
    more = {"kind": "phone", "period_us": period_us, "model": file.texts("model")}
    window = 0, period_us
    tables, spans = observed_tables(file.ids, device, start_us, end_us, window, counts, **more)
    if all("duration" in file.by_id[key] for key in file.ids):
        total = np.bincount(spans.device, spans.end - spans.start, len(file.ids))
        claimed = microseconds(file.numbers("duration", "s", TIME_S))
        counts["duration_differs"] = int(np.count_nonzero(total != claimed))
    return tables
