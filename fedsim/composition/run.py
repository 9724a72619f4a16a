"""Runs a scenario into a run folder, and finishes a run that was interrupted.

:func:`execute` and :meth:`Execution.run` are the steps of a run from top to bottom, numbered as in
``docs/architecture.md``.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedsim.analysis.run import Run
from fedsim.composition.build import build, check
from fedsim.composition.closing import spent, write_population
from fedsim.composition.distributed import claimed, follow, joined
from fedsim.composition.edges import write_edges
from fedsim.composition.extras import (
    Stopwatch,
    TimedPlane,
    Trackers,
    flows,
    model_keeper,
    rare_garbage_collection,
)
from fedsim.composition.planes import build_learner, build_server
from fedsim.composition.resuming import load_original, require_simulated, timeline_differs
from fedsim.composition.rules.finished import FINISHED, SHOWN_BY_REPORT, FinishedRun
from fedsim.composition.shared import Shared
from fedsim.composition.world import World
from fedsim.errors import ProcessLost, UserError, raise_all
from fedsim.files.durable import is_disk_full
from fedsim.parts.component import users_line
from fedsim.processes.launch import follows
from fedsim.processes.stopping import Grace, Stopped, grace
from fedsim.randomness import unseeded, watched
from fedsim.runs.checkpoint import save_model
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.invariants import verify_run
from fedsim.runs.progress import Progress as Progress
from fedsim.runs.records import RUN, environment
from fedsim.runs.schema import PARTITION
from fedsim.runs.tables import from_columns, write_parquet
from fedsim.runs.verification import verify_folder
from fedsim.runs.writer import RunWriter
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import share_done
from fedsim.scenario.overrides import Override
from fedsim.scenario.own_code import write_sources
from fedsim.simulation.simulation import Live
from fedsim.simulation.updates import Ended, dispatch_columns, recorded
from fedsim.units import NS_PER_S
from fedsim.vocabulary.formatting import format_count, format_duration
from fedsim.vocabulary.metrics import DEFINITIONS_KEY, to_document
from fedsim.vocabulary.timeline import Evaluate, TimelineDiffers

if TYPE_CHECKING:
    from fedsim.learning.learner import Learner
    from fedsim.learning.workers.distributed import Ranks

CHECKPOINT_INTERVAL_S = 30.0
"""Most wall seconds between two checkpoints, unless a single wave of training takes longer."""
# Wall seconds that a checkpoint may take; the interval after one that takes longer is longer by the same factor.
_CHECKPOINT_S = 0.3
_WALL = ("wall_s", "wall_learning_s", "wall_time_plane_s")
"""Entries of ``run.json``: all wall seconds, and those of the two planes. Those of a resumed run are sums."""


class Deployment(Live, Protocol):
    """Clients that are not simulated, for a whole run; ``info`` are further entries of ``run.json``."""

    info: Mapping[str, Any]

    def open(self, folder: RunFolder) -> None:
        """Open its files in the run folder, and read what an interrupted run has left there."""

    def joined(self, world: World) -> World:
        """The world of the run, with what the server knows about these clients in place of simulated devices."""

    def learner(self, world: World, **options: Any) -> Learner:
        """The learning plane, to which the clients' updates come."""

    def finish(self, columns: Callable[[Sequence[Ended]], Mapping[str, Any]]) -> None:
        """Write its tables; ``columns`` makes those of ``dispatches``."""


OnProgress = Callable[[Progress], None]
OnStart = Callable[[str], None]
OnWarning = Callable[[UserError], None]


def log_warning(warning: UserError) -> None:
    """Write a warning to the log (logger ``fedsim``)."""
    logging.getLogger("fedsim").warning("warning: %s", warning)


def default_folder(loaded: LoadedScenario) -> Path:
    """The default run folder: ``runs/<name>-seed<seed>`` in the working directory."""
    return Path("runs") / f"{loaded.scenario.name}-seed{loaded.scenario.seed}"


@rare_garbage_collection()
def execute(
    loaded: LoadedScenario,
    output: Path | None = None,
    *,
    overwrite: bool = False,
    timing_only: bool = False,
    shared: Shared | None = None,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
    on_warning: OnWarning = log_warning,
    live: Deployment | None = None,
) -> Run:
    """Run a scenario.

    Args:
        output, overwrite, timing_only, on_progress: as for :func:`fedsim.run`.
        loaded, shared, threads: as for :func:`~fedsim.composition.build.build`.
        on_warning: called with each warning: about the scenario before the run begins, about the run at its end.
        live: the clients, if they are not simulated.
    """
    began = time.perf_counter()
    if loaded.scenario.sweep is not None:
        raise UserError(
            "this scenario describes a sweep of many runs",
            where=f"{loaded.path or 'scenario'}: sweep",
            hint="use fedsim sweep (in Python: fedsim.sweep()), or leave the section out: -s sweep=null",
        )
    folder = RunFolder(output if output is not None else default_folder(loaded))
    with contextlib.ExitStack() as stack:
        ranks = stack.enter_context(joined(loaded.scenario))
        stack.enter_context(watched(lambda where: on_warning(unseeded(where))))
        # Steps 2 to 7. The world is built and checked; a mistake is found before anything is written.
        world = build(loaded, shared, timing_only=timing_only, threads=threads)
        warnings = check(world)
        if shared is None:
            world.devices.release_traces()
        if ranks is not None and ranks.number:
            if not ranks.values(True)[0]:
                message = "rank 0 cannot use the run folder, and says why"
                raise UserError(message, where="training.workers")
            follow(world, ranks)
            stack.close()  # Rank 0 has then written the run.
            return Run(folder)
        for warning in warnings:
            on_warning(warning)
        # Step 8. The run folder is claimed, and says what is run.
        stack.enter_context(loaded.locating_errors())
        stack.enter_context(claimed(folder, ranks, overwrite=overwrite))
        info = _first_info(world, folder, warnings)
        folder.begin(loaded.resolved_yaml(), info if live is None else {**info, **live.info})
        write_sources(folder.path, loaded.sources())
        # Steps 9 and 10. Learner and server are built. After a mistake that appears only then, nothing is left behind.
        execution = Execution(
            world,
            folder,
            undo=folder.remove,
            on_progress=on_progress,
            on_warning=on_warning,
            began=began,
            ranks=ranks,
            live=live,
        )
        # Steps 11 and 12. The run takes place; its tables are completed, checked and reported.
        return execution.run()


def _first_info(world: World, folder: RunFolder, warnings: list[UserError]) -> dict[str, Any]:
    """The content of ``run.json`` when a run begins."""
    loaded, scenario = world.loaded, world.scenario
    info: dict[str, Any] = {
        "name": scenario.name,
        "seed": scenario.seed,
        "clients": world.task.clients,
        "method": scenario.server.method.name.rpartition(":")[2],
        "target": dict(scenario.stop.target),
        "tags": list(scenario.tags),
        "timing_only": not world.learns,
        "steps_ahead": world.method.steps_ahead(),
        "workers": scenario.training.workers.name,
        "user_code": loaded.user_code(),
        "data_files": loaded.data_files(),
        "folders": {"run": str(folder.path.resolve()), "project": str(loaded.folder)},
        **environment(),
    }
    if warnings:
        info["notes"] = [warning.message for warning in warnings]
    return info


@rare_garbage_collection()
def resume(
    path: Path,
    overrides: Sequence[Override | str] = (),
    *,
    shared: Shared | None = None,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
    on_start: OnStart = lambda _: None,
    live: Deployment | None = None,
) -> Run:
    """Finish a run that was killed or interrupted; the result is that of an uninterrupted run.

    The time plane is replayed from the start, which is cheap; training continues from the last checkpoint.

    Args:
        path: the run folder.
        overrides: values to change, by dotted path; see :data:`fedsim.composition.resuming.MAY_CHANGE`.
        shared, threads, on_progress: as in :func:`execute`.
        on_start: called with a sentence that says where the run continues.
        live: as in :func:`execute`.

    Raises:
        UserError: there is no such run, it is damaged, its scenario or code has changed, an override is not
            allowed, the clients were real nodes, or the simulation does not repeat the timeline up to the checkpoint.
    """
    began = time.perf_counter()
    folder = RunFolder(path)
    folder.read_info()
    with contextlib.ExitStack() as stack:
        if not follows(workers_of(path)):
            stack.enter_context(folder.reclaimed())
        info = folder.read_info()
        if info["status"] == Status.COMPLETE:
            if overrides:
                load_original(folder, info, overrides)
            on_start("the run is complete")
            run = Run(folder)
            raise_all(verify_folder(path).problems)
            if not folder.report.exists():
                run.report()  # The process was killed before it was written.
            return run
        if not folder.has_begun:
            raise UserError(
                "the run was killed before it began, so there is nothing to resume",
                where=path,
                hint="run its scenario again, with this folder as the output",
            )
        if live is None:
            require_simulated(info, path)
        loaded = load_original(folder, info, overrides)
        ranks = stack.enter_context(joined(loaded.scenario))
        timing_only = bool(info.get("timing_only"))
        world = build(loaded, shared, timing_only=timing_only, threads=threads)
        if shared is None:
            world.devices.release_traces()
        if ranks is not None and ranks.number:
            follow(world, ranks, checkpoint=folder.checkpoints(info).load())
            stack.close()
            return Run(folder)
        earlier = {name: float(info.get(name) or 0) for name in _WALL}
        folder.reopen(resumed=int(info.get("resumed", 0)) + 1)
        with folder.tables_aside() as put_tables_back:

            def undo() -> None:
                """Leave the run as the interruption did."""
                put_tables_back()
                RUN.write(folder.path, info)

            execution = Execution(
                world,
                folder,
                undo=undo,
                on_progress=on_progress,
                began=began,
                ranks=ranks,
                earlier=earlier,
                live=live,
            )
            on_start(execution.starting_point())
            try:
                return execution.run()
            except TimelineDiffers as error:
                undo()
                raise timeline_differs(error, loaded, folder) from None


def workers_of(path: Path) -> str:
    """The name of the workers of a run that has begun."""
    return str(RunFolder(path).read_info().get("workers"))


@dataclass(eq=False)
class Execution:
    """A run in progress; ``live``, ``on_progress`` and ``on_warning`` are as for :func:`execute`.

    Attributes:
        world, folder: what is run, and where.
        undo: called if the run cannot begin.
        began: instant of ``time.perf_counter``.
        ranks: the processes of the run, of which this is rank 0; None if there is only this one.
        earlier: wall seconds before the run was resumed; None for a new run.
    """

    world: World
    folder: RunFolder
    undo: Callable[[], object]
    on_progress: OnProgress | None
    began: float
    ranks: Ranks | None
    live: Deployment | None
    on_warning: OnWarning = log_warning
    earlier: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        folder, live = self.folder, self.live
        if live is not None:
            live.open(folder)
            self.world = live.joined(self.world)
        world = self.world
        self._spent_s = self.earlier or {}
        self._stop = world.scenario.stop.model_dump()
        self._checkpoints = folder.checkpoints(folder.read_info())
        self._reached: Mapping[str, Any] | None = None
        self._checkpointed_at = self._rested_at = time.monotonic()
        self._checkpoint_s = 0.0
        self._learning = Stopwatch()
        self._metrics: Mapping[str, float] = {}
        self._grace = Grace()
        self._trackers = Trackers()
        self._learner: Learner | None = None
        self._plane: TimedPlane | None = None
        top: dict[str, Any] = {"clients": world.task.clients}
        if world.edges is not None and (edges := world.edges.population) is not None:
            columns = partial(dispatch_columns, edges.power)
            top = {"clients": edges.clients, "edge_columns": columns}
        self.writer = RunWriter(folder, **recorded(world.population), **top)
        try:
            if world.learns:
                self._learner = self._make_learner()
                self._plane = TimedPlane(self._learner, self._learning)
            self._simulation = build_server(world, self._plane, self.writer, self._on_update, live)
        except BaseException as error:
            self.writer.close()
            if isinstance(error, Exception):
                self.undo()
            raise

    def run(self) -> Run:
        """Simulate, train, and finish the run folder.

        Raises:
            UserError: the run cannot continue because of the scenario or the machine.
            InvariantViolation: the finished run is inconsistent.
        """
        try:
            # The server runs until a limit is reached; the learner follows it, and trains what is left at the end.
            with grace(self._grace):
                if self._plane is not None:
                    self._plane.start()
                self._simulation.run()
                if self._plane is not None:
                    self._plane.close()
            run = self._close()
        except KeyboardInterrupt:
            self._leave(Status.INTERRUPTED)
            raise
        except TimelineDiffers:
            self.writer.close()
            self._trackers.finish(Status.INTERRUPTED, {})
            raise
        except BaseException as error:
            if is_disk_full(error):
                raise self._no_room() from error
            if (
                isinstance(error, UserError)
                and self.earlier is None
                and not self._simulation.dispatched
            ):
                # A mistake that appears before the first dispatch: leave nothing behind.
                self.writer.close()
                self.folder.remove()
                raise
            if isinstance(error, ProcessLost):
                self._leave(Status.INTERRUPTED)
            else:
                self._leave(Status.FAILED, error=f"{type(error).__name__}: {error}")
            if isinstance(error, SystemExit | BaseExceptionGroup) and not isinstance(
                error, Exception
            ):
                message = f"your own code ended the process: {type(error).__name__}: {error}"
                raise UserError(message, where=users_line(error)) from error
            raise
        finally:
            if self._learner is not None:
                self._learner.stop()
        try:
            run.report()
        except UserError as error:
            raise self.folder.no_room() if is_disk_full(error) else error from error.__cause__
        # A signal that came too late to interrupt this run still ends the process before its next task.
        self._grace.stop_if_requested()
        return run

    def _close(self) -> Run:
        """Write the remaining files of a finished run, check its consistency, and return it."""
        world, folder = self.world, self.folder
        run = Run(folder, world.loaded.resolved())
        folder.require_in_place()
        run.written(self.writer.finish())
        population, end_ns = world.population, self._simulation.server.now_ns
        simulated_s = end_ns / NS_PER_S
        client_metrics = self._learner.client_metrics() if self._learner is not None else None
        # A run may continue after its last event, so its end is not in the tables.
        run.info = folder.update_info(simulated_s=simulated_s)
        if self.live is not None:
            self.live.finish(recorded(population)["columns"])
        write_population(run, population, world.task.samples, end_ns, client_metrics, world.names())
        if world.edges is not None:
            write_edges(run, world.edges)
        labels = world.task.partition_rows()
        if labels is not None:
            table = from_columns(PARTITION, labels)
            write_parquet(folder.parquet(PARTITION.name), PARTITION, table)
        if self._learner is not None:
            save_model(folder.model, self._learner.named_model(), self._learner.personal_parts())
        time_plane_s = self._wall()["wall_time_plane_s"]
        verify_run(run)
        down_bytes, up_bytes = world.traffic_bytes()
        self._warn(run)
        folder.report.unlink(missing_ok=True)  # It shows an earlier part of the run.
        run.info = folder.close(
            Status.COMPLETE,
            simulated_s=simulated_s,
            rounds=self._simulation.server.round,
            versions_made=self._simulation.server.version,
            dispatches=self._simulation.dispatched,
            ineligible_clients=int(np.count_nonzero(population.short_of_memory)),
            excluded_clients=int(np.count_nonzero(population.excluded)),
            bytes_down_per_dispatch=down_bytes,
            bytes_down_first_dispatch=max(down_bytes, world.first_download_bytes()),
            bytes_up_per_dispatch=up_bytes,
            vectors=world.vectors,
            parts=world.part_rows,
            **spent(run),
            prologue=world.prologue_bytes is not None,
            **flows(world.population.network),
            metrics=dict(self._metrics),
            label_names=list(world.task.label_names),
            time_of_day_s=world.devices.time_of_day_s,
            **{**self._wall(), "wall_time_plane_s": time_plane_s},
            learning=None if self._learner is None else self._learner.describe(),
        )
        self._checkpoints.remove()
        self._trackers.finish(Status.COMPLETE, run.info)
        return run

    def _warn(self, run: Run) -> None:
        """Give the warnings of the finished run, and note them in ``run.json``."""
        simulation = self._simulation
        drew_nobody = simulation.empty_draws > 0
        finished = FinishedRun(run, self.world, simulation.ran_out, drew_nobody)
        notes = self.folder.read_info().get("notes", [])
        for warning in FINISHED.warnings(finished, self.world.scenario.ignore):
            self.on_warning(self.world.loaded.located(warning))
            # A resumed run may find a note that is there already.
            if warning.rule not in SHOWN_BY_REPORT and warning.message not in notes:
                notes.append(warning.message)
        if notes:
            self.folder.update_info(notes=notes)

    def _leave(self, status: Status, **more: Any) -> None:
        self.writer.close()
        info = self.folder.close(status, **self._wall(), **more)
        self._trackers.finish(status, info)
        # Problems of the page never hide why the run ends.
        with contextlib.suppress(Exception):
            Run(self.folder).report()

    def _no_room(self) -> UserError:
        """Interrupt a run that ran out of disk space, so that it can be resumed."""
        self.folder.make_room()
        with contextlib.suppress(OSError):
            self.writer.close()  # Rows that do not fit are simulated again.
        with contextlib.suppress(OSError, UserError):
            self._leave(Status.INTERRUPTED)
        return self.folder.no_room()

    def _make_learner(self) -> Learner:
        kept, keeps = self.world.scenario.checkpoint_models, dict[str, Any]()
        if kept is not None:
            keeps["on_version"] = model_keeper(kept, self.folder)
        checkpoint = self._checkpoints.load()
        self._reached = None if checkpoint is None else checkpoint[1]
        # A killed run could not record its time, but its last checkpoint did.
        noted = (self._reached or {}).get("wall", {})
        self._spent_s = max(self._spent_s, noted, key=lambda wall: wall.get("wall_s", 0.0))
        live = self.live
        make = partial(build_learner, ranks=self.ranks) if live is None else live.learner
        learner = make(
            self.world,
            folder=self.folder.path,
            checkpoint=checkpoint,
            on_metrics=self._on_metrics,
            on_rest=self._on_rest,
            **keeps,
        )
        definitions = to_document(learner.metric_definitions.values())
        self.folder.update_info(**{DEFINITIONS_KEY: definitions})
        self._trackers.start(self.world.loaded, self.folder, resumed=self.earlier is not None)
        return learner

    # -- during the run ----------------------------------------------------------------------------------------------

    def _on_update(self) -> None:
        """Report progress after a server update, and end the run if the process received a signal to stop."""
        if self.on_progress is not None:
            self.on_progress(self._progress())
        # Several processes stop together, when everything submitted has been executed.
        if self._grace.requested is not None and self.ranks is None:
            if self._learner is not None and self._learner.rests_anywhere:
                # Pending work is trained first, so that the checkpoint contains it.
                self._learner.flush()
                self._on_rest(self._learner)
            self._grace.stop_if_requested()

    def _on_metrics(self, instruction: Evaluate, metrics: Mapping[str, float]) -> None:
        self._metrics = metrics
        self._trackers.log(instruction, metrics)
        self.writer.append_metrics(
            instruction.time_s, instruction.version, instruction.round, metrics
        )

    def _on_rest(self, learner: Learner) -> None:
        """Write a checkpoint if it is due."""
        now = time.monotonic()
        # The next moment of rest, if it comes as late as this one did, would be too late.
        interval_s = CHECKPOINT_INTERVAL_S * max(1.0, self._checkpoint_s / _CHECKPOINT_S)
        due = now + (now - self._rested_at) - self._checkpointed_at >= interval_s
        self._rested_at = now
        signal = self._grace.requested
        if self.ranks is not None:
            due, signal = self.ranks.agree(due, signal)
        if due or signal is not None:
            tensors, state = learner.state()
            progress = self._progress()
            reached = {
                "simulated_s": progress.simulated_s,
                "share": progress.share,
                "wall": self._wall(),
            }
            self.folder.require_in_place()
            self._checkpoints.save(tensors, {**state, **reached})
            self._checkpointed_at = self._rested_at = time.monotonic()
            self._checkpoint_s = self._checkpointed_at - now
        if signal is not None:
            if self.ranks is not None:
                self.ranks.part()
            raise Stopped(signal)

    def starting_point(self) -> str:
        """A sentence that says where a resumed run continues."""
        if self._learner is None:
            return "simulating time again from the start"
        if self._reached is None:
            return "there is no checkpoint: starting from the beginning"
        text = f"resuming from the checkpoint at version {format_count(self._reached['version'])}"
        simulated = format_duration(self._reached["simulated_s"])
        return f"{text}, simulated {simulated}, {self._reached['share']:.0%} of the run"

    def _progress(self) -> Progress:
        simulation, server = self._simulation, self._simulation.server
        now_s, dispatched = server.now_ns / NS_PER_S, simulation.dispatched
        reached = {"rounds": server.round, "dispatches": dispatched}
        share = share_done(self._stop, simulated_s=now_s, arrivals=simulation.arrived, **reached)
        return Progress(now_s, server.version, server.round, dispatched, share, self._metrics)

    def _wall(self) -> dict[str, float]:
        """Wall seconds so far, including those before the run was resumed."""
        seconds = time.perf_counter() - self.began
        learning = self._learning.seconds
        spent = dict(zip(_WALL, (seconds, learning, seconds - learning), strict=True))
        return {name: spent[name] + self._spent_s.get(name, 0.0) for name in _WALL}
