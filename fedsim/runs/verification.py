"""Compares every file of a run, a trace bundle, or a folder of several runs with its checksum."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedsim.errors import UserError
from fedsim.files.locks import is_owned
from fedsim.files.records import Record
from fedsim.runs.checkpoint import Checkpoints
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.records import ANSWERS, FACTS, SWEEP
from fedsim.traces.bundle import MANIFEST_NAME, compare_files

State = Literal["intact", "damaged", "not verifiable", "unfinished", "failed"]


@dataclass(frozen=True)
class Verdict:
    """The state of one folder.

    Attributes:
        path: the folder.
        state: ``intact``, ``damaged``, ``not verifiable`` (a trace bundle without checksums), or ``unfinished`` or
            ``failed``: the files that have checksums so far are intact, and the rest is written when the run ends.
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
    for record in ANSWERS:
        if (folder / record.file).is_file():
            return verify_record(folder, record)
    is_bundle = (folder / MANIFEST_NAME).is_file()
    return [verify_bundle_folder(folder) if is_bundle else verify_run_folder(folder)]


def verify_run_folder(path: Path) -> Verdict:
    """Compare the files of one run, and of its checkpoints, with their checksums."""
    folder = RunFolder(path)
    try:
        info = folder.read_info()
    except UserError as error:
        return Verdict(path, "damaged", 1, (error,))
    problems = folder.problems(info)
    checkpoints = Checkpoints(folder.checkpoint)
    problems += [folder.damaged(file, message) for file, message in checkpoints.damaged()]
    with contextlib.suppress(FileNotFoundError):
        try:
            FACTS.read(path)
        except UserError as error:
            problems.append(error)
    kept = folder.facts.exists()
    files = 1 + kept + len(info.get("files", {})) + checkpoints.count_files()
    if problems:
        return Verdict(path, "damaged", files, tuple(problems))
    if info["status"] == Status.COMPLETE:
        return Verdict(path, "intact", files, ())
    state: State = "failed" if info["status"] == Status.FAILED else "unfinished"
    return Verdict(path, state, files, (), info.get("error") or "", folder.next_step(info))


def verify_bundle_folder(path: Path) -> Verdict:
    """Compare the files of a trace bundle with the checksums in its manifest."""
    try:
        files, problems, verifiable = compare_files(path)
    except UserError as error:
        return Verdict(path, "damaged", 1, (error,))
    state: State = "damaged" if problems else "intact" if verifiable else "not verifiable"
    return Verdict(path, state, files, tuple(problems))


def verify_record(path: Path, record: Record) -> list[Verdict]:
    """The verdict on a record and the files that it lists, then on each run and bundle in the folder."""
    try:
        content = record.read(path)
    except UserError as error:
        return [Verdict(path, "damaged", 1, (error,))]
    problems = []
    # A process that works in the folder may be writing them.
    for name in () if is_owned(path) else content["files"]:
        try:
            record.require_intact(path, content, name)
        except UserError as error:
            problems.append(error)
    state: State = "damaged" if problems else "intact"
    verdicts = [Verdict(path, state, 1 + len(content["files"]), tuple(problems))]
    if record is SWEEP:
        folders = [path / entry["run"] for entry in content["runs"]]
    else:
        folders = sorted(path.glob("[!.]*/[!.]*/"))  # Not those of a killed process.
    for folder in folders:
        if folder.name in SWEEP.beside or not folder.is_dir() or not any(folder.iterdir()):
            continue
        is_bundle = (folder / MANIFEST_NAME).is_file()
        verdicts.append((verify_bundle_folder if is_bundle else verify_run_folder)(folder))
    return verdicts
