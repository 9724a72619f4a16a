"""A run in several processes (ranks): all of them execute :func:`follow` or, on rank 0, write the run folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fedsim.composition.planes import build_learner, build_server
from fedsim.composition.world import World
from fedsim.processes.launch import launch
from fedsim.processes.stopping import Grace, Stopped, grace
from fedsim.scenario.model import Scenario
from fedsim.scenario.training import DistributedWorkers

if TYPE_CHECKING:
    from fedsim.learning.learner import Checkpoint, Learner
    from fedsim.learning.workers.distributed import Ranks
    from fedsim.runs.folder import RunFolder


@contextlib.contextmanager
def joined(scenario: Scenario) -> Iterator[Ranks | None]:
    """The processes of a run, which end the context together; None if its workers are not ``distributed``."""
    training = scenario.training
    if not isinstance(training.workers, DistributedWorkers):
        yield None  # Each process has a run of its own.
        return
    import torch

    from fedsim.learning.workers.distributed import Ranks

    ranks = Ranks(launch(), on_cuda=training.device != "cpu" and torch.cuda.is_available())
    yield ranks
    ranks.part()


@contextlib.contextmanager
def claimed(folder: RunFolder, ranks: Ranks | None, *, overwrite: bool) -> Iterator[None]:
    """Claim the run folder, and report to the other processes, which wait for it, whether the run may begin."""
    is_claimed = False
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder.claimed(overwrite=overwrite))
            is_claimed = True
        finally:
            if ranks is not None:
                ranks.values(is_claimed)
        yield


def follow(world: World, ranks: Ranks, *, checkpoint: Checkpoint | None = None) -> None:
    """Execute a run that rank 0 writes: repeat its timeline, and train the share of this rank.

    Args:
        world: as on rank 0.
        ranks: the processes of the run; this is not rank 0.
        checkpoint: the one from which rank 0 continues.
    """
    if not world.learns:
        return
    period = Grace()

    def rest(learner: Learner) -> None:
        _, signal = ranks.agree(False, period.requested)
        if signal is not None:
            ranks.part()
            raise Stopped(signal)

    learner = build_learner(world, ranks, checkpoint=checkpoint, on_rest=rest)
    nothing: Any = _Unwritten()
    server = build_server(world, learner, nothing)
    try:
        with grace(period):
            learner.start()
            server.run()
            learner.close()
    finally:
        learner.stop()


class _Unwritten:
    """Takes the rows that rank 0 writes."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None
