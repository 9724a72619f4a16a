"""Workers: threads that share one device, or one thread per device, in this process and in others of the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

import torch

from fedsim.learning.workers.distributed import Ranks
from fedsim.learning.workers.station import Group, Station, Worker
from fedsim.methods.base import LocalUpdate
from fedsim.scenario.training import DistributedWorkers

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Pool:
    """Threads for torch, with one intra-op thread each, started on first use; one is the calling thread."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None

    def map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
        """Results of ``work`` on all items, in order."""
        if self._threads == 1 or len(items) < 2:
            # Not map, which ends early for a StopIteration of users' code.
            for item in items:
                yield work(item)
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                self._threads, "fedsim-learning", initializer=torch.set_num_threads, initargs=(1,)
            )
        # Not further ahead, so that finished results do not accumulate.
        ahead: deque[Future[_Result]] = deque()
        for item in items:
            ahead.append(self._executor.submit(work, item))
            if len(ahead) > 2 * self._threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()

    def stop(self) -> None:
        """End the threads; work that has not begun is canceled."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None


class Workers:
    """Train groups, several at once. Results are the same bits for all numbers of workers.

    Args:
        workers: at least one per thread of the pool.
        pool: the threads that train.
        described: what ``run.json`` has besides their number.
        ranks: the processes of the run, each of which has such workers.

    Attributes:
        count: number of groups trained at the same time by all processes.
        described: type and number of workers, for ``run.json``.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        pool: Pool,
        described: Mapping[str, str | int],
        ranks: Ranks,
    ) -> None:
        self.count = ranks.count * len(workers)
        self.described = {"workers": self.count, **described}
        self._pool = pool
        self._ranks = ranks
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in workers:
            self._free.put(worker)

    def train(self, groups: Sequence[Group]) -> Iterator[LocalUpdate]:
        """Updates of the groups, in order and on the first device, computed no further ahead than needed."""
        ranks = self._ranks
        here = self._pool.map(self._train, groups[ranks.number :: ranks.count])
        return ranks.updates(here, len(groups))

    def _train(self, group: Group) -> LocalUpdate:
        worker = self._free.get()
        try:
            return worker.train(group)
        finally:
            self._free.put(worker)

    def stop(self) -> None:
        """End the workers, even during :meth:`train`; may be called repeatedly."""
        self._pool.stop()


def make_workers(station: Station, pool: Pool, ranks: Ranks) -> Workers:
    """The workers of a run: several on the threads of ``pool``, those of the first device, or one per device."""
    home, others = station.execution.device, station.execution.others
    if others:
        workers = station.workers(1)
        for device in others:
            workers += station.on(device).workers(1, home)
        devices = ", ".join(str(device) for device in (home, *others))
        described = {"workers_are": "devices", "devices": devices}
        return Workers(workers, Pool(len(workers)), described, ranks)
    kind: dict[str, str | int] = {"workers_are": "threads"}
    if isinstance(station.training.workers, DistributedWorkers):
        kind = {"workers_are": "distributed", "ranks": ranks.count}
    return Workers(station.workers(station.threads), pool, kind, ranks)
