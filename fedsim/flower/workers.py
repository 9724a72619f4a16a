"""Runs ClientApps in this process, in other processes of this machine, or on Ray, with the same results."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from fedsim.errors import UserError
from fedsim.flower import internals as fl
from fedsim.flower.client import Answer, Job, answer, importable, load_component
from fedsim.flower.clock import thread_on
from fedsim.flower.counting import stop_counting
from fedsim.flower.stand_ins import installed
from fedsim.tasks.kinds.flower import Here, Processes, RayWorkers

_WHERE = "task.workers"


@dataclass(frozen=True, slots=True)
class AppSource:
    """Location of the ClientApp for another process: ``module:attribute``, and the folder to import it from."""

    reference: str
    folder: Path | None

    def load(self) -> fl.ClientApp:
        """Import it.

        Raises:
            UserError: it cannot be imported, or is not a ClientApp.
        """
        app: fl.ClientApp = load_component(self.reference, self.folder, fl.ClientApp)
        return app


class Workers(ABC):
    """Run ClientApps."""

    @abstractmethod
    def submit(self, job: Job) -> Callable[[], Answer]:
        """Start a job, or note it; returns a function that waits for its answer."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Release the resources of the workers."""


class HereWorkers(Workers):
    """Runs each ClientApp when its answer is needed."""

    def __init__(self, app: fl.ClientApp) -> None:
        self._app = app

    @override
    def submit(self, job: Job) -> Callable[[], Answer]:
        return lambda: answer(self._app, job)

    @override
    def close(self) -> None:
        stop_counting()


_loaded: dict[AppSource, fl.ClientApp] = {}
_until_the_end = contextlib.ExitStack()


def _answer_in_process(source: AppSource, job: Job) -> Answer:
    if not _loaded:
        _until_the_end.enter_context(installed())
    if source not in _loaded:
        _loaded[source] = source.load()
    return answer(_loaded[source], job)


class ProcessWorkers(Workers):
    """Processes of this machine, which import the app anew."""

    def __init__(self, source: AppSource, count: int | None) -> None:
        self._source = source
        self._pool = ProcessPoolExecutor(
            count or os.cpu_count() or 1, multiprocessing.get_context("spawn")
        )

    @override
    def submit(self, job: Job) -> Callable[[], Answer]:
        with thread_on(None):
            future: Future[Answer] = self._pool.submit(_answer_in_process, self._source, job)

        def wait() -> Answer:
            try:
                with thread_on(None):
                    return future.result()
            except BrokenProcessPool as error:
                raise UserError(
                    "a process that ran ClientApps was lost",
                    where=_WHERE,
                    hint="it may have run out of memory; try fewer processes: -s task.workers.count=1",
                ) from error

        return wait

    @override
    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class ClusterWorkers(Workers):
    """Tasks on a Ray cluster, one CPU each; every node sees the app under the same path."""

    def __init__(self, source: AppSource, settings: RayWorkers, threads: int) -> None:
        from fedsim.processes.cluster import connect_to_ray

        options = {"num_cpus": settings.count} if settings.count and not settings.address else {}
        with thread_on(None):
            self._ray = connect_to_ray(settings.address, _WHERE, **options)
            self._source = self._ray.put(source)
        self._run: Any = self._ray.remote(num_cpus=1 if options else threads)(_answer_in_process)

    @override
    def submit(self, job: Job) -> Callable[[], Answer]:
        with thread_on(None):
            reference = self._run.remote(self._source, job)

        def wait() -> Answer:
            with thread_on(None):
                result: Answer = self._ray.get(reference)
            return result

        return wait

    @override
    def close(self) -> None:
        with thread_on(None):
            self._ray.shutdown()


def make_workers(
    settings: Here | Processes | RayWorkers,
    app: fl.ClientApp | AppSource,
    threads: int,
) -> Workers:
    """The workers that a run requests, with this many threads of PyTorch per ClientApp.

    Raises:
        UserError: another process cannot import the app, or there is no cluster.
    """
    if isinstance(settings, Here):
        return HereWorkers(app.load() if isinstance(app, AppSource) else app)
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
        return ProcessWorkers(app, settings.count)
    return ClusterWorkers(app, settings, threads)
