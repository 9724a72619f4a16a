"""The folder of a sweep: run folders, the file that lists them, and the index table."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedsim.analysis.run import Run, load_run
from fedsim.errors import UserError, raise_all
from fedsim.files.checksums import text_sha256
from fedsim.files.durable import remove_temporaries, require_no_folder
from fedsim.files.locks import locked
from fedsim.files.records import Record
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.listing import Runs
from fedsim.runs.progress import WAITING
from fedsim.runs.records import (
    BOARD,
    RUN,
    SWEEP,
    SWEEP_SCENARIO,
    SweepEntry,
    complete_runs,
    is_sweep,
    read_sweep,
)
from fedsim.runs.tables import INDEX, csv_text, read_index
from fedsim.scenario.comparing import differences, text
from fedsim.scenario.loading import LoadedScenario, load_scenario
from fedsim.scenario.own_code import FOLDER
from fedsim.sweeps.plan import PlannedRun
from fedsim.vocabulary.formatting import format_counted, format_names

if TYPE_CHECKING:
    from fedsim.analysis.comparison import Comparison

_SUMMARY = ("simulated_s", "wall_s", "rounds", "versions_made", "dispatches")
_SHOWN_DIFFERENCES = 3
_NO_RESULTS = frozenset({"ignore", "logging", "tags"})
"""Keys of a scenario that change no result."""


class Sweep:
    """The folder of a sweep, as its readers see it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.record = read_sweep(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    @functools.cached_property
    def index(self) -> pd.DataFrame:
        """One row per run: ``run``, ``seed``, one column per varied path, ``status``, ``error``, and its summary.

        A run that the file lists as running has its present status: the sweep may have been killed since.
        """
        frame = read_index(self.path, self.record)
        for row in frame.index[frame["status"] == Status.RUNNING]:
            folder = RunFolder(self.path / frame.loc[row, "run"])
            exists = RUN.is_in(folder.path)
            frame.loc[row, "status"] = str(folder.status(folder.read_info())) if exists else WAITING
        return frame

    @property
    def runs(self) -> list[Run]:
        """The complete runs, in the order of the sweep.

        Raises:
            UserError: a run is damaged, or a run that was complete is missing, or is another run.
        """
        folders = [run.opened() for run in Runs(self.path)]
        opened = (load_run(folder.path) for folder in folders if folder)
        return [run for run in opened if run.status is Status.COMPLETE]

    @property
    def failures(self) -> dict[str, str]:
        """Errors of the failed runs, by run."""
        failed = self.index[self.index["status"] == Status.FAILED]
        return dict(zip(failed["run"], failed["error"], strict=True))

    def compare(self, **options: Any) -> Comparison:
        """Compare the runs: :func:`fedsim.analysis.comparison.compare`."""
        from fedsim.analysis.comparison import compare

        return compare([self.path], **options)

    def _repr_html_(self) -> str:
        return str(self.index.to_html(index=False))

    def __repr__(self) -> str:
        described = format_counted(len(self.record["runs"]), "run")
        with suppress(UserError):  # There is no table yet.
            if failed := len(self.failures):
                described += f", {failed} failed"
        return f"<Sweep {str(self.path)!r}: {described}>"


@contextmanager
def claimed(path: Path, record: Record = SWEEP) -> Iterator[None]:
    """Make the folder with a record if it does not exist; hold its lock."""
    from fedsim.analysis.pages import require_own

    taken = path.exists() and not record.is_in(path)
    if taken and path.is_dir():
        # Hidden files are the lock, and temporary files of a killed process.
        items = {item.name for item in path.iterdir() if item.name[0] != "."}
        others = items.difference(record.beside)
        # The user may have removed a damaged record, whose runs are intact; files alone are the user's.
        are_runs = all(RUN.is_in(path / name) for name in others)
        has_folders = record is BOARD or any((path / name).is_dir() for name in items)
        taken = bool(items) and (others == items or not are_runs or not has_folders)
    if taken:
        raise UserError(
            f"exists, but is not a folder with {record.file}",
            where=path,
            hint="choose another folder with -o (in Python: output)",
        )
    with locked(path):
        for name in (record.file, *record.beside):
            if "." in name:
                (require_own if name.endswith(".html") else require_no_folder)(path / name)
        for folder in (path, *(path / name for name in record.beside)):
            remove_temporaries(folder)
        yield


def record(
    path: Path, loaded: LoadedScenario, planned: Sequence[PlannedRun], *, timing_only: bool = False
) -> list[PlannedRun]:
    """Write the list of runs of the sweep in ``path``.

    Returns:
        The runs under the names of their folders; an existing run keeps its folder.
    """
    digests = [text_sha256(text(run.resolved())) for run in planned]
    before = read_sweep(path) if is_sweep(path) else None
    earlier = before["runs"] if before else []
    names = _folders(path, planned, digests, earlier)
    settled = [replace(run, name=name) for run, name in zip(planned, names, strict=True)]
    entries, sections = [], dict[str, Any]()
    for run, scenario in zip(settled, digests, strict=True):
        folder = RunFolder(path / run.name)
        if folder.has_begun:
            _require_same(Run(folder), run, scenario, sections)
            was_timing_only = bool(folder.read_info().get("timing_only"))
            if run.loaded.scenario.task.type.learns and was_timing_only != timing_only:
                made = "with training, not with" if timing_only else "without training, with"
                repeated = "leave out" if timing_only else "add"
                raise UserError(
                    f"this run was made {made} --timing-only",
                    where=folder.path,
                    hint=f"choose another folder for the sweep with -o, or {repeated} --timing-only (in Python: "
                    "timing_only)",
                )
        values = dict(run.values)
        entries.append(SweepEntry(run=run.name, seed=run.seed, values=values, digest=scenario))
    raise_all(changed_since(path, [(run.name, run.loaded) for run in settled]))
    source = None if loaded.path is None else str(loaded.path)
    if before and source and Path(source).resolve() == (path / SWEEP_SCENARIO).resolve():
        source = before["scenario"]  # Its folder may have a paper's tables.
    # This file marks the folder as a sweep; it comes first, so that a sweep killed here can be started again.
    resolved = loaded.resolved_yaml()
    begun: dict[str, Any] = {
        "name": loaded.scenario.name,
        "scenario": source,
        "runs": entries,
        "files": {},
    }
    if before:
        begun |= {"files": before["files"], "complete": complete_runs(path, before)}
    SWEEP.write_listed(path, begun, {SWEEP_SCENARIO: resolved})
    return settled


def _folders(
    path: Path,
    planned: Sequence[PlannedRun],
    digests: Sequence[str],
    earlier: Sequence[SweepEntry],
) -> list[str]:
    """The folder of each run. Names depend on everything that is swept, but an existing run keeps its folder.

    A planned run is an existing one if it has the same scenario, or else the same values and seed (then the scenario
    has changed, and the run is refused).
    """

    def keys(name: str, digest: str, values: Mapping[str, Any], seed: int) -> tuple[str, ...]:
        return f"{name} {digest}", digest, text([values, seed])

    folders: dict[int, str] = {}
    wanted = [
        keys(run.name, digest, run.values, run.seed)
        for run, digest in zip(planned, digests, strict=True)
    ]
    left = [
        (keys(entry["run"], entry["digest"], entry["values"], entry["seed"]), entry["run"])
        for entry in earlier
    ]
    for level in range(3):
        free: dict[str, list[Any]] = {}
        for each in left:
            free.setdefault(each[0][level], []).append(each)
        for number, of_run in enumerate(wanted):
            if number not in folders and (candidates := free.get(of_run[level])):
                left.remove(candidates[0])
                folders[number] = candidates.pop(0)[1]
    taken = {name for _, name in left if (path / name).exists()} | set(folders.values())
    for number, run in enumerate(planned):
        if number not in folders:
            name = run.name if run.name not in taken else f"{run.name}-{digests[number][:6]}"
            folders[number] = name
            taken.add(name)
    return [folders[number] for number in range(len(planned))]


def digest_of(run: Run, sections: dict[str, dict[str, Any]]) -> str:
    """Digest of the resolved scenario of a run; ``sections`` is that of :meth:`Run.read_scenario`."""
    run.read_scenario(sections)
    return text_sha256(text(run.scenario))


def _require_same(
    there: Run, planned: PlannedRun, digest: str, sections: dict[str, dict[str, Any]]
) -> None:
    if digest_of(there, sections) == digest:
        return  # The digest in the record may be wrong.
    # Keys that did not exist when the run was made have their present defaults.
    filled = load_scenario(there.folder.scenario, user_code="describe").resolved()
    differs = [f"{path}." for path, _, _ in differences(filled, planned.resolved())]
    changes = [
        f"{path} was {json.dumps(before)} and is {json.dumps(now)}"
        for path, before, now in differences(there.scenario, planned.resolved())
        if path not in _NO_RESULTS
        and any(each.startswith(f"{path}.") for each in differs)
        # A class from Python lies in the folder of the sweep.
        and re.sub(rf'"[^"]*/{FOLDER}/', f'"{FOLDER}/', json.dumps(before)) != json.dumps(now)
    ]
    if changes:
        raise UserError(
            f"this run was made from a different scenario: {format_names(changes, _SHOWN_DIFFERENCES)}",
            where=there.path,
            hint="choose another folder for the sweep with -o, or remove this run's folder",
        )


def changed_since(path: Path, runs: Iterable[tuple[str, LoadedScenario]]) -> Iterator[UserError]:
    """One error per file of code or data that has changed since complete runs were made from it.

    Args:
        path: the folder of the run folders.
        runs: the name of each run's folder, and its scenario.
    """
    from fedsim.composition.resuming import changed_files

    compared, changed = set[str](), set[Path]()
    for run, loaded in runs:
        folder = RunFolder(path / run)
        info = folder.read_info() if RUN.is_in(folder.path) else {}
        if info.get("status") != Status.COMPLETE:
            continue
        project = (info.get("folders") or {}).get("project")
        files = text([info.get("user_code"), info.get("data_files"), project])
        if files not in compared:
            compared.add(files)
            changed |= {Path(str(error.where)) for error in changed_files(folder, info)}
        # Classes without a file have one in the folder, which is written after this.
        now = {path.resolve() / name: source for name, source in loaded.sources().items()}
        for name, digest in (info.get("user_code") or {}).items():
            file = Path(name.rpartition(":")[0])
            if file in now and text_sha256(now[file]) != digest:
                changed.add(file)
    for file in sorted(changed):
        yield UserError(
            f"complete runs in {path} were made before this file changed",
            where=file,
            hint="undo the change, choose another folder with -o, or remove the folders of these runs",
        )


def no_longer_swept(path: Path, planned: Sequence[PlannedRun]) -> list[str]:
    """Names of the folders of runs in a sweep's folder that it no longer contains, sorted."""
    names = {run.name for run in planned}
    runs = (RunFolder(item) for item in path.glob("[!.]*/") if item.name not in names)
    return sorted(folder.path.name for folder in runs if folder.has_begun)


def write_index(
    path: Path, planned: Sequence[PlannedRun], errors: Mapping[str, str]
) -> dict[str, str]:
    """Write ``index.parquet`` and ``index.csv`` from the run folders, and the checksums of these and of complete runs.

    Args:
        path: the sweep's folder.
        planned: its runs.
        errors: errors of this call, by run; a run may fail before it has a folder.

    Returns:
        The status of each run; one that was killed and has not been resumed is ``interrupted``.
    """
    rows: list[dict[str, Any]] = []
    complete: dict[str, str] = {}
    known, sections = read_sweep(path).get("complete", {}), dict[str, Any]()
    for run in planned:
        folder = RunFolder(path / run.name)
        info = folder.read_info() if RUN.is_in(folder.path) else {}
        status = Status.FAILED if run.name in errors else folder.status(info) if info else WAITING
        if status is Status.COMPLETE:
            complete[run.name] = info["files"][folder.scenario.name]
            try:
                if complete[run.name] != known.get(run.name):
                    _require_same(Run(folder), run, text_sha256(text(run.resolved())), sections)
            except UserError as problem:  # Somebody has put it there since the sweep began.
                status, info = Status.FAILED, {"error": str(problem)}
                complete[run.name] = known.get(run.name, text_sha256(run.loaded.resolved_yaml()))
        row: dict[str, Any] = {"run": run.name, "seed": run.seed, **run.values}
        row |= {"status": str(status), "error": errors.get(run.name, info.get("error") or "")}
        row |= {name: info.get(name) for name in _SUMMARY}
        rows.append(row | (info.get("metrics") or {}))
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: _column([row.get(name) for row in rows]) for name in names})
    write = functools.partial(pq.write_table, table, compression="zstd", write_page_checksum=True)
    content = {**read_sweep(path), "complete": complete}
    csv = csv_text(table.to_pandas())
    SWEEP.write_listed(path, content, {f"{INDEX}.parquet": write, f"{INDEX}.csv": csv})
    return {row["run"]: row["status"] for row in rows}


def _column(values: list[Any]) -> pa.Array:
    """A column of values of one type; of mixed types it is text, in which a value that is no text is JSON."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        whole = kinds == {int}
        return pa.array(values, pa.int64() if whole else pa.float64())
    if kinds == {bool}:
        return pa.array(values)
    as_is = (str, type(None))
    return pa.array([value if isinstance(value, as_is) else json.dumps(value) for value in values])
