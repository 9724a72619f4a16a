"""Runs a Flower app on simulated devices, into a run folder."""

from __future__ import annotations

import contextlib
import copy
import os
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from fedsim.analysis.run import Run
from fedsim.composition.closing import spent, write_population
from fedsim.composition.devices import Devices
from fedsim.composition.rules.finished import FINISHED, FinishedRun, check_names
from fedsim.composition.rules.planned import OF_DEVICES, PLANNED
from fedsim.composition.run import OnProgress, default_folder, log_warning
from fedsim.composition.shared import Shared
from fedsim.composition.world import World
from fedsim.devices.population import Population
from fedsim.errors import FedsimError, UserError, details
from fedsim.flower import internals as fl
from fedsim.flower.client import apps_traceback
from fedsim.flower.clock import RunEnded, thread_on
from fedsim.flower.exchange import Exchange, messages_table
from fedsim.flower.grid import UNITS_PER_HOST_S, SimulatedGrid
from fedsim.flower.recording import Recording
from fedsim.flower.stand_ins import installed
from fedsim.flower.workers import AppSource, make_workers
from fedsim.methods.fedavg import FedAvg
from fedsim.randomness import Purpose, Stream, watched
from fedsim.runs.checkpoint import save_model
from fedsim.runs.folder import RunFolder, Status
from fedsim.runs.invariants import verify_run
from fedsim.runs.progress import Progress
from fedsim.runs.records import environment
from fedsim.runs.schema import MESSAGES
from fedsim.runs.tables import write_parquet
from fedsim.runs.writer import RunWriter
from fedsim.scenario.loading import LoadedScenario, load_source
from fedsim.scenario.model import name_of, share_done
from fedsim.scenario.overrides import Override, apply_overrides, from_python
from fedsim.scenario.source import Source, read_yaml, to_yaml
from fedsim.simulation.facts import Work as FullWork
from fedsim.simulation.updates import recorded
from fedsim.tasks.base import FORWARD_PASSES_PER_STEP
from fedsim.tasks.kinds.flower import FlowerParams, FlowerTask
from fedsim.units import NS_PER_S, to_ns
from fedsim.vocabulary.formatting import format_counted, format_duration
from fedsim.vocabulary.metrics import DEFINITIONS_KEY, meets, to_document

_COUNTING = ("unit", "work")
_SECTIONS = {
    "name": None,
    "seed": None,
    "task": None,
    "devices": None,
    "stop": None,
    "training": ("batch_size",),
    "server": ("failure_detection", "aggregation_time"),
    "ignore": None,
}
"""The sections of a scenario that apply to a Flower app, each with its keys that apply; None if all do."""
DEFAULT_COMPUTE = {"name": "values", "step": "100ms"}
DEFAULT_NETWORK = {"latency": "50ms", "down": "20Mbps", "up": "10Mbps"}
"""Compute and network of devices for which none are given."""
DEFAULT_STOP = {"simulated_time": "365d"}
_running: list[tuple[SimulatedGrid, Recording]] = []


@dataclass(frozen=True, slots=True)
class App:
    """A Flower app.

    Attributes:
        name: name of its runs.
        server: the ServerApp, or its location.
        client: the ClientApp, or its location.
        run_config: its configuration.
    """

    name: str
    server: fl.ServerApp | AppSource
    client: fl.ClientApp | AppSource
    run_config: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path, overrides: str = "") -> App:
        """The app in a folder.

        Args:
            folder: folder with a ``pyproject.toml`` that has a section ``[tool.flwr.app]``.
            overrides: values of its configuration, such as ``"num-server-rounds=5 learning-rate=0.1"``.
        """
        folder = folder.resolve()
        project = fl.project_config(folder)
        server, client = (
            AppSource(str(project["tool"]["flwr"]["app"]["components"][component]), folder)
            for component in ("serverapp", "clientapp")
        )
        name, config = name_of(str(project["project"]["name"])), fl.app_config(folder, overrides)
        return cls(name or "flower", server, client, config)


def run(
    server_app: fl.ServerApp,
    client_app: fl.ClientApp,
    devices: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    run_config: Mapping[str, Any] | None = None,
    output: str | os.PathLike[str] | None = None,
    *,
    name: str = "flower",
    overrides: Iterable[str] | Mapping[str, Any] = (),
    overwrite: bool = False,
) -> Run:
    """Run a Flower app on simulated devices.

    Args:
        server_app, client_app: the app.
        devices: the device file, or nested mappings with the same content; ten nodes that are always online if
            None.
        run_config: the app's configuration.
        output: the run folder; ``runs/<name>-seed<seed>`` if None.
        name: name of the run, if ``devices`` gives none.
        overrides: values by dotted path, such as ``{"task.clients": 100}``.
        overwrite: replace an existing run.
    """
    given = devices if devices is None or isinstance(devices, Mapping) else Path(devices)
    app = App(name, server_app, client_app, dict(run_config or {}))
    return execute(
        app,
        load_devices(given, name, from_python(overrides)),
        None if output is None else Path(output),
        overwrite=overwrite,
    )


def mark_version(
    replies: Iterable[fl.Message] | None = None, *, metrics: Mapping[str, float] | None = None
) -> None:
    """Record that a ServerApp with its own loop has made a new model version; does nothing outside a run.

    Without this, a version is inferred when such a loop sends a model that differs from the last one.

    Args:
        replies: the replies to training messages that entered it; None for all that were pulled since the last
            version. An empty list makes no version, so that metrics can be recorded at any time.
        metrics: values measured on the new version, such as ``{"accuracy": 0.9}``.
    """
    if _running:
        grid, recording = _running[-1]
        grid.mark_version(replies)
        recording.metrics(None, metrics or {})


def execute(
    app: App,
    loaded: LoadedScenario,
    output: Path | None = None,
    *,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
) -> Run:
    """Run an app into a run folder; see :func:`run`.

    ``on_progress`` is called after each new version; it ends the run by raising
    :class:`~fedsim.flower.clock.RunEnded`.
    """
    began = time.perf_counter()
    scenario = loaded.scenario
    params: FlowerParams = scenario.task.params
    folder = RunFolder(output or default_folder(loaded))
    folder.require_free(overwrite)
    with loaded.locating_errors():
        population, evaluating, names, warnings = _populations(loaded)
    for warning in warnings:
        log_warning(warning)
    server_app, unseeded = app.server, list[str]()
    with watched(unseeded.append):
        if isinstance(app.server, AppSource):
            with installed():  # For the locks of its modules.
                server_app = app.server.load(fl.ServerApp)
        workers = make_workers(params.workers, app.client, params.threads)
    with contextlib.closing(workers), folder.claimed(overwrite=overwrite):
        versions = environment()
        versions["versions"]["flwr"] = fl.VERSION
        info = {"name": scenario.name, "seed": scenario.seed, "timing_only": False, **versions}
        if isinstance(app.server, AppSource):
            info["app"] = app.name
        info["target"] = dict(scenario.stop.target)
        begun = {**info, "clients": params.clients, "run_config": dict(app.run_config)}
        begun["data_files"] = loaded.data_files()
        folder.begin(to_yaml(resolved(loaded)), begun)
        of_dispatches = recorded(population)
        writer = RunWriter(folder, clients=params.clients, **of_dispatches)
        with contextlib.closing(writer):
            stop = scenario.stop
            if stop.simulated_time is None:
                stop = stop.model_copy(update={"simulated_time": _LONGEST_RUN_S})
            exchange = Exchange(scenario, stop, population, evaluating, writer)
            recording = Recording(
                exchange, writer, lambda metrics: bool(stop.target) and meets(stop.target, metrics)
            )
            for where in unseeded:
                recording.unseeded(where)
            if on_progress is not None:
                limits = {
                    **scenario.stop.model_dump(),
                    "rounds": stop.rounds or app.run_config.get("num-server-rounds"),
                }

                def on_version() -> None:
                    try:
                        on_progress(_progress(exchange, recording, limits))
                    except RunEnded:
                        exchange.stop()

                exchange.on_version = on_version

            def write_messages() -> None:
                messages = messages_table(exchange.messages, of_dispatches["columns"])
                write_parquet(folder.parquet(MESSAGES.name), MESSAGES, messages)

            grid = SimulatedGrid(exchange, workers, scenario, app.run_config, recording.answered)
            try:
                observing = recording.observing(grid.clock, grid.close_round)
                with observing, installed(), thread_on(grid.clock):
                    _serve(server_app, grid, recording)
            except BaseException as error:
                writer.close()
                write_messages()
                interrupted = isinstance(error, KeyboardInterrupt)
                folder.close(
                    Status.INTERRUPTED if interrupted else Status.FAILED,
                    error=f"{type(error).__name__}: {error}",
                )
                with contextlib.suppress(Exception):  # The reason why the run ended comes first.
                    Run(folder).report()
                raise
            recording.flush()
            exchange.finish()
            folder.require_in_place()
            write_messages()
            finished = Run(folder)
            finished.written(writer.finish())
            samples = np.zeros(params.clients, dtype=np.int64)
            samples[list(grid.samples)] = list(grid.samples.values())
            simulated_s = exchange.now_ns / NS_PER_S
            finished.info = folder.update_info(simulated_s=simulated_s)
            write_population(finished, population, samples, exchange.now_ns, names=names)
        if model := recording.model():
            save_model(folder.model, model, {})
        verify_run(finished)
        notes = recording.notes
        if recording.errors:
            failed = format_counted(recording.errors, "message")
            notes.append(
                f"The ClientApp failed on {failed}; Flower answers each with an error reply, which contains no update, "
                "so the dispatch counts as discarded. The first tracebacks are in the command's output."
            )
        finished.info = folder.close(
            Status.COMPLETE,
            simulated_s=simulated_s,
            rounds=exchange.rounds,
            versions_made=exchange.version,
            dispatches=exchange.dispatched,
            ineligible_clients=0,
            excluded_clients=int(np.count_nonzero(population.excluded)),
            **spent(finished),
            metrics=recording.last,
            wall_s=time.perf_counter() - began,
            client_errors=recording.errors,
            messages=len(exchange.messages),
            offline_messages=exchange.refused,
            timing_only=not exchange.dispatched and not recording.last,
            notes=notes,
            **{DEFINITIONS_KEY: to_document(recording.definitions())},
        )
        folder.checkpoints(finished.info).remove()
        waited = grid.waited_for_nodes or (
            not exchange.messages
            and exchange.now_ns >= to_ns(stop.simulated_time or _LONGEST_RUN_S)
        )
        online = None
        if waited and finished.online is not None:
            online = int(finished.online["online"].max())
        for warning in FINISHED.warnings(
            FinishedRun(finished, nodes_online=online), scenario.ignore
        ):
            log_warning(loaded.located(warning))
        finished.report()
        return finished


_LONGEST_RUN_S = 366 * 86_400.0


def _progress(exchange: Exchange, recording: Recording, limits: Mapping[str, Any]) -> Progress:
    simulated_s = exchange.now_ns / NS_PER_S
    known = any(limits.get(name) for name in ("simulated_time", "rounds", "dispatches", "arrivals"))
    share = known and share_done(
        limits,
        simulated_s=simulated_s,
        rounds=exchange.rounds,
        dispatches=exchange.dispatched,
        arrivals=exchange.arrived,
    )
    return Progress(
        simulated_s,
        exchange.version,
        exchange.rounds,
        exchange.dispatched,
        float(share),
        recording.last,
    )


def _serve(server_app: fl.ServerApp, grid: SimulatedGrid, recording: Recording) -> None:
    """Run the ServerApp in this thread until it returns or the run ends; then its other threads are unwound."""
    seed = Stream(grid.seed, Purpose.FLOWER, 2).hash(0) >> 32
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the generator that apps use
    torch.manual_seed(seed)
    context = fl.Context(
        run_id=grid.run.run_id,
        node_id=fl.SUPERLINK_NODE_ID,
        node_config={},
        state=fl.RecordDict(),
        run_config=dict(grid.run_config),
    )
    _running.append((grid, recording))
    try:
        with watched(recording.unseeded), fl.identity(grid.run.run_id, fl.SUPERLINK_NODE_ID):
            server_app(grid=grid, context=context)
    except RunEnded:
        fl.FLOWER_LOGGER.info("The run has reached a limit of its section 'stop'.")
    except (FedsimError, KeyboardInterrupt):
        raise
    except BaseException as error:  # Of asyncio, too.
        after = f"{format_duration(grid.clock.now_ns / NS_PER_S)} after the start"
        if not isinstance(error, SystemExit):
            trace = details(apps_traceback(error))
            raise UserError(f"the ServerApp failed {after}\n{trace}") from error
        if error.code not in (None, 0):
            raise UserError(f"the ServerApp ended {after} by sys.exit({error.code!r})") from error
    finally:
        grid.clock.stop()
        _running.pop()


# -- the device file: a scenario whose task is a Flower app -----------------------------------------------------------


def load_devices(
    devices: Path | Mapping[str, Any] | None, name: str, overrides: Iterable[Override | str] = ()
) -> LoadedScenario:
    """The scenario of a Flower app.

    ``devices.compute.unit`` and ``devices.compute.work`` are moved to the task, where they belong.

    Args:
        devices: the YAML file, its content, or None for ten nodes that are always online.
        name: name of the run, if the file gives none.
        overrides: values by dotted path.
    """
    if isinstance(devices, Path):
        source, folder = read_yaml(devices), devices.resolve().parent
    else:
        source, folder = Source("devices", copy.deepcopy(dict(devices or {}))), Path.cwd()
    source = apply_overrides(source, overrides)
    data = source.data = {} if source.data is None else source.data
    if not isinstance(data, dict):
        raise UserError("a device file is a mapping of sections", where=source.label)
    for section, value in data.items():
        keys = _SECTIONS.get(section, ())
        others = [] if keys is None else [key for key in value or () if key not in keys]
        if section not in _SECTIONS or others:
            path = (section, *others[:1])
            raise UserError(
                f"'{'.'.join(path)}' has no effect on a Flower app, which decides that itself",
                where=source.key_place(path),
                hint="remove it; a device file may have the sections name, seed, task, devices, stop, "
                "training.batch_size, server.failure_detection, server.aggregation_time and ignore",
            )
    data.setdefault("name", name)
    data.setdefault("stop", dict(DEFAULT_STOP))
    task = data.setdefault("task", {})
    section = data.setdefault("devices", {})
    if isinstance(task, dict) and isinstance(section, dict):
        if task.setdefault("name", "flower") != "flower":
            raise UserError(
                f"the task of a Flower app is 'flower', not '{task['name']}'",
                where=source.value_place(("task", "name")),
                hint="write task: {clients: 100}",
            )
        compute = section.get("compute")
        if isinstance(compute, dict):
            for key in _COUNTING:
                if key in compute:
                    task[key] = compute.pop(key)
                    for places in (source.keys, source.values):
                        path = ("devices", "compute", key)
                        places[("task", key)] = places.get(path, source.key_place(path))
        if not section.get("trace"):
            given = section.get("compute")
            if given is None or (isinstance(given, dict) and "name" not in given):
                section["compute"] = {**DEFAULT_COMPUTE, **(given or {})}
            section.setdefault("network", dict(DEFAULT_NETWORK))
    return load_source(source, folder)


def resolved(loaded: LoadedScenario) -> dict[str, Any]:
    """The sections that concern a Flower app, with every default written out."""
    every = loaded.resolved()
    return {
        section: every[section] if keys is None else {key: every[section][key] for key in keys}
        for section, keys in _SECTIONS.items()
    }


class _UnitOfWork(FedAvg):
    """The method as the devices see it: a unit of work costs ``factor`` times the time of a step."""

    def __init__(self, factor: float) -> None:
        # Without model and parameters, which only learning needs.
        self._factor = factor

    @override
    def compute_factor(self) -> float:
        return self._factor

    @override
    def download(self) -> tuple[()]:
        return ()  # Sizes of messages are known when they are sent.

    @override
    def upload(self) -> tuple[()]:
        return ()


def check_devices(loaded: LoadedScenario) -> list[UserError]:
    """The warnings of a device file."""
    with loaded.locating_errors():
        return _populations(loaded)[-1]


def _populations(
    loaded: LoadedScenario,
) -> tuple[Population, Population, dict[str, Any], list[UserError]]:
    """The nodes' devices, with the time of a unit of training and with that of one of evaluation; names; warnings."""
    scenario = loaded.scenario
    params: FlowerParams = scenario.task.params
    if scenario.devices.availability.params.on_disconnect == "send_partial":
        raise UserError(
            "a ClientApp cannot send partial work",
            where="devices.availability.on_disconnect",
            hint="use drop, pause or finish",
        )
    if params.unit == "host_seconds":
        fl.FLOWER_LOGGER.warning(
            "CPU time of the host differs from run to run, so this run cannot be repeated exactly; "
            "count steps or examples if you can (devices.compute.unit)."
        )
    task = FlowerTask(params, scenario.training.batch_size)
    steps = FullWork(np.ones(params.clients, dtype=np.int64))
    check_names(scenario.ignore)
    devices = Devices(scenario, loaded.folder, Shared(), task, steps)
    if params.unit == "host_seconds":
        training = evaluating = 1 / UNITS_PER_HOST_S
    else:
        # Declared units are those of devices.compute, whatever the message.
        training, evaluating = 1.0, 1 / FORWARD_PASSES_PER_STEP if params.work is None else 1.0
    method = _UnitOfWork(training)
    population = devices.population(method)
    world = World(loaded, devices, scenario.training, False, method, population)
    warnings = PLANNED.warnings(world, scenario.ignore, only=OF_DEVICES)
    located = [loaded.located(warning) for warning in warnings]
    compute = devices.population(_UnitOfWork(evaluating)).compute
    return population, replace(population, compute=compute), world.names(), located
