"""Compares every file of a run, a sweep or a trace bundle with its checksum."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedsim.errors import UserError
from fedsim.runs.checkpoint import Checkpoints
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.sweep import is_sweep, read_sweep
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
    """The verdict on a run, a trace bundle, or a sweep and each of its runs that has been started."""
    if is_sweep(folder):
        return verify_sweep_folder(folder)
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
    files = 1 + len(info.get("files", {})) + checkpoints.count_files()
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


def verify_sweep_folder(path: Path) -> list[Verdict]:
    """The verdict on a sweep's own files, followed by one for each of its runs that has been started."""
    try:
        record = read_sweep(path)
    except UserError as error:
        return [Verdict(path, "damaged", 1, (error,))]
    problems = []
    for name in record.files:
        try:
            record.require_intact(path, name)
        except UserError as error:
            problems.append(error)
    state: State = "damaged" if problems else "intact"
    verdicts = [Verdict(path, state, 1 + len(record.files), tuple(problems))]
    for entry in record.runs:
        folder = RunFolder(path / entry.run)
        if folder.info.exists():
            verdicts.append(verify_run_folder(folder.path))
        elif folder.path.exists() and any(folder.path.iterdir()):
            missing = folder.damaged(folder.info, "is missing")
            verdicts.append(Verdict(folder.path, "damaged", 1, (missing,)))
    return verdicts
