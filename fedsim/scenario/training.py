"""The ``training`` section: what a local step is, and on what hardware it is executed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fedsim.parameters import Parameters
from fedsim.scenario.parts import BY_DEFAULT, OfKind, Part
from fedsim.units import Duration


class LimitedWork(Parameters):
    """Clients that do less than they are asked to, by a draw, not because of their devices and a deadline.

    A limited client does E - tau + 1 of E epochs (of E steps, where work is given in steps), with tau drawn uniformly
    (Li et al., FedLGA, section V-A). The draws are the same whatever the method.
    """

    share: float = Field(default=0.5, ge=0, le=1)
    """Share of the clients that are limited (rho)."""
    tau_min: int = Field(default=1, ge=1)
    """Smallest tau; 1 lets a limited client do all its work now and then."""
    tau_max: int | None = Field(default=None, ge=1)
    """Largest tau, at the most E; E - 1 when not given."""
    redraw: Literal["never", "amount", "both"] = "never"
    """What is drawn again for every dispatch: nothing, tau, or tau and whether the client is limited."""

    @model_validator(mode="after")
    def _ordered(self) -> LimitedWork:
        if self.tau_max is not None and self.tau_max < self.tau_min:
            raise ValueError(f"tau_max is {self.tau_max}, below tau_min {self.tau_min}")
        return self


class Augmentation(Parameters):
    """Changes to the images of a mini-batch, drawn anew for every sample of every local step.

    Evaluation sees the images as they are.
    """

    crop_padding: int = Field(default=0, ge=0)
    """Pixels of black added on all sides, before a piece of the image's own size is cut out at a random place."""
    flip: bool = False
    """Turn the image left to right with probability 1/2."""

    @model_validator(mode="after")
    def _does_something(self) -> Augmentation:
        if not (self.crop_padding or self.flip):
            raise ValueError("give crop_padding, flip: true, or both")
        return self


class ThreadWorkers(Parameters):
    """Threads on one device: ``training.threads`` of them on a CPU, one on CUDA."""

    name: Literal["threads"] = "threads"
    """Sort of workers."""


class DeviceWorkers(Parameters):
    """The CUDA devices of this machine, each with a copy of the data; threads where there is no such device."""

    name: Literal["devices"]
    """Sort of workers."""
    count: int | None = Field(default=None, ge=1)
    """How many of the visible devices are used; all when not given."""


class RayWorkers(Parameters):
    """Processes on a Ray cluster (``pip install "fedsim-des[ray]"``), each with a copy of the data.

    Every node must have fedsim installed and see data and files under the same paths. Nodes must be of the same kind
    as the machine that starts the run, which aggregates and evaluates.
    """

    name: Literal["ray"]
    """Sort of workers."""
    count: int | None = Field(default=None, ge=1)
    """Processes. When not given, as many as there are CPUs free for, ``training.threads`` each (1 when not given); on
    CUDA, GPUs."""
    address: str | None = None
    """Of the cluster: ``auto`` for the one on this machine, ``host:port``, ``ray://host:port``; one is started on this
    machine, and stopped at the end, when not given."""


Workers = Annotated[ThreadWorkers | DeviceWorkers | RayWorkers, Field(discriminator="name")]


class Training(Parameters):
    """What a local step is, how many a client does, and where they are executed."""

    optimizer: Annotated[Part[Any], OfKind("optimizer", "sgd")] = BY_DEFAULT
    """Optimizer of the local steps: sgd, adam or adamw."""
    lr_schedule: Annotated[Part[Any], OfKind("lr_schedule", "constant")] = BY_DEFAULT
    """How the learning rate changes: constant, inverse_sqrt, exponential, cosine or piecewise; by round or by
    simulated time."""
    clip_norm: float | None = Field(default=None, gt=0)
    """Largest Euclidean norm of a mini-batch gradient; longer ones are scaled down to it."""
    batch_size: int = Field(default=32, ge=1, le=10**9)
    """Samples of a mini-batch; a client with fewer uses all it has, and the last batch of an epoch may be short."""
    local_steps: int | None = Field(default=None, ge=1, le=10**9)
    """Local steps of one dispatch. Give this, local_epochs or time_budget; 10 steps when none is given."""
    local_epochs: float | None = Field(default=None, gt=0, le=10**6)
    """Passes over a client's own samples; converted to steps, rounded up."""
    time_budget: Duration | None = None
    """Compute seconds of one dispatch: each client does as many whole steps as fit, at least one."""
    limited: LimitedWork | None = None
    """Clients that do less than this by a draw; all do what they are asked to when not given."""
    augmentation: Augmentation | None = None
    """Random crops and mirror images of training samples (image data sets); none when not given."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where tensors live and steps are executed; auto is CUDA where there is a device."""
    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point type of models and gradients; float64 is for verification."""
    autocast: Literal["none", "bfloat16"] = "none"
    """Reduced precision inside the model's forward and backward pass (CUDA only)."""
    executor: Literal["auto", "stacked", "parallel", "plain"] = "auto"
    """How cohorts are trained: all in one tensor program, one at a time on worker threads, or one after another."""
    cuda_graphs: Literal["auto"] | bool = "auto"
    """Record the operations of a local step once and start them together from then on, where groups are trained
    stacked on CUDA. Never changes a result. With ``auto``, a run whose steps cannot be recorded, because a module's
    operations depend on values, goes on without it and says so; ``true`` ends such a run with an error."""
    threads: int | None = Field(default=None, ge=1)
    """Worker threads of local training on CPU; all cores when not given. Never changes a result."""
    workers: Workers = ThreadWorkers()
    """Who trains: threads on one device, all devices of this machine, or processes on a Ray cluster. Never changes a
    result."""
    memory: Literal["device", "host", "disk"] | None = None
    """Where clients' memories are kept; the first of these that has room when not given."""

    verify: Literal["eager"] | None = None
    """``eager`` trains every dispatch by itself and executes every instruction at once, in place of deferring and
    grouping them: a slow check that gives the same result (up to the last bit with the kernel ``vmap``)."""

    @model_validator(mode="after")
    def _one_amount_of_work(self) -> Training:
        given = [
            name
            for name in ("local_steps", "local_epochs", "time_budget")
            if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise ValueError(
                f"give only one of local_steps, local_epochs and time_budget, not {' and '.join(given)}"
            )
        if self.time_budget is not None and self.time_budget <= 0:
            raise ValueError("time_budget must be longer than zero")
        return self

    @model_validator(mode="after")
    def _workers_can_be(self) -> Training:
        if self.workers.name != "threads" and self.executor == "plain":
            raise ValueError(
                f"executor plain trains one client after another; there is nothing for workers: {self.workers.name}"
            )
        if self.workers.name == "devices" and self.device == "cpu":
            raise ValueError("workers: devices are CUDA devices, but device is cpu")
        return self
