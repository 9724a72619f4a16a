"""Runs a scenario with fedsim and with the brute-force simulator, and lists where their tables differ."""

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from fedsim.api import read_scenario
from fedsim.composition.build import build
from fedsim.composition.planes import build_server
from fedsim.composition.shared import Shared
from fedsim.traces.bundle import Manifest, TraceBundle
from fedsim.traces.tables import make_table
from fedsim.vocabulary.outcomes import CAUSE_LABELS, Outcome
from tests.oracle.server import Simulation
from tests.simulation.harness import Book

TIMES = (
    "dispatched",
    "downloaded",
    "computed",
    "arrived",
    "ended",
    "download",
    "compute",
    "upload",
)


def rows_of(book: Book) -> list[dict[str, Any]]:
    """One row per dispatch, in order, as the brute-force simulator makes them: nanoseconds, and None for nothing."""
    rows = sorted(book.rows, key=lambda row: int(row["dispatch_id"]))
    for row in rows:
        row["client_id"] = row.pop("client")
        for name in TIMES:
            row[name] = None if math.isnan(row[name]) else round(row[name] * 1e9)
        for name in ("staleness", "aggregated_version"):
            row[name] = None if row[name] < 0 else row[name]
        row["outcome"] = Outcome(row["outcome"]).label
        row["cause"] = None if row["cause"] < 0 else CAUSE_LABELS[row["cause"]]
    return rows


def version_of(aggregate: Any) -> dict[str, Any]:
    """One server update."""
    return {
        "version": aggregate.version,
        "time": round(aggregate.time_s * 1e9),
        "round": aggregate.round,
        "contributors": [item.dispatch_id for item in aggregate.contributions],
        "staleness": [item.staleness for item in aggregate.contributions],
    }


def write_bundle(tables: dict[str, Any], folder: Path) -> None:
    """Write the tables of a case as a trace bundle."""
    ids = [f"device{number}" for number in range(len(tables["devices"]))]
    windows = [device["window"] for device in tables["devices"]]
    out = {}

    def put(name: str, rows: Sequence[Any], **columns: Callable[[Any], Any]) -> None:
        if rows:
            values = {column: [read(row) for row in rows] for column, read in columns.items()}
            out[name] = make_table(name, values)

    put(
        "devices",
        [(number, device, *device["window"]) for number, device in enumerate(tables["devices"])],
        device_id=lambda row: ids[row[0]],
        window_start_us=lambda row: row[2] // 1000,
        window_end_us=lambda row: row[3] // 1000,
        period_us=lambda row: row[1].get("period", row[3] - row[2]) // 1000,
        valid=lambda row: True,
    )
    put(
        "availability",
        tables.get("availability") or (),
        device_id=lambda row: ids[row[0]],
        start_us=lambda row: row[1] // 1000,
        end_us=lambda row: row[2] // 1000,
        state=lambda row: row[3],
    )
    put(
        "network",
        [
            (ids[client], direction, float(row[direction]))
            for client, row in enumerate(tables.get("network") or ())
            for direction in ("down", "up")
        ],
        device_id=itemgetter(0),
        direction=itemgetter(1),
        bandwidth_bps=itemgetter(2),
    )
    put(
        "network_series",
        tables.get("network_series") or (),
        series_id=itemgetter(0),
        direction=itemgetter(1),
        start_us=lambda row: row[2] // 1000,
        dur_us=lambda row: (row[3] - row[2]) // 1000,
        rate_bps=lambda row: float(row[4]),
    )
    put(
        "network_assign",
        tables.get("network_assign") or (),
        device_id=lambda row: ids[row[0]],
        series_id=itemgetter(1),
        offset_us=lambda row: row[2] // 1000,
        scale=itemgetter(3),
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
    world = build(read_scenario(scenario), Shared(), timing_only=True)
    book = Book(world.population.power)
    build_server(world, None, book).run()
    return rows_of(book), list(map(version_of, book.aggregates))


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
