"""Runs a scenario with fedsim and with the brute-force simulator, and lists where their tables differ."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fedsim.api import read_scenario
from fedsim.composition.assembly import assemble, build_server
from fedsim.composition.shared import Shared
from fedsim.devices.population import Power
from fedsim.runs.schema import DISPATCHES
from fedsim.simulation.rows import dispatch_columns
from fedsim.simulation.updates import Ended
from fedsim.traces.bundle import Manifest, TraceBundle
from fedsim.traces.tables import make_table
from fedsim.vocabulary.outcomes import CAUSE_LABELS, Outcome
from tests.oracle.server import Simulation

COLUMNS = (
    "dispatch_id", "client_id", "version", "round", "dispatched", "downloaded", "computed",
    "arrived", "steps_assigned", "steps_done", "outcome", "staleness", "aggregated_version",
    "bytes_down", "bytes_up", "energy", "sequence", "group", "ended",
    "download", "compute", "upload", "cause",
)  # fmt: skip
TIMES = {"dispatched", "downloaded", "computed", "arrived", "ended", "time"}
TIMES |= {"download", "compute", "upload"}
ABSENT = {"staleness", "aggregated_version"}


class Recorder:
    """Keeps the rows of a run in memory."""

    def __init__(self) -> None:
        self.ended: list[Ended] = []
        self.versions: list[Any] = []

    def append_dispatch(self, ended: Ended) -> None:
        """One dispatch that has ended."""
        self.ended.append(ended)

    def rows(self, power: Power) -> list[dict[str, Any]]:
        """One row per dispatch."""
        columns = dispatch_columns(power, self.ended)
        values = (columns[name].tolist() for name in DISPATCHES.schema.names)
        return [
            self._row(dict(zip(COLUMNS, row, strict=True))) for row in zip(*values, strict=True)
        ]

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        for name in TIMES - {"time"}:
            row[name] = None if math.isnan(row[name]) else round(row[name] * 1e9)
        for name in ABSENT:
            row[name] = None if row[name] < 0 else row[name]
        row["outcome"] = Outcome(row["outcome"]).label
        row["cause"] = None if row["cause"] < 0 else CAUSE_LABELS[row["cause"]]
        return row

    def append_aggregation(self, aggregate: Any) -> None:
        """One server update."""
        self.versions.append(
            {
                "version": aggregate.version,
                "time": round(aggregate.time_s * 1e9),
                "round": aggregate.round,
                "contributors": [item.dispatch_id for item in aggregate.contributions],
                "staleness": [item.staleness for item in aggregate.contributions],
            }
        )


def write_bundle(tables: dict[str, Any], folder: Path) -> None:
    """Write the tables of a case as a trace bundle."""
    ids = [f"device{number}" for number in range(len(tables["devices"]))]
    windows = [device["window"] for device in tables["devices"]]
    out = {
        "devices": make_table(
            "devices",
            {
                "device_id": ids,
                "window_start_us": [start // 1000 for start, _ in windows],
                "window_end_us": [end // 1000 for _, end in windows],
                "period_us": [
                    device.get("period", end - start) // 1000
                    for device, (start, end) in zip(tables["devices"], windows, strict=True)
                ],
                "valid": [True] * len(ids),
            },
        )
    }
    if tables.get("availability") is not None:
        rows = tables["availability"]
        out["availability"] = make_table(
            "availability",
            {
                "device_id": [ids[row[0]] for row in rows],
                "start_us": [row[1] // 1000 for row in rows],
                "end_us": [row[2] // 1000 for row in rows],
                "state": [row[3] for row in rows],
            },
        )
    if tables.get("network"):
        rows = [
            (ids[client], direction, row[direction])
            for client, row in enumerate(tables["network"])
            for direction in ("down", "up")
        ]
        out["network"] = make_table(
            "network",
            {
                "device_id": [row[0] for row in rows],
                "direction": [row[1] for row in rows],
                "bandwidth_bps": [float(row[2]) for row in rows],
            },
        )
    if tables.get("network_series"):
        rows = tables["network_series"]
        out["network_series"] = make_table(
            "network_series",
            {
                "series_id": [row[0] for row in rows],
                "direction": [row[1] for row in rows],
                "start_us": [row[2] // 1000 for row in rows],
                "dur_us": [(row[3] - row[2]) // 1000 for row in rows],
                "rate_bps": [float(row[4]) for row in rows],
            },
        )
        rows = tables["network_assign"]
        out["network_assign"] = make_table(
            "network_assign",
            {
                "device_id": [ids[row[0]] for row in rows],
                "series_id": [row[1] for row in rows],
                "offset_us": [row[2] // 1000 for row in rows],
                "scale": [row[3] for row in rows],
            },
        )
    manifest = Manifest(
        schema="fedsim.trace/1",
        name="brute",
        horizon_us=max(end for _, end in windows) // 1000,
        on_end=tables["on_end"],
        importer="brute",
        importer_version="1",
    )
    TraceBundle(manifest, out).write(folder)


def product(case: dict[str, Any], folder: Path) -> tuple[list[dict[str, Any]], list[Any]]:
    """The tables that fedsim makes of a case."""
    scenario = dict(case["scenario"])
    if case["tables"]:
        path = folder / f"bundle{len(list(folder.iterdir()))}"
        write_bundle(case["tables"], path)
        scenario["devices"] = {**scenario["devices"], "trace": str(path)}
    recorder = Recorder()
    assembly = assemble(read_scenario(scenario), Shared(), timing_only=True)
    build_server(assembly, None, recorder).run()
    rows = recorder.rows(assembly.population.power)
    return sorted(rows, key=lambda row: row["dispatch_id"]), recorder.versions


def differences(case: dict[str, Any], folder: Path) -> list[str]:
    """Where the tables of fedsim and of the brute-force simulator differ; empty if nowhere."""
    try:
        rows, versions = product(case, folder)
    except Exception as error:  # every failure of the product is a difference
        return [f"fedsim: {type(error).__name__}: {error}"]
    return differences_from(brute_force(case, rows), rows, versions)


def brute_force(case: dict[str, Any], rows: list[dict[str, Any]]) -> Simulation:
    """The run of the brute-force simulator that is to have these dispatches."""
    simulation = Simulation(case["scenario"], case["tables"], transfer_ends(rows))
    simulation.run()
    return simulation


def differences_from(
    simulation: Simulation, rows: list[dict[str, Any]], versions: list[Any]
) -> list[str]:
    """Where the tables of fedsim differ from those of the brute-force simulator; empty if nowhere."""
    return compared("dispatch", simulation.rows(), rows) + compared(
        "version", simulation.versions, versions
    )


def transfer_ends(rows: list[dict[str, Any]]) -> dict[tuple[int, str], int]:
    """When the transfers of these dispatches ended, by dispatch and kind, as far as the table says."""
    ends = {}
    for row in rows:
        uploaded = row["ended"] if row["outcome"] == "dropped" else row["arrived"]
        for kind, end in (("download", row["downloaded"]), ("upload", uploaded)):
            if end is not None:
                ends[row["dispatch_id"], kind] = end
    return ends


def compared(what: str, expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> list[str]:
    """Differences of two tables."""
    result = []
    if len(expected) != len(actual):
        result.append(f"{len(actual)} {what} rows, expected {len(expected)}")
    for number, (one, other) in enumerate(zip(expected, actual, strict=False)):
        for key, value in one.items():
            same = other[key] == value
            if key == "energy":
                same = math.isclose(value, other[key], rel_tol=1e-9, abs_tol=1e-9)
            if not same:
                result.append(f"{what} {number}: {key} is {other[key]}, expected {value}")
    return result
