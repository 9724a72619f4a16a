"""Runs a sweep: plans its runs, performs those that are not complete, and keeps the index."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedsim.composition.build import check_scenario
from fedsim.composition.shared import Shared
from fedsim.errors import UserError, UserErrors, raise_all, without_numbers
from fedsim.files.durable import TEMPORARY_PREFIX
from fedsim.processes.cluster import usable_cores
from fedsim.processes.stopping import Grace, grace
from fedsim.runs.folder import Status
from fedsim.runs.listing import Runs
from fedsim.runs.progress import left_text
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.own_code import write_sources
from fedsim.sweeps.cluster import Ray, Slurm, run_on_ray, run_on_slurm
from fedsim.sweeps.folder import Sweep, claimed, no_longer_swept, record, write_index
from fedsim.sweeps.local import Shares, run_here, run_on_pool
from fedsim.sweeps.plan import PlannedRun, plan_runs
from fedsim.sweeps.task import Result, Task, is_done
from fedsim.vocabulary.formatting import format_counted

Engine = Ray | Slurm | None
"""Where runs take place: a Ray cluster, an array of Slurm, or processes of this machine (None)."""
_INDEX_S = 5.0
CHECK_S = 10.0
"""Wall seconds after which no further variant is checked before the first run; it is checked when it runs."""


@dataclass(frozen=True)
class SweepProgress:
    """Progress of a sweep.

    Attributes:
        runs: number of runs.
        complete: complete runs, including those of earlier calls.
        failed: failed runs.
        share: progress over all runs, including those in progress; 0 to 1.
        failure: the run that has just failed, with its error.
        failed_alike: name of an earlier run that failed with the same error; empty if there is none.
        active: folders of the runs in progress, each with its share, 0 to 1.
        warnings: those of the run that has just ended that no run before it had, perhaps with other numbers.
    """

    runs: int
    complete: int
    failed: int
    share: float
    failure: Result | None = None
    active: Mapping[Path, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    failed_alike: str = ""

    def text(self, left_s: float | None = None) -> str:
        """The progress in words; ``left_s`` is the estimated time left, in seconds."""
        text = f"{self.complete} of {format_counted(self.runs, 'run')}"
        if self.failed:
            text += f", {self.failed} failed"
        return text + left_text(left_s)


@dataclass(frozen=True)
class SweepOutcome:
    """The outcome of a sweep.

    Attributes:
        sweep: its folder.
        ran: number of runs that were run or resumed.
        skipped: number of runs that were already complete.
        failures: runs that failed, with their errors.
        no_longer_swept: names of the folders of runs in the sweep's folder that an earlier call made and this one
            does not contain; readers of the sweep leave them out.
        warned: names of the runs with warnings.
    """

    sweep: Sweep
    ran: int
    skipped: int
    failures: tuple[Result, ...]
    no_longer_swept: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()


def default_folder(loaded: LoadedScenario, answer: str = "sweep") -> Path:
    """The default folder of a sweep or another answer: ``runs/<name>-<answer>`` in the working directory."""
    return Path("runs") / f"{loaded.scenario.name}-{answer}"


def sweep(
    loaded: LoadedScenario,
    output: Path | None = None,
    *,
    timing_only: bool = False,
    jobs: int | None = None,
    engine: Engine = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
) -> SweepOutcome:
    """Perform every run of a sweep that is not complete.

    A run that was killed is resumed, and one that failed is tried again. A run that fails does not stop the others.

    The arguments are those of :func:`fedsim.sweep`, read.
    """
    planned = plan_runs(loaded)
    path = output if output is not None else default_folder(loaded)
    if engine is None:  # Other machines may have the data and the GPU that this one lacks.
        waiting = [run for run in reversed(planned) if not is_done(path / run.name)]
        names = [run.name.removesuffix(f"seed{run.seed}").rstrip("_") for run in waiting]
        variants = dict(zip(names, (run.loaded for run in waiting), strict=True))
        check_variants(variants, timing_only=timing_only)
    with claimed(path):
        planned = record(path, loaded, planned, timing_only=timing_only)
        write_own_code(path, [run.loaded for run in planned])
        waiting = [run for run in planned if not is_done(path / run.name)]
        tasks = [
            Task.of(number, path / run.name, run.loaded, timing_only=timing_only)
            for number, run in enumerate(waiting)
        ]
        tally = _Tally(path, planned, tasks, on_progress or (lambda _: None))
        perform(path, tasks, tally.shares, tally.add, tally.write_index, jobs, engine)
    swept = Sweep(path)
    for run in Runs(path):
        run.opened()
    return SweepOutcome(
        swept,
        ran=len(tasks),
        skipped=len(planned) - len(tasks),
        failures=tuple(tally.failures.values()),
        no_longer_swept=tuple(no_longer_swept(path, planned)),
        warned=tuple(tally.warned),
    )


def check_variants(variants: Mapping[str, LoadedScenario], *, timing_only: bool = False) -> None:
    """Check before the first run that the parts of each variant fit together, and that its clients can do the work."""
    until, shared, problems = time.monotonic() + CHECK_S, Shared(), dict[str, UserError]()
    for name, loaded in reversed(list(variants.items())):
        if time.monotonic() > until:
            break
        try:
            check_scenario(loaded, shared, timing_only=timing_only)
        except UserError as error:
            for one in error.errors if isinstance(error, UserErrors) else (error,):
                lines = [one.hint, name and f"this is the variant {name}"]
                hint = "\n  ".join(filter(None, lines))
                problems.setdefault(str(one), UserError(one.message, where=one.where, hint=hint))
    raise_all(problems.values())


def write_own_code(path: Path, scenarios: Sequence[LoadedScenario]) -> None:
    """Write the source of classes from Python into a folder of runs, from which each run imports them."""
    sources: dict[str, str] = {}
    for loaded in scenarios:
        for part in loaded.parts():
            if part.user and part.user.file is None and part.user.source is None:
                name = part.name.rpartition(":")[2]
                raise UserError(
                    f"the source of {name} cannot be read, so the runs of a sweep cannot import it",
                    hint="put the class into a file, and name it file.py:ClassName in the scenario",
                )
        sources |= loaded.sources()
    write_sources(path, sources)


def perform(
    path: Path,
    tasks: Sequence[Task],
    shares: Shares,
    add: Callable[[Result | None], None],
    save: Callable[[], object] = lambda: None,
    jobs: int | None = None,
    engine: Engine = None,
) -> None:
    """Perform tasks whose folders are in ``path``; after an interrupt, those in progress save their work and end.

    Args:
        path: an existing folder.
        tasks: the runs; their numbers are positions in ``shares``.
        shares: their progress.
        add: called with each result, and with None if time has passed without one.
        save: called at the end, also after an interrupt.
        jobs, engine: as for :func:`sweep`.
    """
    if not tasks:
        save()
        return
    if engine is None:
        jobs = min(len(tasks), jobs if jobs is not None else usable_cores())
    period = Grace(raises=False)
    try:
        with (
            # A run in this process notes signals itself.
            grace(period) if engine is None and jobs != 1 else contextlib.nullcontext(),
            tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=path) as folder,
            # Closed immediately after an interrupt, so that no process keeps running.
            contextlib.ExitStack() as stack,
        ):
            if isinstance(engine, Ray):
                results = run_on_ray(tasks, jobs, engine)
            elif isinstance(engine, Slurm):
                results = run_on_slurm(tasks, jobs, path.resolve(), engine)
            elif jobs == 1:
                results = run_here(tasks, shares, lambda: add(None))
            else:
                assert jobs is not None
                results = run_on_pool(tasks, jobs, shares, Path(folder), period)
            for result in stack.enter_context(contextlib.closing(results)):
                if result is not None:
                    shares.values[result.task.number] = 1.0
                add(result)
                period.stop_if_requested()
    finally:
        with grace(period):
            save()
    period.stop_if_requested()


class _Tally:
    def __init__(
        self,
        path: Path,
        planned: Sequence[PlannedRun],
        tasks: Sequence[Task],
        on_progress: Callable[[SweepProgress], None],
    ) -> None:
        self.shares = Shares(len(tasks))
        self.failures: dict[str, Result] = {}
        self.warned: list[str] = []
        self._warnings: set[str] = set()
        self._first_with: dict[str, str] = {}
        self._path, self._planned = path, planned
        self._before = self._complete = len(planned) - len(tasks)
        self._open = {task.folder.name: task for task in tasks}
        self._on_progress = on_progress
        self.write_index()
        self.add(None)

    def add(self, result: Result | None) -> None:
        failure, alike, fresh = None, "", list[str]()
        if result is not None:
            name = result.task.folder.name
            del self._open[name]
            if result.error is None:
                self._complete += 1
            else:
                failure = self.failures[name] = result
                first = self._first_with.setdefault(result.error, name)
                alike = first if first != name else ""
            if result.warnings:
                self.warned.append(name)
            for warning in result.warnings:
                key = without_numbers(warning)
                if key not in self._warnings:
                    self._warnings.add(key)
                    fresh.append(f"warning: {warning}\n  in {name}; not repeated for other runs")
        if time.monotonic() - self._written_at >= _INDEX_S:
            self.write_index()
        active = {
            self._path / name: max(0.0, self.shares.values[task.number])
            for name, task in self._open.items()
            if self.shares.started(task) or name in self._running
        }
        self._on_progress(
            SweepProgress(
                len(self._planned),
                self._complete,
                len(self.failures),
                share=(self._before + self.shares.in_progress()) / len(self._planned),
                failure=failure,
                active=active,
                warnings=tuple(fresh),
                failed_alike=alike,
            )
        )

    def write_index(self) -> None:
        errors = {name: result.error or "" for name, result in self.failures.items()}
        statuses = write_index(self._path, self._planned, errors)
        self._running = {name for name, status in statuses.items() if status == Status.RUNNING}
        self._written_at = time.monotonic()
