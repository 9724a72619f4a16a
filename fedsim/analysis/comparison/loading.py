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
from fedsim.runs.folder import Status
from fedsim.runs.listing import Member, Runs, status_of
from fedsim.runs.records import DECISION, FORECAST, RUN, SWEEP_SCENARIO, is_sweep, read_sweep
from fedsim.runs.run import Run
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
    members: dict[Path, Member] = {}
    runs_in = functools.cache(Runs)
    hint = "give runs, sweeps, folders of them, or the log of a real run"
    words = {True: "is a file, not a folder", False: "no such folder"}
    missing = (path for path in named if not path.is_dir())
    raise_all(UserError(words[path.exists()], where=path, hint=hint) for path in missing)
    for path in named:
        if RUN.is_in(path):
            members.setdefault(path.resolve(), runs_in(path.parent).member(path.name))
        # 'runs/*' also matches decisions, forecasts, and the comparison that an earlier command wrote there.
        elif (
            is_sweep(path)
            or len(named) == 1
            or (
                not any(record.is_in(path) for record in (DECISION, FORECAST))
                and (not (path / PAGE).is_file() or any(path.glob("**/run.json")))
            )
        ):
            for member in _members(path, runs_in):
                members.setdefault(member.path.resolve(), member)

    runs: list[RunFacts] = []
    left_out: list[LeftOut] = []
    sections: dict[str, dict[str, Any]] = {}
    for number, member in enumerate(members.values()):
        if on_progress is not None:
            on_progress(number, len(members))
        path, folder = member.path, None
        reason = _failed(member.failure) if member.failure else "was not started"
        try:
            folder = member.opened()
        except UserError as problem:
            if os.path.exists(path / RUN.file):
                raise
            reason = f"is {status_of(problem)} ({RUN.file}: {problem.message})"
        if folder is None:
            left_out.append(LeftOut(path, reason, None))
            continue
        run = Run(folder)
        if run.status is Status.COMPLETE:
            variant = str(member.entry.get("values", {}).get("variant", ""))
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


def _members(folder: Path, runs_in: Callable[[Path], Runs]) -> Iterator[Member]:
    """The runs below a folder, those of sweeps included."""
    for member in runs_in(folder):
        yield from _members(member.path, runs_in) if is_sweep(member.path) else [member]


def _nothing_to_compare(named: Sequence[Path], left_out: Sequence[LeftOut]) -> UserError:
    """The error for runs none of which is complete: the reasons, and how to finish the first one."""
    message = "there is no complete run to compare"
    where = format_names([str(path) for path in named], NAMED)
    if not left_out:
        hint = "give runs, sweeps, or folders of them"
        return UserError(message, where=where, hint=hint)
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
    return UserError(message, where=where, hint=f"{first.path} {first.reason}; {remedy}")


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
