"""Compares every file of a run, a trace bundle, or a folder of several runs with its checksum."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedsim.errors import InvariantViolation, Unreadable, UserError
from fedsim.files.locks import is_owned
from fedsim.files.room import most_unpacked
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.invariants import verify_run
from fedsim.runs.listing import Runs
from fedsim.runs.records import ANSWERS, FACTS, RUN, SWEEP, SWEEP_SCENARIO, record_of
from fedsim.runs.run import Run
from fedsim.runs.schema import TABLES
from fedsim.traces.bundle import MANIFEST_NAME, compare_files

State = Literal["intact", "damaged", "not verifiable", "unfinished", "failed"]


@dataclass(frozen=True)
class Verdict:
    """The state of one folder.

    Attributes:
        path: the folder.
        state: ``intact``, ``damaged``, ``not verifiable`` (a trace bundle without checksums, or a file that may not be
            opened or is too large), or ``unfinished`` or ``failed``: the files that have checksums so far are intact,
            and the rest is written when the run ends.
        files: files compared.
        problems: one error per file that is missing or has changed.
        error: why the run failed.
        next_step: what to do with a run that is not complete.
    """

    path: Path
    state: State
    files: int
    problems: tuple[UserError, ...]
    error: str = ""
    next_step: str = ""


def verify(folder: Path) -> list[Verdict]:
    """The verdict on a run, a trace bundle, or a sweep or answer and each of its runs that has been started."""
    most_unpacked(0)  # Not a problem of the files.
    record = record_of(folder)
    if record is None:
        tables = {name: each for each in ANSWERS for name in each.beside if name.endswith(".csv")}
        for name in filter(lambda name: (folder / name).is_file(), tables):
            lost = tables[name].damaged(folder / tables[name].file, f"no such file beside {name}")
            inside = sorted({*folder.glob(f"*/{RUN.file}"), *folder.glob(f"runs/*/{RUN.file}")})
            verdicts = [verify_folder(path.parent) for path in inside]
            return [_judged(folder, 1, lost), *verdicts]
        if not any((folder / name).exists() for name in (RUN.file, SWEEP_SCENARIO, MANIFEST_NAME)):
            hint = "give the folder of a run, a sweep, a decision, a forecast, a board run or a trace bundle"
            raise UserError("the folder has no files with checksums", where=folder, hint=hint)
        return [verify_folder(folder)]
    try:
        runs = Runs(folder)
    except UserError as error:
        return [_judged(folder, 1, error)]
    content, problems = runs.record, list[UserError]()
    # A process that works in the folder may be writing them.
    for name in () if is_owned(folder) else content["files"]:
        with _noted(problems):
            record.require_intact(folder, content, name)
    verdicts = [_judged(folder, 1 + len(content["files"]), *problems)]
    names = list(content.get("complete", ()))
    for name in record.beside if record is not SWEEP else ():
        inside = sorted((folder / name).glob("[!.]*/"))  # Not those of a killed process.
        names += [path.relative_to(folder).as_posix() for path in inside]
    for run in runs if record is SWEEP else map(runs.member, dict.fromkeys(names)):
        try:
            run.opened()
        except UserError as error:
            verdicts.append(_judged(run.path, 1, error))
            continue
        # A run that has not begun has at most a lock.
        if run.path.name not in SWEEP.beside and any(run.path.glob("[!.]*")):
            verdicts.append(verify_folder(run.path))
    return verdicts


def _judged(path: Path, files: int, *problems: UserError) -> Verdict:
    """The verdict on a folder with these problems, if any; what has no room may be intact."""
    is_unknown = problems and all(isinstance(problem, Unreadable) for problem in problems)
    state: State = "not verifiable" if is_unknown else "damaged" if problems else "intact"
    return Verdict(path, state, files, problems)


@contextlib.contextmanager
def _noted(problems: list[UserError]) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        problems.append(error)


def verify_folder(path: Path) -> Verdict:
    """Compare the files of a run and of its checkpoints, or those of a trace bundle, with their checksums."""
    try:
        return (_bundle if (path / MANIFEST_NAME).exists() else _run)(path)
    except UserError as error:
        return _judged(path, 1, error)


def _run(path: Path) -> Verdict:
    folder = RunFolder(path)
    info = folder.read_info()
    problems = folder.problems(info)
    # A process that works in the folder replaces them, and one that was killed may have removed a part at the end.
    may_be_partial = info["status"] == Status.COMPLETE or is_owned(path)
    checkpoints, next_step = folder.checkpoints(info), folder.next_step(info)
    damaged = [] if may_be_partial else checkpoints.damaged()
    is_lost = len(damaged) == len([*folder.checkpoint.glob("[0-9]*")])
    hint = f"{checkpoints.removal}, then" if is_lost else "another checkpoint is intact:"
    problems += [
        UserError(message, where=file, hint=f"{hint} {next_step}") for file, message in damaged
    ]
    with contextlib.suppress(FileNotFoundError), _noted(problems):
        FACTS.read(path)
    if not problems and info["status"] == Status.COMPLETE:
        with _noted(problems):
            _require_consistent(Run(folder))
    if problems and folder.read_info() != info:
        return _run(path)  # Another process has resumed, replaced or completed the run.
    files = 1 + folder.facts.exists() + len(info["files"])
    files += len(list(folder.checkpoint.glob("[0-9]*/*")))
    if problems or info["status"] == Status.COMPLETE:
        return _judged(path, files, *problems)
    state: State = "failed" if info["status"] == Status.FAILED else "unfinished"
    return Verdict(path, state, files, (), info.get("error") or "", next_step)


def _require_consistent(run: Run) -> None:
    """Refuse a run whose scenario, tables and ``run.json`` contradict each other."""
    _ = run.scenario
    for table in TABLES:
        if run.folder.parquet(table.name).exists():
            getattr(run, table.name)  # Its values are checked when it is read.
    try:
        verify_run(run)
    except InvariantViolation as error:
        raise RUN.damaged(run.path, str(error).partition("\n")[2].strip()) from error


def _bundle(path: Path) -> Verdict:
    files, problems, verifiable = compare_files(path)
    if not problems and not verifiable:
        return Verdict(path, "not verifiable", files, ())
    return _judged(path, files, *problems)
