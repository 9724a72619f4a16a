"""The ``training`` section: what a local step is, and on what hardware it is executed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedsim.components import Parameters
from fedsim.units import Duration


class Sgd(Parameters):
    """Stochastic gradient descent; momentum, dampening-free, and decoupled from nothing (as in torch.optim.SGD)."""

    name: Literal["sgd"] = "sgd"
    """Kind of optimizer."""
    lr: float = Field(default=0.05, gt=0)
    """Learning rate of a local step."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Momentum; its buffer starts at zero with every dispatch."""
    nesterov: bool = False
    """Nesterov's form of momentum."""
    weight_decay: float = Field(default=0.0, ge=0)
    """L2 penalty added to the gradient."""

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Sgd:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov is a form of momentum, which is 0; give momentum")
        return self


class Adam(Parameters):
    """Adam (Kingma and Ba 2015); moments start at zero with every dispatch."""

    name: Literal["adam"]
    """Kind of optimizer."""
    lr: float = Field(default=0.001, gt=0)
    """Learning rate of a local step."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the first moment."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the second moment."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment."""
    weight_decay: float = Field(default=0.0, ge=0)
    """L2 penalty added to the gradient."""


class AdamW(Parameters):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    name: Literal["adamw"]
    """Kind of optimizer."""
    lr: float = Field(default=0.001, gt=0)
    """Learning rate of a local step."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the first moment."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the second moment."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Decoupled weight decay."""


Optimizer = Annotated[Sgd | Adam | AdamW, Field(discriminator="name")]


class ConstantRate(Parameters):
    """The learning rate of the optimizer, always."""

    name: Literal["constant"] = "constant"
    """Kind of schedule."""


class InverseSqrtRate(Parameters):
    """lr / sqrt(t / scale + 1), t in rounds (or seconds)."""

    name: Literal["inverse_sqrt"]
    """Kind of schedule."""
    scale: float = Field(default=10.0, gt=0)
    """Rounds (or seconds) after which the rate has fallen to 1 / sqrt(2)."""
    by: Literal["round", "time"] = "round"
    """What t counts."""


class ExponentialRate(Parameters):
    """lr x factor^(t / every), stepwise: the exponent is rounded down."""

    name: Literal["exponential"]
    """Kind of schedule."""
    factor: float = Field(default=0.99, gt=0, le=1)
    """Factor per step of the schedule."""
    every: float = Field(default=1.0, gt=0)
    """Rounds (or seconds) between two steps."""
    by: Literal["round", "time"] = "round"
    """What t counts."""


class CosineRate(Parameters):
    """From lr down to lr x floor along half a cosine over ``length``, then constant."""

    name: Literal["cosine"]
    """Kind of schedule."""
    length: float = Field(gt=0)
    """Rounds (or seconds) of the descent."""
    floor: float = Field(default=0.0, ge=0, le=1)
    """Final rate as a share of lr."""
    by: Literal["round", "time"] = "round"
    """What t counts."""


class PiecewiseRate(Parameters):
    """lr x a factor that goes from point to point in straight lines: a warm-up, phases, steps.

    The factor is the first point's before it and the last point's after it. Two points at one t are a step, and from
    t on the second holds.
    """

    name: Literal["piecewise"]
    """Kind of schedule."""
    points: list[tuple[float, float]] = Field(min_length=1)
    """Pairs of t, in rounds (or seconds), and factor: ``[[0, 0.1], [100, 1]]`` is a warm-up of 100 rounds,
    ``[[2000, 1], [2000, 0.01]]`` two phases."""
    by: Literal["round", "time"] = "round"
    """What t counts."""

    @model_validator(mode="after")
    def _in_order(self) -> PiecewiseRate:
        times = [t for t, _ in self.points]
        if times != sorted(times):
            raise ValueError(f"the points must be in order of t, which is {times}")
        if min(factor for _, factor in self.points) <= 0:
            raise ValueError("a factor must be above zero")
        return self


RateSchedule = Annotated[
    ConstantRate | InverseSqrtRate | ExponentialRate | CosineRate | PiecewiseRate,
    Field(discriminator="name"),
]


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

    optimizer: Optimizer = Sgd()
    """Optimizer of the local steps: sgd, adam or adamw."""
    lr_schedule: RateSchedule = ConstantRate()
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
    cuda_graphs: bool = True
    """Record the operations of a local step once and start them together from then on, where groups are trained
    stacked on CUDA. Never changes a result; turn it off for a module whose operations depend on values."""
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
