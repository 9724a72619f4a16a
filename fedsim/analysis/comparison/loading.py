"""Reading the runs to compare from the folders that a user names."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsim.analysis.comparison.facts import RunFacts, compared_scenario, read_facts
from fedsim.analysis.comparison.reference import REFERENCE, Reference, read_reference
from fedsim.errors import UserError, raise_all
from fedsim.runs.folder import RunFolder, Status, require_same
from fedsim.runs.records import RUN, SWEEP_SCENARIO, answer_of, is_sweep, read_sweep
from fedsim.runs.run import Run
from fedsim.runs.tables import INDEX, read_index
from fedsim.vocabulary.formatting import NAMED, format_command, format_names

PathLike = str | os.PathLike[str]
PAGE = "compare.html"
"""Name of a comparison's page in its folder."""
_UNFINISHED = {Status.INTERRUPTED: "was interrupted", Status.RUNNING: "is in progress"}


@dataclass(frozen=True)
class LeftOut:
    """A run that is left out of the comparison.

    Attributes:
        path: its folder.
        reason: why.
        scenario: the resolved scenario, if there is one.
        has_failed: whether it failed, so that resuming it would not help.
    """

    path: Path
    reason: str
    scenario: dict[str, Any] | None
    has_failed: bool = False


Loaded = tuple[tuple[RunFacts, ...], tuple[LeftOut, ...], Reference | None]
"""Complete runs, the other runs, and a paper's figures if a folder has them."""


def load(
    paths: Iterable[PathLike | Run], on_progress: Callable[[int, int], None] | None = None
) -> Loaded:
    """Read runs, each once.

    Args:
        paths: run folders, folders of sweeps, folders that contain run folders, or runs.
        on_progress: called with the number of runs read and of all runs.
    """
    paths = list(paths)
    wrong = [path for path in paths if not isinstance(path, str | os.PathLike | Run)]
    if wrong or not paths:
        raise UserError(
            f"{wrong[0]!r} is not a run" if wrong else "no runs are given",
            where="argument paths",
            hint="give runs, sweeps or their folders, such as 'runs/quickstart-seed0'",
        )
    named = [path.path if isinstance(path, Run) else Path(path) for path in paths]
    folders: dict[Path, Path] = {}
    hint = "give run folders, the folder of a sweep, or the log of a real run"
    words = {True: "is a file, not a folder", False: "no such folder"}
    missing = (path for path in named if not path.is_dir())
    raise_all(UserError(words[path.exists()], where=path, hint=hint) for path in missing)
    for path in named:
        for folder in _run_folders(path, several=len(named) > 1):
            folders.setdefault(folder.resolve(), folder)

    record = functools.cache(answer_of)

    @functools.cache
    def variants(sweep: Path) -> dict[str, str]:
        entries = record(sweep)[1].get("runs", ())
        return {each["run"]: str(each["values"].get("variant", "")) for each in entries}

    @functools.cache
    def errors(sweep: Path) -> dict[str, str]:
        """The errors that occurred before the folder of a run was created."""
        if not (sweep / f"{INDEX}.parquet").exists():
            return {}
        index = read_index(sweep, record(sweep)[1])
        return dict(zip(index["run"], index["error"], strict=True))

    runs: list[RunFacts] = []
    left_out: list[LeftOut] = []
    sections: dict[str, dict[str, Any]] = {}
    for number, path in enumerate(folders.values()):
        if on_progress is not None:
            on_progress(number, len(folders))
        answer, content, begin = record(path.parent)
        name = f"{begin}{path.name}"
        if not RUN.is_in(path):
            error = errors(path.parent).get(path.name)
            reason = "is missing" if name in content.get("complete", {}) else "was not started"
            left_out.append(LeftOut(path, _failed(error) if error else reason, None))
            continue
        require_same(answer, content, name)
        run = Run(RunFolder(path))
        if run.status is Status.COMPLETE:
            variant = variants(path.parent).get(path.name, "")
            runs.append(replace(read_facts(run, sections), variant=variant))
        else:
            has_failed = run.status is Status.FAILED
            error = run.info.get("error")
            reason = _failed(error) if has_failed else _UNFINISHED[run.status]
            scenario = None
            try:
                if run.folder.scenario.exists():
                    scenario = compared_scenario(run, run.scenario)
            except UserError as problem:
                reason += f" ({problem.where}: {problem.message})"
            left_out.append(LeftOut(path, reason, scenario, has_failed))
    first = next((facts for facts in runs if not facts.log), None)
    for number, facts in enumerate(runs):
        if facts.log:
            # It says nothing of its scenario, and stands beside the first run.
            scenario = {**(first or facts).scenario, "clock": facts.log}
            seed = (first or facts).seed
            runs[number] = replace(facts, scenario=scenario, seed=seed, variant=facts.log)
    if not runs:
        raise _nothing_to_compare(named, left_out)
    return tuple(runs), tuple(left_out), _reference(named)


def _nothing_to_compare(named: Sequence[Path], left_out: Sequence[LeftOut]) -> UserError:
    """The error for runs none of which is complete: the reasons, and how to finish the first one."""
    message = "there is no complete run to compare"
    if not left_out:
        return UserError(message)
    first, sweep = left_out[0], left_out[0].path.parent
    if first.has_failed:
        remedy = "fix the cause and run it again"
    elif first.reason == _UNFINISHED[Status.RUNNING]:
        remedy = f"wait until it is complete: {format_command('watch', first.path)}"
    elif is_sweep(sweep):
        again = format_command("sweep", sweep / SWEEP_SCENARIO, "-o", sweep)
        remedy = f"repeat the sweep with its options: {again}"
    else:
        remedy = f"finish it: {format_command('resume', first.path)}"
    where = format_names([str(path) for path in named], NAMED)
    return UserError(message, where=where, hint=f"{first.path} {first.reason}; {remedy}")


def _run_folders(path: Path, *, several: bool) -> Iterator[Path]:
    if RUN.is_in(path):
        yield path
    elif is_sweep(path):
        yield from (path / entry["run"] for entry in read_sweep(path)["runs"])
    else:
        _, content, begin = answer_of(path)
        names = {item.parent.name for item in path.glob("*/run.json")}
        names |= {
            name.removeprefix(begin)
            for name in content.get("complete", ())
            if begin and name.startswith(begin)
        }
        folders = [path / name for name in sorted(names)]
        # 'runs/*' also matches the comparison that an earlier command wrote there.
        if not folders and not (several and (path / PAGE).is_file()):
            RunFolder(path).require_intact_info()
            raise UserError(
                "the folder contains no run",
                where=path,
                hint="give run folders, or the folder of a sweep",
            )
        yield from folders


def _failed(error: str | None) -> str:
    return f"failed ({(error or 'unknown error').splitlines()[0]})"


def _reference(paths: Iterable[Path]) -> Reference | None:
    for path in paths:
        folders = [path]
        if is_sweep(path):
            scenario = read_sweep(path)["scenario"]
            folders += [Path(scenario).parent] if scenario else []
        for folder in folders:
            if (folder / REFERENCE).is_file():
                return read_reference(folder / REFERENCE)
    return None
