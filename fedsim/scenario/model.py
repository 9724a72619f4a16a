"""The sections of a scenario as validated, frozen models.

A field of type :class:`fedsim.scenario.parts.Part` holds a replaceable part (a method, a data set, ...), whose
parameters are those of its own class, so that a new part needs no change here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from fedsim.parameters import Parameters
from fedsim.scenario.parts import BY_DEFAULT, OfKind, Part
from fedsim.scenario.training import Training
from fedsim.units import Duration, Size, parse_duration_s

MOST_EVALUATIONS = 1_000_000
"""How often a run may measure the model at a fixed interval of time."""
_SECTION: Any = Field(default_factory=dict, validate_default=True)


def _interval(value: Any) -> str:
    """A number of versions, or a duration, as text."""
    text = str(value).strip()
    number, _, unit = text.partition(" ")
    if unit in ("version", "versions") and number.isdecimal() and int(number) > 0:
        return f"{int(number)} versions"
    try:
        if parse_duration_s(value) > 0:
            return text
    except ValueError:
        pass
    raise ValueError(
        f"{text!r} is not an interval; write '10 versions', or simulated time such as '6h'"
    )


class Failures(Parameters):
    """What goes wrong besides going offline."""

    crash_rate: float = Field(default=0.0, ge=0)
    """Crashes per hour of work on a dispatch; the dispatch is dropped at that moment."""
    upload_loss: float = Field(default=0.0, ge=0, le=1)
    """Probability that a finished upload does not arrive."""
    upload_retries: int = Field(default=0, ge=0)
    """How often a lost upload is sent again before the dispatch is dropped."""


class Energy(Parameters):
    """Power drawn while working, for the energy of a dispatch in joules."""

    compute_w: float = Field(default=2.5, ge=0)
    """Watts while computing, above idle."""
    download_w: float = Field(default=0.8, ge=0)
    """Watts while receiving."""
    upload_w: float = Field(default=1.2, ge=0)
    """Watts while sending."""
    classes: dict[str, EnergyClass] = {}
    """Other figures for devices of a kind (column ``kind`` of the trace bundle)."""
    battery_j: float | None = Field(default=None, gt=0)
    """Capacity of the battery in joules; with it a device below ``battery_floor`` is not eligible."""
    battery_floor: float = Field(default=0.2, ge=0, lt=1)
    """Share of the battery below which a device takes no work."""
    recharge_w: float = Field(default=5.0, gt=0)
    """Watts of recharging while the device does not work."""


class EnergyClass(Parameters):
    """Power of devices of one kind."""

    compute_w: float = Field(ge=0)
    """Watts while computing, above idle."""
    download_w: float = Field(ge=0)
    """Watts while receiving."""
    upload_w: float = Field(ge=0)
    """Watts while sending."""


def _availability(section: Mapping[str, Any]) -> str:
    return "trace" if section.get("trace") else "always"


class Devices(Parameters):
    """The population: which devices the clients are, how fast, how connected, and when they are there."""

    trace: Path | None = None
    """Folder of a trace bundle, relative to the scenario file; each part below may name its own (``trace:``)."""
    assign: Literal["in_order", "sample"] = "in_order"
    """Client i is device i of the bundle (at least as many devices as clients), or a device drawn with replacement."""
    compute: Annotated[Part[Any], OfKind("compute", "trace")] = BY_DEFAULT
    """Compute speed; from the trace's compute table when not given."""
    availability: Annotated[Part[Any], OfKind("availability", _availability)] = BY_DEFAULT
    """When clients are online and eligible; from the trace when there is one, else always."""
    network: Annotated[Part[Any], OfKind("network", "static")] = BY_DEFAULT
    """Links; static from the trace's network table when not given."""
    failures: Failures = Failures()
    """Crashes and lost uploads."""
    energy: Energy = Energy()
    """Power figures behind ``energy_j``, and the battery."""
    memory: Size | None = None
    """Memory for training of every device, where the trace does not tell. A device that cannot hold what training needs
    at the least (model, gradient, optimizer, the method's own, and the batch's activations) is not eligible."""


class Server(Parameters):
    """The server's method, selection and schedule."""

    method: Annotated[Part[Any], OfKind("method", "fedavg")] = BY_DEFAULT
    """What is learned."""
    selection: Annotated[Part[Any], OfKind("selection", "uniform")] = BY_DEFAULT
    """Whom to dispatch; uniform among the clients online when not given."""
    schedule: Annotated[Part[Any], OfKind("schedule", "sync")] = BY_DEFAULT
    """When to dispatch, wait, cut and aggregate; the one that belongs to the method, else sync, when not given."""
    partial_work: Literal["drop", "send"] = "drop"
    """A client that cannot finish before the deadline: works on and is late, or stops in time and sends what it has."""
    partial_unit: Literal["step", "epoch"] = "step"
    """What a client sends that has not finished: all the local steps it has done, or those of whole epochs alone."""
    failure_detection: Duration | Literal["never"] = 0.0
    """After how long the server learns that a client at work is gone; ``never``: it only notices that nothing comes."""
    aggregation_time: Duration = 0.0
    """Seconds the server takes for one aggregation."""
    compression: float = Field(default=1.0, gt=0, le=1)
    """Factor on the size of every upload."""
    download_compression: float = Field(default=1.0, gt=0, le=1)
    """Factor on the size of every download."""


class Stop(Parameters):
    """When the run ends: at the first of these."""

    simulated_time: Duration | None = None
    """Simulated seconds."""
    rounds: int | None = Field(default=None, ge=1)
    """Rounds (or server versions, where a schedule has no rounds)."""
    dispatches: int | None = Field(default=None, ge=1)
    """Dispatches handed out."""
    arrivals: int | None = Field(default=None, ge=1)
    """Client updates received by the server."""
    stalled_after: int | None = Field(default=None, ge=1)
    """Dispatches in a row without an aggregated update, after which the run fails because it may never end; default:
    100 per client, and at least 100,000."""
    target: dict[str, float] = {}
    """A metric and the value it must reach, such as ``{accuracy: 0.8}`` (``loss`` and ``perplexity`` from above)."""

    @model_validator(mode="after")
    def _ends(self) -> Stop:
        if not (self.simulated_time or self.rounds or self.dispatches or self.arrivals):
            raise ValueError(
                "give at least one of simulated_time, rounds, dispatches and arrivals, so that the run ends"
            )
        return self


class Evaluation(Parameters):
    """When and how the global model is measured."""

    every: Duration | None = Field(default=None, ge=1e-9)
    """Simulated seconds between two evaluations, of which a run makes a million at the most."""
    every_rounds: int | None = Field(default=None, ge=1)
    """Server versions between two evaluations. When neither this nor ``every`` is given, the model is measured as
    often as costs at most a tenth of the training, what clients and objective cost included."""
    at_start: bool = True
    """Also measure the initial model."""
    per_client: bool = False
    """Also measure the model that each client would use on its own test samples: client_accuracy (mean over clients),
    client_accuracy_weighted (over samples), client_accuracy_worst (over the worst tenth of the clients), client_loss.
    Methods that give clients models of their own always do, so that their scenarios need not ask for it."""
    objective: bool = False
    """Also measure what training minimises, over all training samples of all clients, and its gradient (supervised
    tasks; the quadratic task always does): objective_loss, gradient_norm_squared, and personal_gradient_norm_squared
    where parts of the model are personal. Costs about an epoch of training each time."""
    metrics: list[Annotated[Part[Any], OfKind("metric")]] = []
    """Metrics on the test samples besides accuracy, loss, macro_f1, balanced_accuracy and, for next-character tasks,
    perplexity: a list of names, or of parts with parameters such as ``{name: top_k_accuracy, k: 5}``."""
    batch_size: int | None = Field(default=None, ge=1)
    """Samples evaluated at once; 512 on a CPU and 8,192 on CUDA when not given."""


class CheckpointModels(Parameters):
    """Models kept while a run goes on, as ``models/version-N.safetensors`` in the run folder."""

    every: Annotated[str, BeforeValidator(_interval)]
    """Distance between two of them: server versions (``10 versions``) or simulated time (``6h``)."""

    @property
    def versions(self) -> int | None:
        """Versions between two models; None if they are kept by time."""
        number, _, unit = self.every.partition(" ")
        return int(number) if unit else None

    @property
    def interval_s(self) -> float:
        """Simulated seconds between two models that are kept by time."""
        return parse_duration_s(self.every)


class Sweep(Parameters):
    """Many runs: every combination of ``grid``, every row of ``zip``, and every seed."""

    grid: dict[str, list[Any]] = {}
    """Lists of values by dotted path; all combinations are run."""
    zip: dict[str, list[Any]] = {}
    """Lists of equal length by dotted path; the i-th values are taken together."""
    seeds: list[int] = []
    """Seeds; the scenario's own when empty."""

    @model_validator(mode="after")
    def _varies_something(self) -> Sweep:
        if not (self.grid or self.zip or self.seeds):
            raise ValueError("give at least one of grid, zip and seeds")
        empty = [path for path, values in {**self.grid, **self.zip}.items() if not values]
        if empty:
            raise ValueError(f"the list of values of '{empty[0]}' is empty")
        if len({len(values) for values in self.zip.values()}) > 1:
            lengths = ", ".join(f"{path} has {len(values)}" for path, values in self.zip.items())
            raise ValueError(f"the lists of zip must be of equal length; {lengths}")
        twice = sorted(set(self.grid) & set(self.zip))
        if twice:
            raise ValueError(f"'{twice[0]}' is in both grid and zip")
        return self


class Scenario(Parameters):
    """A scenario: everything a run depends on."""

    name: str = Field(default="scenario", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run: letters a to z and A to Z, digits 0 to 9, dot, dash, underscore; first a letter or digit."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of every random stream."""
    task: Annotated[Part[Any], OfKind("task", "supervised")]
    """What is learned, by whom."""
    training: Training = _SECTION
    """What a local step is."""
    devices: Devices = _SECTION
    """Who the clients are."""
    server: Server = _SECTION
    """What the server does."""
    stop: Stop
    """When the run ends."""
    evaluation: Evaluation = _SECTION
    """When the model is measured."""
    checkpoint_models: CheckpointModels | None = None
    """Models to keep besides the last one; none when not given."""
    logging: list[Annotated[Part[Any], OfKind("logging")]] = []
    """Where metrics go besides the run folder: a list of tensorboard, wandb and mlflow, with their parameters, or
    ``file.py:ClassName``. Never changes a result."""
    sweep: Sweep | None = None
    """Many runs from one file."""
