"""Runs ClientApps in this process, in other processes of this machine, or on Ray, with the same results."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from fedsim.errors import UserError, details, refused
from fedsim.flower import internals as fl
from fedsim.flower.client import Answer, Job, answer, apps_traceback, importable, stop_counting
from fedsim.flower.clock import thread_on
from fedsim.flower.stand_ins import installed
from fedsim.parts.component import announce_user_code
from fedsim.tasks.kinds.flower import Here, Processes, RayWorkers

_WHERE = "task.workers"


@dataclass(frozen=True, slots=True)
class AppSource:
    """Location of an app, also for another process: ``module:attribute``, and the folder to import it from."""

    reference: str
    folder: Path | None

    def load(self, kind: type[Any] = fl.ClientApp) -> Any:
        """Import the app, which must be a ``kind``."""
        reference, folder = self.reference, self.folder
        if not re.fullmatch(r"[\w-]+(\.[\w-]+)*:[\w.]+", reference):
            hint = "correct it in pyproject.toml: package.module:app"
            raise UserError("is not a module and an app", where=f"{folder}: {reference}", hint=hint)
        if folder is not None:
            announce_user_code(_file_of(reference.partition(":")[0], folder))
        try:
            app = fl.load_app(reference, fl.LoadServerAppError, folder)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise UserError(
                f"cannot load the app\n{details(apps_traceback(error))}",
                where=f"{folder or Path.cwd()}: {reference}",
                hint="install the app's dependencies in fedsim's environment, or correct its pyproject.toml",
            ) from error
        if not isinstance(app, kind):
            raise UserError(
                f"is a {type(app).__name__}, not a {kind.__name__}",
                where=f"{folder or ''}: {reference}",
                hint="correct [tool.flwr.app.components] in pyproject.toml",
            )
        return app


def _file_of(module: str, folder: Path) -> Path:
    """The file that Python imports as a module of an app: perhaps one outside its folder."""
    file = folder / module
    path = [*([] if str(folder) in sys.path else [str(folder)]), *sys.path]  # As Flower does.
    for name in accumulate(module.split("."), "{}.{}".format):
        # As an import does, which would run the packages, too.
        specs = (finder.find_spec(name, path) for finder in sys.meta_path)
        try:
            spec = next(filter(None, specs), None)
        except (KeyError, AttributeError):  # A namespace in another one has to be imported first.
            return folder / f"{module.replace('.', '/')}.py"
        if spec is None:
            break
        file = Path(spec.origin if spec.has_location and spec.origin else name)
        path = spec.submodule_search_locations or []
    return file


@dataclass(frozen=True)
class Workers:
    """Run ClientApps.

    Attributes:
        submit: starts a job, or notes it; returns a function that waits for its answer.
        close: releases the resources of the workers.
    """

    submit: Callable[[Job], Callable[[], Answer]]
    close: Callable[[], object]


def here(app: fl.ClientApp) -> Workers:
    """Runs each ClientApp in this process when its answer is needed."""
    return Workers(lambda job: lambda: answer(app, job), stop_counting)


_loaded: dict[AppSource, fl.ClientApp] = {}
_until_the_end = contextlib.ExitStack()


def _answer_in_process(source: AppSource, job: Job) -> Answer:
    if not _loaded:
        _until_the_end.enter_context(installed())
    if source not in _loaded:
        _loaded[source] = source.load()
    return answer(_loaded[source], job)


def _processes(source: AppSource, count: int | None) -> Workers:
    """Processes of this machine, which import the app anew."""
    pool = ProcessPoolExecutor(count or os.cpu_count() or 1, multiprocessing.get_context("spawn"))

    def wait(future: Future[Answer]) -> Answer:
        hint = "it may have run out of memory; try fewer processes: -s task.workers.count=1"
        with refused("a process that ran ClientApps was lost", _WHERE, hint, BrokenProcessPool):
            return future.result()

    return _apart(
        lambda job: pool.submit(_answer_in_process, source, job),
        wait,
        partial(pool.shutdown, cancel_futures=True),
    )


def _on_ray(source: AppSource, settings: RayWorkers, threads: int) -> Workers:
    """Tasks on a Ray cluster, one CPU each; every node sees the app under the same path."""
    from fedsim.processes.cluster import connect_to_ray

    options = {"num_cpus": settings.count} if settings.count and not settings.address else {}
    with thread_on(None):
        ray = connect_to_ray(settings.address, _WHERE, **options)
        shared = ray.put(source)
        run: Any = ray.remote(num_cpus=1 if options else threads)(_answer_in_process)
    return _apart(partial(run.remote, shared), ray.get, ray.shutdown)


def _apart(
    start: Callable[[Job], Any], wait: Callable[[Any], Answer], close: Callable[[], object]
) -> Workers:
    """Workers in other processes, whose own threads keep the host's time."""

    def on_host(call: Callable[..., Any], *args: Any) -> Any:
        with thread_on(None):
            return call(*args)

    return Workers(lambda job: partial(on_host, wait, on_host(start, job)), partial(on_host, close))


def make_workers(
    settings: Here | Processes | RayWorkers,
    app: fl.ClientApp | AppSource,
    threads: int,
) -> Workers:
    """The workers that a run requests, with this many threads of PyTorch per ClientApp."""
    if isinstance(settings, Here):
        return here(app.load() if isinstance(app, AppSource) else app)
    if not isinstance(app, AppSource):
        reference = importable(app)
        if reference is None:
            raise UserError(
                "other processes cannot import the ClientApp, because it is not a global of a module",
                where=_WHERE,
                hint="move it to a file and import it from there, or use workers: {name: here}",
            )
        app = AppSource(reference, None)
    else:
        app.load()  # An app that cannot be loaded is reported before the run begins.
    if isinstance(settings, Processes):
        return _processes(app, settings.count)
    return _on_ray(app, settings, threads)
