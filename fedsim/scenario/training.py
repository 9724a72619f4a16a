"""The ``training`` section: local steps, and the hardware that executes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from fedsim.parts.parameters import Parameters, mistake
from fedsim.scenario.parts import BY_DEFAULT, OfKind, Part
from fedsim.units import Duration


class LimitedWork(Parameters):
    """Clients that do a random part of the requested work, regardless of their devices and the deadline.

    A limited client does E - tau + 1 of E epochs (of E steps if work is given in steps), with tau drawn uniformly
    (Li et al., FedLGA, section V-A). The draws do not depend on the method.
    """

    share: float = Field(default=0.5, ge=0, le=1)
    """Share of the clients that are limited (rho)."""
    tau_min: int = Field(default=1, ge=1)
    """Smallest tau; with 1 a limited client sometimes does all its work."""
    tau_max: int | None = Field(default=None, ge=1)
    """Largest tau, at most E; by default E - 1."""
    redraw: Literal["never", "amount", "both"] = "never"
    """Values that are redrawn for every dispatch: nothing, tau, or tau and whether the client is limited."""

    @model_validator(mode="after")
    def _ordered(self) -> LimitedWork:
        if self.tau_max is not None and self.tau_max < self.tau_min:
            raise ValueError(f"tau_max is {self.tau_max}, below tau_min {self.tau_min}")
        return self


class Augmentation(Parameters):
    """Random changes to the images of a mini-batch, redrawn for every sample of every local step.

    Evaluation uses the original images.
    """

    crop_padding: int = Field(default=0, ge=0)
    """Black pixels added on each side before a random crop of the original size."""
    flip: bool = False
    """Flip the image horizontally with probability 1/2."""

    @model_validator(mode="after")
    def _does_something(self) -> Augmentation:
        if not (self.crop_padding or self.flip):
            raise ValueError("give crop_padding, flip: true, or both")
        return self


class ThreadWorkers(Parameters):
    """Threads on one device: ``training.threads`` of them on a CPU, one on CUDA."""

    name: Literal["threads"] = "threads"
    """Type of workers."""


class DeviceWorkers(Parameters):
    """The CUDA devices of this machine, each with a copy of the data; threads if there are none."""

    name: Literal["devices"]
    """Type of workers."""
    count: int | None = Field(default=None, ge=1)
    """Number of visible devices to use; by default all."""


class DistributedWorkers(Parameters):
    """The processes that ``torchrun`` or ``srun`` starts for ``fedsim run``, each with a copy of the data.

    Each trains its share of the clients, and receives the updates of the others. Each has ``training.threads`` (by
    default 1), or one GPU.
    """

    name: Literal["distributed"]
    """Type of workers."""


Workers = Annotated[ThreadWorkers | DeviceWorkers | DistributedWorkers, Field(discriminator="name")]


class Training(Parameters):
    """The local work of clients: what a local step is, how many a client does, and where the steps are executed."""

    optimizer: Annotated[Part[Any], OfKind("optimizer", "sgd")] = BY_DEFAULT
    """Optimizer of the local steps: sgd, adam or adamw."""
    lr_schedule: Annotated[Part[Any], OfKind("lr_schedule", "constant")] = BY_DEFAULT
    """How the learning rate changes: constant, inverse_sqrt, exponential, cosine or piecewise; by round or by
    simulated time."""
    optimizer_state: Literal["reset", "kept", "sent"] = "reset"
    """What becomes of the optimizer's momentum or moments between two dispatches of a client: they begin at zero again;
    the client keeps them, if its update is used; or they are sent with its update, averaged by the server with the
    weights of the models, and sent with the next model, which counts in bytes and time. If they are sent, a client
    keeps those of its personal part."""
    clip_norm: float | None = Field(default=None, gt=0)
    """Largest Euclidean norm of a mini-batch gradient; larger gradients are scaled down to it."""
    batch_size: int = Field(default=32, ge=1, le=10**9)
    """Samples per mini-batch. A client with fewer samples uses all of them; the last batch of an epoch may be
    smaller."""
    last_batch: Literal["keep", "drop"] = "keep"
    """What becomes of an epoch's last mini-batch if it is smaller than the others; ``drop`` leaves its samples out in
    that epoch, as batch normalization may require. A client with fewer samples than a batch keeps its only one."""
    batches: Literal["epochs", "with_replacement"] = "epochs"
    """How mini-batches are drawn: ``epochs`` uses every sample once before any is used again; ``with_replacement``
    draws each sample independently, as theory assumes (a local epoch has the same number of steps in both)."""
    local_steps: int | None = Field(default=None, ge=1, le=10**9)
    """Local steps per dispatch. Give this, local_epochs or time_budget; the default is 10 steps."""
    local_epochs: float | None = Field(default=None, gt=0, le=10**6)
    """Passes over a client's samples per dispatch; converted to steps, rounded up."""
    time_budget: Duration | None = None
    """Compute time per dispatch: each client does as many whole steps as fit, at least one."""
    limited: LimitedWork | None = None
    """Clients that do a random part of this work; by default none."""
    augmentation: Augmentation | None = None
    """Random crops and flips of training samples (image data sets); by default none."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of tensors and local steps; ``auto`` is CUDA if a CUDA device is available."""
    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point type of models and gradients; float64 is for verification."""
    autocast: Literal["none", "tf32", "bfloat16"] = "none"
    """Reduced precision inside the model's forward and backward pass; parameters and updates keep ``dtype``. ``tf32``
    (CUDA) rounds the factors of products and convolutions to 11 significant bits, also in evaluations. ``bfloat16``
    works on CUDA, and on CPUs with instructions for bfloat16 products, where it pays off for convolutions and for
    layers with a thousand units or more."""
    executor: Literal["auto", "stacked", "parallel", "plain"] = "auto"
    """How a cohort is trained: all clients in one tensor program, one client per worker thread, or one after
    another."""
    cuda_graphs: Literal["auto"] | bool = "auto"
    """Whether to record the operations of a local step as a CUDA graph and replay them with one launch, if groups are
    trained stacked on CUDA. Never changes a result. If a step cannot be recorded because its operations depend on
    values, ``auto`` continues without recording and reports it; ``true`` ends the run with an error."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Worker threads of local training on a CPU; by default one per core. Never changes a result."""
    workers: Workers = ThreadWorkers()
    """Where clients are trained: threads on one device, all CUDA devices of this machine, or the processes that
    torchrun or srun starts. Never changes a result."""
    memory: Literal["device", "host", "disk"] | None = None
    """Where the state of clients is kept between dispatches; by default, the first of the three that has room."""

    verify: Literal["eager"] | None = None
    """``eager`` trains dispatches one by one and executes every instruction at once, instead of deferring and
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
                f"give only one of local_steps, local_epochs and time_budget, not {' and '.join(given)}; "
                f"an override removes one: -s training.{given[0]}=null"
            )
        if self.time_budget is not None and self.time_budget <= 0:
            raise ValueError("time_budget must be longer than zero")
        return self

    @field_validator("workers", mode="before")
    @classmethod
    def _workers_have_a_name(cls, value: Any) -> Any:
        if isinstance(value, str | int | float):
            raise mistake(
                "workers",
                f"must be threads, devices or distributed, or a mapping with this name, not {value!r}",
                "for a number of threads, set training.threads",
            )
        return value

    @model_validator(mode="after")
    def _workers_can_be(self) -> Training:
        if not isinstance(self.workers, ThreadWorkers) and self.executor == "plain":
            raise ValueError(
                f"executor: plain trains one client at a time, so it cannot use workers: {self.workers.name}; "
                "use executor: auto, or leave out workers"
            )
        if isinstance(self.workers, DeviceWorkers) and self.device == "cpu":
            raise ValueError(
                "workers: devices are CUDA devices, but device is cpu; use device: auto, or leave out workers"
            )
        return self
