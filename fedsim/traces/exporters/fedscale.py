"""Export to FedScale's behavior and capacity files, as read by FedScale, REFL and Oort."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedsim.errors import UserError
from fedsim.parts.component import Parameters
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import Exporter, Files, Rows, available_rows, offsets, whole_seconds
from fedsim.traces.intervals import device_periods
from fedsim.units import US_PER_S

# FedScale's code assumes that training on a sample takes this many times as long as inference.
TRAIN_FACTOR = 3.0


class FedScaleExporter(Exporter):
    """One dict of clients: JSON if the file name ends in ``.json``, a pickle of plain types if it ends in ``.pkl``.

    A capacity is an inference time per sample (a third of the training time if only that is known) and one rate for
    both directions (down if they differ): the fixed part of a step and the uplink are dropped and counted.

    Clients keep their names if all names are whole numbers; otherwise they are numbered from 1. FedScale has neither
    invalid devices nor devices that are never available: these are left out and counted.
    """

    name = "fedscale"
    description = "FedScale client behavior or device capacity (.json or .pkl)"

    class Params(Parameters):
        """Options of the FedScale exporter."""

        content: Literal["behaviour", "capacity"] = "behaviour"
        """Which of FedScale's two files to write."""
        align: Literal["clock", "device"] = "clock"
        """Time 0 of a client: the bundle's time 0, so that FedScale's replay agrees with fedsim's (a session across the
        end of the period is split in two), or the start of the device's window."""
        bits_per_kbit: Literal[1000, 1024] = 1000
        """Bits in a kilobit of ``communication``."""

    @classmethod
    def files(
        cls, bundle: TraceBundle, path: Path, params: Params, counts: dict[str, int]
    ) -> Files:
        """One file, of clients or of devices."""
        if path.suffix not in (".json", ".pkl"):
            message = f"the ending '{path.suffix}' does not determine the format"
            raise UserError(message, where=str(path), hint="end the name in .json or .pkl")
        records_of = _behaviour if params.content == "behaviour" else _capacity
        records = records_of(bundle, params, counts)
        counts["clients"] = len(records)
        yield (
            path,
            json.dumps(records) if path.suffix == ".json" else pickle.dumps(records, protocol=4),
        )


def _client_ids(bundle: TraceBundle) -> list[int]:
    names = bundle.device_ids.to_pylist()
    if all(name.isascii() and name.isdigit() and str(int(name)) == name for name in names):
        return [int(name) for name in names]
    return list(range(1, len(names) + 1))


def _behaviour(
    bundle: TraceBundle, params: FedScaleExporter.Params, counts: dict[str, int]
) -> dict[int, dict[str, Any]]:
    rows = available_rows(bundle)
    window_start, window_end = bundle.windows
    period = device_periods(bundle, window_end - window_start)
    if params.align == "device":
        shift = window_start[rows.device]
        rows = Rows(rows.device, rows.start - shift, rows.end - shift)
    else:
        rows = _rotated(rows, period, counts)
    rows = whole_seconds(rows, counts)
    period_s = np.maximum((period + US_PER_S // 2) // US_PER_S, 1)

    first = offsets(rows, bundle.device_count)
    start_s, end_s = rows.start.tolist(), rows.end.tolist()
    valid = bundle.valid
    ids, models = _client_ids(bundle), bundle.texts("devices", "model")
    records: dict[int, dict[str, Any]] = {}
    for row, client in enumerate(ids):
        low, high = int(first[row]), int(first[row + 1])
        if low == high:
            continue
        active, inactive = start_s[low:high], end_s[low:high]
        records[client] = {
            "duration": sum(inactive) - sum(active),
            "inactive": inactive,
            "finish_time": int(period_s[row]),
            "active": active,
            "model": models[row] or "unknown",
        }
    counts["invalid_devices"] = int(np.count_nonzero(~valid))
    counts["never_available"] = int(np.count_nonzero(valid & (np.diff(first) == 0)))
    return records


def _rotated(rows: Rows, period: Any, counts: dict[str, int]) -> Rows:
    """Intervals modulo their device's period; those across its end are split in two."""
    lap = period[rows.device]
    start = rows.start % lap
    end = start + rows.end - rows.start
    over = end > lap
    counts["split_at_seam"] = int(np.count_nonzero(over))
    device = np.append(rows.device, rows.device[over])
    start = np.append(start, np.zeros(np.count_nonzero(over), np.int64))
    end = np.append(np.minimum(end, lap), (end - lap)[over])
    order = np.lexsort((start, device))
    return Rows(device[order], start[order], end[order])


def _capacity(
    bundle: TraceBundle, params: FedScaleExporter.Params, counts: dict[str, int]
) -> dict[int, dict[str, float]]:
    sample_s = _by_device(bundle, "compute", "sample_s", phase="inference")
    if not sample_s:
        training_s = _by_device(bundle, "compute", "sample_s", phase="training")
        sample_s = {row: time_s / TRAIN_FACTOR for row, time_s in training_s.items()}
    if "step_fixed_s" in bundle.table("compute").column_names:
        fixed_s = bundle.numpy("compute", "step_fixed_s")
        counts["fixed_parts_lost"] = int(np.count_nonzero(fixed_s > 0))
    rate_bps = _by_device(bundle, "network", "bandwidth_bps", direction="both")
    if not rate_bps:
        # FedScale has one rate for both directions; most other traces measure the downlink.
        rate_bps = _by_device(bundle, "network", "bandwidth_bps", direction="down")
        counts["up_rates_lost"] = len(
            _by_device(bundle, "network", "bandwidth_bps", direction="up")
        )
    records = {
        client: {
            "computation": sample_s[row] * 1000.0,
            "communication": rate_bps[row] / params.bits_per_kbit,
        }
        for row, client in enumerate(_client_ids(bundle))
        if row in sample_s and row in rate_bps
    }
    if not records:
        raise bundle.error(
            "no device has both an inference time per sample and a bandwidth",
            "pair the bundle with compute and network columns: `fedsim traces join`",
        )
    return records


def _by_device(bundle: TraceBundle, table: str, value: str, **condition: str) -> dict[int, float]:
    """Known values of a column by device row, from the table's rows that meet the condition ``column=text``."""
    if value not in bundle.table(table).column_names:
        return {}
    ((column, text),) = condition.items()
    values = bundle.numpy(table, value)
    keep = (bundle.texts(table, column) == text) & ~np.isnan(values)
    rows = bundle.device_rows(table)[keep].tolist()
    return dict(zip(rows, values[keep].tolist(), strict=True))
