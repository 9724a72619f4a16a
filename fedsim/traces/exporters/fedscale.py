"""Export to FedScale's behavior and capacity files, as read by FedScale, REFL and Oort."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow.compute as pc

from fedsim.components import Parameters
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.exporters import Exporter
from fedsim.traces.exporters._output import (
    US_PER_S,
    Rows,
    available_rows,
    offsets,
    periods_us,
    texts,
    valid_devices,
    whole_seconds,
    write_file,
)

# FedScale's code takes this many times the inference time for a sample's training.
TRAIN_FACTOR = 3.0


class FedScaleExportParams(Parameters):
    """Options of the FedScale exporter."""

    content: Literal["behaviour", "capacity"] = "behaviour"
    """Which of FedScale's two files to write."""
    align: Literal["clock", "device"] = "clock"
    """Time 0 of a client: the bundle's time 0, so that a replay agrees with ours (a session that crosses the period's
    seam is split in two), or the start of the device's own window."""
    bits_per_kbit: Literal[1000, 1024] = 1000
    """Bits in a kilobit of ``communication``."""


class FedScaleExporter(Exporter):
    """One dict of clients; JSON where the file's name ends in ``.json``, a pickle of plain types where in ``.pkl``.

    A capacity is an inference time per sample (a third of the training time where only that is known) and one rate for
    both ways (down where they differ): the fixed part of a step and the rate up are lost, and counted.

    Clients are numbered as the bundle names them where all names are whole numbers, else from 1 in the bundle's order.
    FedScale knows neither invalid devices nor devices that are never available: these are left out and counted.
    """

    name: ClassVar[str] = "fedscale"
    description: ClassVar[str] = "FedScale client behavior or device capacity (.json or .pkl)"
    Params: ClassVar[type[Parameters]] = FedScaleExportParams

    @classmethod
    def write(
        cls,
        bundle: TraceBundle,
        path: Path,
        params: FedScaleExportParams,
        *,
        overwrite: bool = False,
    ) -> dict[str, int]:
        """Write the bundle in this format; see :meth:`Exporter.write`."""
        if path.suffix not in (".json", ".pkl"):
            raise UserError(
                f"the ending '{path.suffix}' does not say which form to write",
                where=str(path),
                hint="end the name in .json or .pkl",
            )
        counts: dict[str, int] = {}
        if params.content == "behaviour":
            records = _behaviour(bundle, params, counts)
        else:
            records = _capacity(bundle, params, counts)
        counts["clients"] = len(records)
        if path.suffix == ".json":
            data = json.dumps(records).encode()
        else:
            data = pickle.dumps(records, protocol=4)
        write_file(path, data, overwrite=overwrite)
        return counts


def _client_ids(bundle: TraceBundle) -> list[int]:
    names = bundle.device_ids.to_pylist()
    if all(name.isascii() and name.isdigit() and str(int(name)) == name for name in names):
        return [int(name) for name in names]
    return list(range(1, len(names) + 1))


def _behaviour(
    bundle: TraceBundle, params: FedScaleExportParams, counts: dict[str, int]
) -> dict[int, dict[str, Any]]:
    rows = available_rows(bundle)
    period = periods_us(bundle)
    start_of_window = bundle.numpy("devices", "window_start_us")
    if params.align == "device":
        shift = start_of_window[rows.device]
        rows = Rows(rows.device, rows.start - shift, rows.end - shift)
    else:
        rows = _rotated(rows, period, counts)
    rows = whole_seconds(rows, counts)
    period_s = np.maximum((period + US_PER_S // 2) // US_PER_S, 1)

    first = offsets(rows.device, bundle.device_count)
    start_s, end_s = (rows.start // US_PER_S).tolist(), (rows.end // US_PER_S).tolist()
    valid = valid_devices(bundle)
    ids, models = _client_ids(bundle), texts(bundle, "model")
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
    """Intervals taken modulo their device's period, those across the seam split in two."""
    length = rows.end - rows.start
    start = rows.start % period[rows.device]
    end = start + length
    over = end > period[rows.device]
    counts["split_at_seam"] = int(np.count_nonzero(over))
    head = np.minimum(end, period[rows.device])
    tail_end = end[over] - period[rows.device[over]]
    device = np.concatenate([rows.device, rows.device[over]])
    start = np.concatenate([start, np.zeros_like(tail_end)])
    end = np.concatenate([head, tail_end])
    order = np.lexsort((start, device))
    return Rows(device[order], start[order], end[order])


def _capacity(
    bundle: TraceBundle, params: FedScaleExportParams, counts: dict[str, int]
) -> dict[int, dict[str, float]]:
    device, sample_s = _one_per_device(bundle, "compute", "sample_s", "phase", "inference")
    if not len(device):
        device, sample_s = _one_per_device(bundle, "compute", "sample_s", "phase", "training")
        sample_s = sample_s / TRAIN_FACTOR
    if "step_fixed_s" in bundle.table("compute").column_names:
        fixed_s = bundle.numpy("compute", "step_fixed_s")
        counts["fixed_parts_lost"] = int(np.count_nonzero(fixed_s > 0))
    computation = dict(zip(device.tolist(), (sample_s * 1000.0).tolist(), strict=True))
    device, rate = _one_per_device(bundle, "network", "bandwidth_bps", "direction", "both")
    if not len(device):
        # FedScale has one rate for both ways; down is the one that other traces mostly measure.
        device, rate = _one_per_device(bundle, "network", "bandwidth_bps", "direction", "down")
        up, _ = _one_per_device(bundle, "network", "bandwidth_bps", "direction", "up")
        counts["up_rates_lost"] = len(up)
    communication = dict(
        zip(device.tolist(), (rate / float(params.bits_per_kbit)).tolist(), strict=True)
    )
    records = {
        client: {"computation": computation[row], "communication": communication[row]}
        for row, client in enumerate(_client_ids(bundle))
        if row in computation and row in communication
    }
    if not records:
        raise UserError(
            "no device has both an inference time per sample and a bandwidth",
            where=bundle.where,
            hint="pair the bundle with compute and network columns: `fedsim traces join`",
        )
    return records


def _one_per_device(
    bundle: TraceBundle, table: str, value: str, key: str, wanted: str
) -> tuple[Any, Any]:
    chosen = pc.equal(bundle.table(table).column(key).cast("string"), wanted)
    keep = pc.fill_null(chosen, False).to_numpy(zero_copy_only=False)
    if value not in bundle.table(table).column_names:
        keep = np.zeros_like(keep)
        return bundle.device_rows(table)[keep], np.zeros(0)
    values = bundle.numpy(table, value)
    keep &= ~np.isnan(values)
    return bundle.device_rows(table)[keep], values[keep]
