"""The Python interface: run, resume, load, ls, what_if, sweep, compare, decide, forecast and read_scenario."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from fedsim.analysis.run import Run, load_run
from fedsim.composition.replay import AGGREGATIONS, DISPATCHES, Replay
from fedsim.composition.replay import replay as replay_beginning
from fedsim.composition.run import OnProgress, default_folder, execute
from fedsim.composition.run import resume as resume_run
from fedsim.composition.what_if import what_if as rerun
from fedsim.errors import argument_error
from fedsim.runs.listing import listed
from fedsim.runs.notebook import notebook_bar
from fedsim.scenario.loading import LoadedScenario, load_scenario, load_scenario_dict
from fedsim.scenario.overrides import from_python
from fedsim.units import parse_duration_s

if TYPE_CHECKING:
    from fedsim.analysis.comparison import Comparison
    from fedsim.decisions import Decision
    from fedsim.decisions.forecast import Forecast
    from fedsim.decisions.runs import Progress
    from fedsim.sweeps import Sweep
    from fedsim.sweeps.cluster import Ray, Slurm
    from fedsim.sweeps.execution import SweepProgress
PathLike = str | os.PathLike[str]


class ReadScenario(LoadedScenario):
    """A checked scenario, whose beginning can be tried."""

    def replay(self, dispatches: int = DISPATCHES, aggregations: int = AGGREGATIONS) -> Replay:
        """Run the beginning three times, in two processes and once resumed in the middle; this takes a few seconds.

        Args:
            dispatches: the beginning has at least this many dispatches.
            aggregations: and at least this many server updates, unless the run ends before.

        Raises:
            UserError: timeline, tables or models differ; the message names the first difference and the part that
                caused it.
        """
        return replay_beginning(self, dispatches, aggregations)


def read_scenario(
    scenario: PathLike | Mapping[str, Any] | LoadedScenario,
    overrides: Iterable[str] | Mapping[str, Any] = (),
) -> ReadScenario:
    """A loaded scenario from a file, from a mapping with the same content, or one that is already loaded.

    Its function ``replay`` tests whether the results of your own parts can be repeated.
    """
    parsed = from_python(overrides)
    if isinstance(scenario, LoadedScenario):
        loaded = scenario.changed(parsed) if parsed else scenario
    elif isinstance(scenario, Mapping):
        loaded = load_scenario_dict(scenario, Path.cwd(), overrides=parsed)
    elif isinstance(scenario, str | os.PathLike):
        loaded = load_scenario(Path(scenario), overrides=parsed)
    else:
        raise argument_error(
            "scenario",
            scenario,
            "a file, a name or a mapping",
            'give a YAML file, a built-in scenario such as "quickstart", or a dictionary',
        )
    return ReadScenario(loaded.scenario, loaded.path, loaded.source, loaded.reading)


@contextmanager
def _continued(
    folder: Path, call: str, title: str, on_progress: Callable[[Any], None] | None
) -> Iterator[Callable[[Any], None] | None]:
    """What shows progress: ``on_progress``, or the bar of a notebook; an interruption names the call that continues."""
    try:
        with notebook_bar(title, shown=on_progress is None) as bar:
            yield on_progress or bar
    except KeyboardInterrupt as error:
        if folder.is_dir():
            error.add_note(f"continue with: {call}")
        raise


def run(
    scenario: PathLike | Mapping[str, Any] | LoadedScenario,
    output: PathLike | None = None,
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    overwrite: bool = False,
    timing_only: bool = False,
    on_progress: OnProgress | None = None,
) -> Run:
    """Run a scenario into a run folder.

    Args:
        scenario: a YAML file, the name of a built-in scenario (``"quickstart"``), or nested mappings with the same
            content as a file (relative paths then refer to the working directory), in which a part may also be a class,
            ``{"method": MyMethod}`` or ``{"method": {"name": MyMethod, "beta": 0.9}}``; for a metric or model, a
            function; or an instance, if it is built from its parameters alone, as a data set or a metric is.
        output: the run folder; ``runs/<name>-seed<seed>`` if None.
        overrides: values by dotted path, such as ``{"training.optimizer.lr": 0.1, "server.method": MyMethod}``, or
            strings as for the option ``-s``, such as ``["training.optimizer.lr=0.1"]``.
        overwrite: replace an existing run; a failed one is always replaced.
        timing_only: simulate time only, without training.
        on_progress: called several times a second during the run. If it is None, a notebook shows a progress bar.

    Returns:
        The finished run; its tables are pandas DataFrames.

    Raises:
        UserError: the scenario or the folder cannot be used; the message says where and why.
    """
    chosen = None if output is None else Path(output)
    loaded = read_scenario(scenario, overrides)
    folder = chosen or default_folder(loaded)
    call, name = f"fedsim.resume({str(folder)!r})", loaded.scenario.name
    with _continued(folder, call, name, on_progress) as shown:
        return execute(
            loaded,
            folder,
            overwrite=overwrite,
            timing_only=timing_only,
            on_progress=shown,
        )


def resume(
    path: PathLike,
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    on_progress: OnProgress | None = None,
) -> Run:
    """Finish a run that was killed or interrupted; the result is bit for bit that of an uninterrupted run.

    Args:
        path: the run folder.
        overrides: settings to change, such as ``{"training.threads": 2}``: ``logging``, and ``workers``, ``threads``,
            ``memory`` and ``cuda_graphs`` of ``training``, which never change a result.
        on_progress: as for :func:`run`.

    Raises:
        UserError: the folder contains no run or a damaged one, or an override is not allowed.
    """
    folder = Path(path)
    call = f"fedsim.resume({str(folder)!r})"
    with _continued(folder, call, folder.name, on_progress) as shown:
        return resume_run(folder, from_python(overrides), on_progress=shown)


def load(path: PathLike) -> Run:
    """Open a run folder.

    Raises:
        UserError: it is not a run folder, or a damaged one.
    """
    return load_run(path)


def what_if(
    run: PathLike | Run,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    *,
    without_clients: str | None = None,
    output: PathLike | None = None,
    on_progress: OnProgress | None = None,
) -> pd.DataFrame:
    """Run a complete run again with a change and the same random numbers, and compare the main figures.

    Args:
        run: the run, or its folder.
        overrides: changes by dotted path, as for :func:`run`; a text such as ``"2x"`` is a factor on the present value.
        without_clients: clients to keep out: ``"slowest:5%"`` by seconds per local step, or numbers, ``"3,17"``.
        output: folder of the new run; that of the run with ``-what-if`` if None.
        on_progress: as for :func:`run`.

    Returns:
        One row per main figure: ``figure``, ``kind`` (how it is written), ``before`` and ``after``; NaN for a target
        that was not reached.

    Raises:
        UserError: the change cannot be made.
    """
    before = run if isinstance(run, Run) else load_run(run)
    folder = None if output is None else Path(output)
    with notebook_bar(before.path.name, shown=on_progress is None) as bar:
        changes = from_python(overrides)
        return rerun(before, changes, without_clients, folder, on_progress or bar)[1]


def ls(folder: PathLike = "runs", target: str | None = None) -> pd.DataFrame:
    """The runs and sweeps below a folder; of a sweep, its runs.

    Args:
        folder: the folder.
        target: a target, such as ``"accuracy=0.9"``; the scenarios' own if None.

    Returns:
        One row each: ``path``, ``statuses`` (number of runs by status), ``scenario``, ``methods``, ``seeds``,
        ``times_s`` (simulated seconds at which each run reached a target, by metric and value; NaN if it did not),
        ``tags``, ``changed`` (seconds since 1970) and ``metrics`` (what was measured, if there is a target).

    Raises:
        UserError: there is no such folder, or it contains no run.
    """
    from fedsim.analysis.comparison.targets import Target

    goal = None if target is None else Target.parse(target)
    rows = listed(Path(folder), None if goal is None else {goal.metric: goal.value})
    return pd.DataFrame([vars(row) for row in rows])


def compare(
    paths: Iterable[PathLike | Run | Sweep] | PathLike | Run | Sweep,
    *,
    targets: Iterable[str] = (),
    baseline: str | None = None,
    settings: Iterable[str] = (),
) -> Comparison:
    """Compare runs: tables as pandas DataFrames, figures, and a page.

    Args:
        paths: runs, sweeps, their folders, or logs of real runs; one or several.
        targets: values of metrics to reach, such as ``"accuracy=0.9"``; by default those of the scenarios.
        baseline: variant to which times are relative; the first if None.
        settings: keys of the server section, such as ``"server.selection.cohort"``, whose values name settings instead
            of variants.

    Raises:
        UserError: a folder contains no run, no run is complete, there is no such baseline or metric, or not
            every variant was run with every value of a key in ``settings``.
    """
    from fedsim.analysis.comparison import compare as compare_runs
    from fedsim.calibration.logged_run import logs_as_runs

    with logs_as_runs(paths) as runs:
        return compare_runs(runs, targets=targets, baseline=baseline, settings=settings)


def sweep(
    scenario: PathLike | Mapping[str, Any] | LoadedScenario,
    output: PathLike | None = None,
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    timing_only: bool = False,
    jobs: int | None = None,
    engine: Literal["local", "ray", "slurm"] | Ray | Slurm = "local",
    until_halfwidth: float | None = None,
    metric: str | None = None,
    max_seeds: int = 30,
    on_progress: Callable[[SweepProgress], None] | None = None,
) -> Sweep:
    """Execute the runs of a scenario's sweep that are not complete yet.

    With more than one job, runs go to processes; these do not import the calling script.

    Args:
        scenario: as for :func:`run`, with a ``sweep`` section.
        output: the sweep's folder; ``runs/<name>-sweep`` if None.
        overrides: values by dotted path, as for :func:`run`.
        timing_only: simulate time only, without training, in every run.
        jobs: number of runs at a time; all cores if None; with 1, the runs happen in this process.
        engine: processes of this machine, a Ray cluster, or an array of Slurm: its name, or, with its settings, a
            ``fedsim.sweeps.Ray`` (address, GPUs per run) or ``fedsim.sweeps.Slurm`` (partition, time, memory).
        until_halfwidth: add seeds until the 95% interval of each variant's ratio to the baseline has this relative
            half-width, such as 0.05; ``precision.csv`` in the folder has the ratios.
        metric: quantity of these ratios: ``"time_to:accuracy=0.8"``, or ``"throughput"`` of timing-only runs.
        max_seeds: largest number of seeds for it.
        on_progress: called several times a second. If it is None, a notebook shows a progress bar.

    Returns:
        The sweep; ``failures`` says which runs failed and why.

    Raises:
        UserError: the sweep or an argument is invalid, or the folder cannot be used or holds a run of a different
            scenario, or one with training if ``timing_only`` (or the reverse).
    """
    from fedsim.sweeps import execution

    engine_settings = _engine_settings(jobs, engine)
    chosen = None if output is None else Path(output)
    loaded = read_scenario(scenario, overrides)
    folder = chosen or execution.default_folder(loaded)
    call, name = "the same call of fedsim.sweep", loaded.scenario.name
    with _continued(folder, call, name, on_progress) as shown:
        settings = {"timing_only": timing_only, "on_progress": shown, **engine_settings}
        if until_halfwidth is None and metric is None:
            done = execution.sweep(loaded, folder, **settings).sweep
        else:
            from fedsim.sweeps.precision import Precision, sweep_to_precision

            width = None if until_halfwidth is None else str(until_halfwidth)
            precision = Precision.parse(width, metric, max_seeds)
            done = sweep_to_precision(loaded, folder, precision, **settings)[0].sweep
    if done.failures:
        logging.getLogger("fedsim").warning("%r: .failures says why", done)
    return done


def _engine_settings(jobs: int | None, engine: Any) -> dict[str, Any]:
    """Where runs take place, as arguments of :func:`fedsim.sweeps.sweep`."""
    from fedsim.sweeps import Ray, Slurm

    if not isinstance(engine, Ray | Slurm):
        if engine not in ("local", "ray", "slurm"):
            raise argument_error("engine", engine, "'local', 'ray' or 'slurm'")
        engine = {"local": None, "ray": Ray(), "slurm": Slurm()}[engine]
    if jobs is not None and not (type(jobs) is int and jobs >= 1):
        raise argument_error(
            "jobs", jobs, "a whole number of at least 1", "leave it out to use all cores"
        )
    return {"jobs": jobs, "engine": engine}


def decide(
    scenario: PathLike | Mapping[str, Any] | LoadedScenario,
    over: Mapping[str, str | list[Any]],
    metric: str,
    output: PathLike | None = None,
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    limits: Mapping[str, str] | None = None,
    objectives: Iterable[str] = ("time",),
    budget: str | float | None = None,
    settings: int = 60,
    seeds: int = 8,
    jobs: int | None = None,
    engine: Literal["local", "ray", "slurm"] | Ray | Slurm = "local",
    on_progress: Callable[[Progress], None] | None = None,
) -> Decision:
    """Find the best settings of a scenario; continues what is in the folder.

    Args:
        scenario: as for :func:`run`.
        over: what varies, by dotted path: a range such as ``"1min..1h"``, or a list of values.
        metric: what is wanted: ``"time_to:accuracy=0.8"``; without training, ``"time_to:rounds=50"``,
            ``"time_to:arrivals=500"`` or ``"throughput"``.
        output: the folder; ``runs/<name>-decide`` if None.
        overrides: values by dotted path, as for :func:`run`.
        limits: the largest acceptable ``time``, ``bytes``, ``energy``, ``compute``, ``gco2e`` or ``cost``, such as
            ``{"bytes": "2GB"}``.
        objectives: which of these to minimize until the target; several give the Pareto front.
        budget: wall time for everything, such as ``"20min"``, earlier calls included; by default, ``settings`` decides.
        settings: the largest number of settings to try.
        seeds: number of fresh seeds with which the choice is measured.
        jobs, engine: as for :func:`sweep`.
        on_progress: called several times a second. If it is None, a notebook shows a progress bar.

    Returns:
        The decision: ``sentence``, ``scenario``, ``table`` and ``settings``.

    Raises:
        UserError: the question cannot be answered, no setting reaches the target, or the folder has another question.
    """
    from fedsim.decisions import deciding
    from fedsim.decisions.goal import Goal, Limit, parse_objectives
    from fedsim.decisions.space import Choices, parse_dimension
    from fedsim.sweeps.execution import default_folder

    loaded = read_scenario(scenario, overrides)
    folder = default_folder(loaded, "decide") if output is None else Path(output)
    dimensions = [
        Choices(path, values) if isinstance(values, list) else parse_dimension(f"{path}={values}")
        for path, values in over.items()
    ]
    most = [Limit.parse(f"{name}={value}") for name, value in (limits or {}).items()]
    call, name = "the same call of fedsim.decide", loaded.scenario.name
    with _continued(folder, call, name, on_progress) as shown:
        return deciding.decide(
            loaded,
            folder,
            dimensions,
            Goal.parse(metric),
            limits=most,
            objectives=parse_objectives(list(objectives)),
            budget_s=math.inf if budget is None else parse_duration_s(budget),
            most=settings,
            seeds=seeds,
            on_progress=shown or (lambda _: None),
            **_engine_settings(jobs, engine),
        )


def forecast(
    scenario: PathLike | Mapping[str, Any] | LoadedScenario,
    target: str,
    output: PathLike | None = None,
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    runs: int = 19,
    confidence: float = 0.9,
    same_devices: bool = False,
    jobs: int | None = None,
    engine: Literal["local", "ray", "slurm"] | Ray | Slurm = "local",
    on_progress: Callable[[Progress], None] | None = None,
) -> Forecast:
    """Forecast when a scenario reaches a target.

    Args:
        scenario: as for :func:`run`.
        target: ``"accuracy=0.8"``; without training, ``"rounds=50"`` or ``"arrivals=500"``.
        output: the folder; ``runs/<name>-forecast`` if None. Runs that are in it are read.
        overrides: values by dotted path, as for :func:`run`.
        runs: number of runs; 19 are the fewest for 90%.
        confidence: probability of the interval.
        same_devices: whether the real devices are those of the trace; by default, they are others of the same
            population.
        jobs, engine: as for :func:`sweep`.
        on_progress: called several times a second. If it is None, a notebook shows a progress bar.

    Returns:
        The forecast: ``sentence``, ``interval``, ``probability``, ``times_s`` and ``table``.

    Raises:
        UserError: the scenario cannot be run, or a run failed.
    """
    from fedsim.analysis.comparison.targets import Target
    from fedsim.decisions import forecast as forecasting
    from fedsim.sweeps.execution import default_folder

    loaded = read_scenario(scenario, overrides)
    folder = default_folder(loaded, "forecast") if output is None else Path(output)
    call, name = "the same call of fedsim.forecast", loaded.scenario.name
    with _continued(folder, call, name, on_progress) as shown:
        return forecasting.forecast(
            loaded,
            folder,
            Target.parse(target),
            runs=runs,
            confidence=confidence,
            same_devices=same_devices,
            on_progress=shown or (lambda _: None),
            **_engine_settings(jobs, engine),
        )
