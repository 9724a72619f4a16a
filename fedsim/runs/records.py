"""The records of fedsim's folders, with the types of their entries; and the versions and hardware of ``run.json``."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, cast

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from fedsim.errors import UserError
from fedsim.files.durable import named
from fedsim.files.records import Checksums, Number, Record, Whole, entries
from fedsim.scenario import own_code
from fedsim.scenario.model import MOST_RUNS

_LONGEST_NAME = 255
Count = Annotated[Whole, Field(ge=0, le=2**53)]
Amount = Annotated[float, Field(ge=0, le=2**53, allow_inf_nan=False)]


@entries
class _Definition(TypedDict, total=False):
    higher_is_better: bool
    unit: str


@entries
class _Vector(TypedDict):
    direction: Literal["down", "up"]
    vector: str
    compression: str
    bytes_raw: Amount
    bytes: Amount
    bytes_first: Amount


@entries
class _Part(TypedDict):
    rate: Amount
    parameters: Amount | None
    operations: Amount | None
    memory_bytes: Amount | None
    bytes_down: Amount | None
    bytes_up: Amount | None


@entries
class _Folders(TypedDict):
    run: str
    project: str


def _plain_name(name: str) -> str:
    """Refuse a name that leads outside the folder of a record, or that nothing in a folder has."""
    is_plain = name == Path(name).name and name not in ("", "..") and "\\" not in name
    if not is_plain or not name.isprintable() or len(name.encode()) > _LONGEST_NAME:
        raise ValueError(f"{name!r} is not the name of a folder")
    return name


@entries
class _Run(TypedDict, total=False):
    status: Required[Literal["running", "complete", "failed", "interrupted"]]
    name: str
    seed: Whole
    clients: Count
    method: str
    app: str
    run_config: dict[str, Any]
    target: dict[str, Annotated[float, Field(allow_inf_nan=False)]]
    tags: list[str]
    notes: list[str]
    error: str | None
    timing_only: bool
    steps_ahead: Count
    clock: Literal["wall"]
    """The clock of the run, if its time is not simulated."""
    log: str
    """The log from which the tables were made."""
    unknown: list[str]
    """Figures that it does not give."""
    workers: str
    user_code: dict[str, str | None]
    data_files: dict[str, str]
    files: Required[Checksums]
    tracking: list[Annotated[str, AfterValidator(_plain_name)]]
    """What trackers have left in their folder; absent until the run ends."""
    folders: _Folders
    versions: dict[str, str]
    hardware: dict[str, str | int]
    learning: dict[str, Any] | None
    resumed: Count
    simulated_s: Amount
    rounds: Count
    versions_made: Count
    dispatches: Count
    messages: Count
    client_errors: Count
    offline_messages: Count
    ineligible_clients: Count
    excluded_clients: Count
    bytes_down_per_dispatch: Amount
    bytes_down_first_dispatch: Amount
    bytes_up_per_dispatch: Amount
    vectors: Annotated[list[_Vector], Field(max_length=10_000)]
    parts: Annotated[list[_Part], Field(max_length=10_000)]
    flows: list[dict[str, Any]]
    gco2e: Number
    cost: Number
    prologue: bool
    metrics: dict[str, Number]
    metric_definitions: dict[str, _Definition]
    label_names: list[str]
    time_of_day_s: Number
    wall_s: Amount
    wall_learning_s: Amount
    wall_time_plane_s: Amount


_INCLUDED = {
    "clients": ("excluded_clients", "ineligible_clients"),
    "messages": ("client_errors", "offline_messages"),
}
"""Counts whose sum is not greater than another."""


def _counts_fit(run: dict[str, Any]) -> dict[str, Any]:
    """Refuse counts that contradict each other."""
    for name, parts in _INCLUDED.items():
        if sum(run.get(part, 0) for part in parts) > run.get(name, math.inf):
            raise ValueError(f"{' and '.join(parts)} are more than {name}")
    return run


@entries
class _Facts(TypedDict):
    run: str
    """The checksum of the ``run.json`` of these results."""
    facts: NotRequired[str]


def _distinct(runs: list[SweepEntry]) -> list[SweepEntry]:
    """Refuse a folder that is listed twice."""
    if len({entry["run"] for entry in runs}) < len(runs):
        raise ValueError("a run is listed twice")
    return runs


@entries
class SweepEntry(TypedDict):
    """One run of a sweep."""

    run: Annotated[str, AfterValidator(_plain_name)]
    """Name of its folder in the sweep's folder."""
    seed: Whole
    values: dict[str, Any]
    """The values that the sweep set, by dotted path."""
    digest: str
    """Digest of its resolved scenario; equal digests mean equal scenarios."""


@entries
class SweepRecord(TypedDict):
    """The content of ``sweep.json``."""

    name: str
    scenario: str | None
    """The scenario file; None if it was built in Python."""
    runs: Annotated[list[SweepEntry], Field(max_length=MOST_RUNS), AfterValidator(_distinct)]
    files: Checksums
    complete: NotRequired[Checksums]
    """SHA-256 of the scenario file of each complete run, by its folder."""


@entries
class _Answer(TypedDict):
    asked: dict[str, Any]
    files: Checksums
    complete: NotRequired[Checksums]
    """As in :class:`SweepRecord`."""


@entries
class _Decision(_Answer):
    batch: Annotated[Whole, Field(ge=1, le=1_000)]
    batches: Count
    spent_s: Amount


SWEEP_SCENARIO = "scenario.yaml"
"""The resolved scenario of a sweep, with its section ``sweep``."""
SWEEP_PRECISION = "precision.csv"
"""Ratios of the variants to the baseline, and the seeds that they needed, if seeds were added to a precision."""
RUN = Record(
    "run.json",
    2,
    Annotated[_Run, AfterValidator(_counts_fit)],
    hint="restore the file from a copy, or remove the folder of the run and repeat the command that wrote it",
)
FACTS = Record(
    "facts.json", 2, _Facts, hint="remove it: rm {path}; comparisons then read the tables"
)
"""What comparisons use of the tables of a complete run."""
SWEEP = Record(
    "sweep.json",
    2,
    SweepRecord,
    beside=(
        SWEEP_SCENARIO,
        "index.parquet",
        "index.csv",
        SWEEP_PRECISION,
        "errors",
        "comparison",
        own_code.FOLDER,
    ),
)
DECISION = Record(
    "decide.json",
    1,
    _Decision,
    beside=("best.yaml", "settings.csv", "decide.html", "runs", "timing"),
)
FORECAST = Record(
    "forecast.json", 1, _Answer, beside=("forecast.csv", "forecast.html", "runs", "devices")
)
BOARD = Record(
    "board.json",
    1,
    _Answer,
    beside=("runs.parquet", "board.html"),
    hint="restore the folder from a copy, or begin again in another one: -o FOLDER",
)
ANSWERS = (SWEEP, DECISION, FORECAST, BOARD)
"""Those of the folders of several runs."""


def is_sweep(folder: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return SWEEP.is_in(folder)


def read_sweep(folder: Path) -> SweepRecord:
    """Read ``sweep.json``."""
    try:
        return cast(SweepRecord, SWEEP.read(folder))
    except FileNotFoundError:
        raise UserError(
            f"the folder contains no {SWEEP.file}, so it is not a sweep folder",
            where=folder,
            hint="give the folder that `fedsim sweep` printed",
        ) from None


def record_of(folder: Path, inside: str = "") -> Record | None:
    """The record in the folder of a sweep or an answer, one that has runs ``inside``; None if there is none."""
    records = (record for record in ANSWERS if not inside or inside in record.beside)
    return next((record for record in records if record.is_in(folder)), None)


def answer_of(runs: Path) -> tuple[Path, Mapping[str, Any], str]:
    """The folder of the sweep or the answer to which the runs in a folder belong, its record, which is empty if there
    is none, and what the names of these runs begin with in it."""
    runs = named(runs)
    for folder, begin in ((runs, ""), (runs.parent, f"{runs.name}/")):
        if record := record_of(folder, begin[:-1]):
            return folder, record.read(folder), begin
    return runs, {}, ""


def complete_runs(folder: Path, record: Mapping[str, Any]) -> dict[str, str]:
    """The entry ``complete`` of the record in a folder, without the runs that have been removed."""
    complete = record.get("complete", {})
    return {name: complete[name] for name in complete if (folder / name).exists()}


LIBRARIES = ("torch", "numpy", "pandas", "pyarrow", "scipy", "scikit-learn", "simpy", "networkx")


def environment() -> dict[str, dict[str, str | int]]:
    """Versions of fedsim, Python and libraries, and the machine; nothing that identifies a person or a host."""
    versions: dict[str, str | int] = {"python": platform.python_version()}
    versions |= {name: _version(name) for name in ("fedsim-des", *LIBRARIES)}
    hardware: dict[str, str | int] = {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "byte_order": sys.byteorder,
    }
    return {"versions": versions, "hardware": hardware}


@functools.cache
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@functools.cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
