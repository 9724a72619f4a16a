"""The Flower task: the nodes of a Flower app, which does the learning itself; see :mod:`fedsim.flower`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedsim.errors import UserError
from fedsim.parts.parameters import Parameters
from fedsim.scenario.training import Training
from fedsim.tasks.base import Task, TaskContext
from fedsim.tasks.layout import Layout
from fedsim.units import Size
from fedsim.vocabulary.arrays import Floats


class Here(Parameters):
    """ClientApps run in the simulation's process, one after another."""

    name: Literal["here"] = "here"
    """Type of workers."""


class Processes(Parameters):
    """ClientApps run in separate processes of this machine."""

    name: Literal["processes"]
    """Type of workers."""
    count: int | None = Field(default=None, ge=1)
    """Number of processes; by default one per core."""


class RayWorkers(Parameters):
    """ClientApps run on a Ray cluster (``pip install "fedsim-des[ray]"``), whose nodes see the app and its data under
    the same paths."""

    name: Literal["ray"]
    """Type of workers."""
    count: int | None = Field(default=None, ge=1)
    """Number of processes of a cluster that is started on this machine; by default one per core."""
    address: str | None = None
    """Address of the cluster: ``auto`` for the one on this machine, ``host:port`` or ``ray://host:port``. By default a
    cluster is started on this machine, and stopped at the end."""


_Units = Annotated[int, Field(ge=0, le=10**12)]


class DeclaredWork(Parameters):
    """Work and reply size of messages, given in the scenario instead of counted while the app runs."""

    train: Annotated[int, Field(ge=1, le=10**12)] | dict[str, _Units]
    """Units of work of a training message, or of each kind: the name after the dot of its type (``train.NAME``,
    ``default`` without one), or the stage of secure aggregation. A kind with 0 units does not train: it costs its
    transfers. With a single number, ``collect_masked_vectors`` is the stage that trains."""
    evaluate: _Units = 0
    """Units of work of an evaluation message."""
    reply: Size = Field(gt=0)
    """Size of the reply to a training message; other replies have their actual size."""


class FlowerParams(Parameters):
    """The nodes of a Flower app: their number, the unit of their work, and their visibility to the ServerApp."""

    clients: int = Field(default=10, ge=1, le=10**7)
    """Number of nodes (SuperNodes); node i is client i and has the partition id i."""
    unit: Literal["step", "example", "host_seconds"] = "step"
    """Unit of work whose time ``devices.compute`` gives: an optimizer step, a training example, or a second of CPU time
    on the simulating machine (the step time is then a factor). Also written ``devices.compute.unit``."""
    work: DeclaredWork | None = None
    """Work per message, given here instead of counted while the app runs. The ClientApp is then not run for messages
    that are late or lost. Also written ``devices.compute.work``."""
    nodes: Literal["online", "registered"] = "online"
    """The nodes that ``grid.get_node_ids()`` returns: those that are online, as with a SuperLink, or all."""
    offline: Literal["reject", "wait"] = "reject"
    """Handling of a message to an offline node: answered with an error immediately, as by a SuperLink, or delivered
    when the node is back."""
    workers: Annotated[Here | Processes | RayWorkers, Field(discriminator="name")] = Here()
    """Where ClientApps run. Never changes a result."""
    threads: int = Field(default=1, ge=1)
    """Threads that PyTorch uses in a ClientApp."""
    flops_per_sample: float | None = Field(default=None, gt=0)
    """Floating-point operations of one forward and backward pass on one sample, for compute models by FLOP/s."""


class FlowerTask(Task):
    """The nodes of a Flower app, which does the learning itself."""

    name = "flower"
    learns = False
    Params = FlowerParams
    params: FlowerParams

    def __init__(self, params: FlowerParams, batch_size: int) -> None:
        self.params = params
        self.layout = Layout.of([("model", (1,))])
        # A unit of work takes as long as a mini-batch of this size.
        samples = batch_size if params.unit == "step" else 1
        self.samples = np.full(params.clients, samples, dtype=np.int64)

    @classmethod
    def clients_key(cls, params: FlowerParams) -> str:
        return "clients"

    @classmethod
    def build(cls, params: FlowerParams, context: TaskContext) -> FlowerTask:
        """Always refused, because a run needs the app."""
        raise UserError(
            "this scenario describes the devices of a Flower app",
            where="task",
            hint="run it with: fedsim flower APP --devices FILE",
        )

    def flops_per_sample(self, frozen: Collection[str] = ()) -> float | None:
        return self.params.flops_per_sample

    def activations_per_sample(self) -> int:
        return 0

    def memory_bytes(self, training: Training, kept: int, frozen: int = 0) -> Floats:
        return np.zeros(self.clients)
