"""The sections of a scenario as validated, frozen models.

A field of type :class:`fedsim.scenario.parts.Part` holds a replaceable part (a method, a data set, ...), whose
parameters are those of its own class, so that a new part needs no change here.
"""

from __future__ import annotations

import contextlib
import math
import unicodedata
from collections.abc import Mapping
from glob import escape, glob
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, field_serializer, model_validator

from fedsim.parts.parameters import Parameters, mistake
from fedsim.scenario.own_code import as_data
from fedsim.scenario.parts import BY_DEFAULT, OfKind, Part
from fedsim.scenario.training import Training
from fedsim.units import Duration, Level, Size, parse_duration_s, to_ns
from fedsim.vocabulary.formatting import format_count

Pairing = Literal["in_order", "sample", "by_name"]
"""How clients are paired with the devices of a trace bundle: client i is device i, a device drawn with replacement, or
the device of its name; see ``devices.assign``."""
MOST_EVALUATIONS = 1_000_000
"""Maximum number of evaluations per run at a fixed interval of simulated time."""
MOST_RUNS = 10_000
"""Maximum number of runs of a sweep."""
_SECTION: Any = Field(default_factory=dict, validate_default=True)


def name_of(text: str) -> str:
    """The name of a run that is most similar to a text; the text itself if it can be a name."""
    letters = (unicodedata.category(one)[0] in "LMN" or one in "._-" for one in text)
    name = "".join(one if kept else " " for one, kept in zip(text, letters, strict=True))
    return "-".join(name.split()).lstrip("._-")


def _checked_name(text: str) -> str:
    name = name_of(text)
    if not text or name != text:
        raise mistake(
            "name",
            f"{text!r} is not a name of letters, digits, dots, dashes and underscores",
            f"write {name}" if name else None,
        )
    return text


def _interval(value: Any) -> str:
    """A number of versions, or a duration, as text."""
    text = str(value).strip()
    number, _, unit = text.partition(" ")
    if unit in ("version", "versions") and number.isdecimal() and int(number) > 0:
        return f"{int(number)} versions"
    with contextlib.suppress(ValueError):
        # A bare number would silently be seconds, where versions may be meant.
        if parse_duration_s(value) > 0 and text[-1].isalpha():
            return text
    raise ValueError(
        f"{text!r} is not an interval; write '10 versions', or simulated time such as '10s' or '6h'"
    )


class Failures(Parameters):
    """Failures other than going offline."""

    crash_rate: float = Field(default=0.0, ge=0)
    """Crashes per hour of work on a dispatch; the dispatch is dropped at that moment."""
    upload_loss: float = Field(default=0.0, ge=0, le=1)
    """Probability that a finished upload does not arrive."""
    upload_retries: int = Field(default=0, ge=0)
    """Number of times a lost upload is sent again before the dispatch is dropped."""


Watts = Annotated[float, Field(ge=0, le=100_000_000)]
"""With more, the energy of a long dispatch is not a number that a table may contain."""


class Energy(Parameters):
    """Power of the devices while they work, for the energy of a dispatch in joules."""

    compute_w: Watts = 2.5
    """Watts while computing, above idle."""
    download_w: Watts = 0.8
    """Watts while receiving."""
    upload_w: Watts = 1.2
    """Watts while sending."""
    classes: dict[str, EnergyClass] = {}
    """Power and battery of each kind of device (column ``kind`` of the trace bundle) for which these values do not
    apply."""
    battery_j: float | None = Field(default=None, gt=0)
    """Battery capacity in joules; null if devices have no battery. A device whose charge is below ``battery_floor`` is
    not eligible."""
    battery_floor: float = Field(default=0.2, ge=0, lt=1)
    """Charge, as a share of the capacity, below which a device accepts no work."""
    recharge_w: float = Field(default=5.0, gt=0)
    """Charging power in watts while the device does not work."""

    @property
    def batteries(self) -> list[BatteryType]:
        """The battery of devices of no class, and then of each class."""
        types = []
        for power in (self, *self.classes.values()):
            capacity_j, floor, recharge_w = (
                getattr(self, key) if (given := getattr(power, key)) is None else given
                for key in ("battery_j", "battery_floor", "recharge_w")
            )
            has_none = capacity_j is None or capacity_j == "none"
            types.append(BatteryType(math.inf if has_none else capacity_j, floor, recharge_w))
        return types

    @property
    def has_batteries(self) -> bool:
        """Whether devices of any class have a battery."""
        return any(math.isfinite(battery.capacity_j) for battery in self.batteries)


class BatteryType(NamedTuple):
    """The battery of a class of devices.

    Attributes:
        capacity_j: its capacity in joules; infinite for devices without a battery.
        floor: charge, as a share of the capacity, below which they accept no work.
        recharge_w: charging power in watts.
    """

    capacity_j: float
    floor: float
    recharge_w: float


class EnergyClass(Parameters):
    """Power and battery of devices of one kind."""

    compute_w: Watts
    """Watts while computing, above idle."""
    download_w: Watts
    """Watts while receiving."""
    upload_w: Watts
    """Watts while sending."""
    battery_j: Annotated[float, Field(gt=0)] | Literal["none"] | None = None
    """Battery capacity in joules; null for that of ``energy``, ``none`` for devices without a battery."""
    battery_floor: float | None = Field(default=None, ge=0, lt=1)
    """Charge, as a share of the capacity, below which these devices accept no work; null for that of ``energy``."""
    recharge_w: float | None = Field(default=None, gt=0)
    """Charging power in watts; null for that of ``energy``."""


def _availability(section: Mapping[str, Any]) -> str:
    return "trace" if section.get("trace") else "always"


BY_GROUP = "by_group"
"""Regions are those of the devices' groups in the trace."""
_REGION = "{region}"


class GridSeries(Parameters):
    """A series of the electricity grid over time."""

    key: ClassVar[str]
    quantity: ClassVar[Literal["carbon intensity", "prices"]]

    file: Path
    """CSV file with a row per interval (``fedsim describe grid`` says which), or the folder of a trace bundle with a
    table ``grid``; ``{region}`` in its name stands for the region, and ``builtin:carbon_week.csv`` is a synthetic week
    of the carbon intensity of ``GB``, ``DE`` and ``FR``. The first interval begins at simulated time 0; after its end,
    the series is repeated."""
    region: str | dict[str, Annotated[float, Field(gt=0)]] | None = None
    """Region of all devices, if the file has several; or the share of the devices in each, such as
    ``{FR: 0.6, DE: 0.4}``; or ``by_group``, the region that the column ``group`` of the trace's devices names."""
    column: str | None = None
    """Column of the values, if its name does not say so or several do."""
    unit: str | None = None
    """Unit of the values, such as ``g/kWh``, ``lb/MWh`` or ``EUR/MWh``; by default the one in the header."""

    @model_validator(mode="after")
    def _names_a_file(self) -> GridSeries:
        if self.region is None and _REGION in str(self.file):
            raise ValueError(f"give a region, for which {_REGION} in the name of the file stands")
        return self

    @property
    def files(self) -> list[Path]:
        """All files that it may stand for."""
        return sorted(map(Path, glob(escape(str(self.file)).replace(_REGION, "*"))))

    def file_of(self, region: str) -> Path:
        """The file of a region."""
        return Path(str(self.file).replace(_REGION, region))


class Carbon(GridSeries):
    """Carbon intensity of the grid, from which the emissions of the devices' energy are computed."""

    key, quantity = "devices.carbon", "carbon intensity"


class Prices(GridSeries):
    """Prices of the devices' energy over time, in the currency of the other prices."""

    key, quantity = "devices.cost.energy", "prices"


class Cost(Parameters):
    """Prices of the devices' work."""

    per_byte: float = Field(default=0.0, ge=0)
    """Price of a byte, down or up, such as 5e-9 for 5 per gigabyte."""
    per_device_hour: float = Field(default=0.0, ge=0)
    """Price of an hour in which a device downloads, computes or uploads."""
    energy: Prices | None = None
    """Price of the energy over time, in the currency of the other prices."""


class Devices(Parameters):
    """The clients' devices: speed, links, availability, failures and energy."""

    trace: Path | None = None
    """Folder of a trace bundle, relative to the scenario file; each part below may name a different one
    (``trace:``)."""
    assign: Pairing = "in_order"
    """``in_order``: client i is device i of the bundle, which must have at least as many devices as there are clients;
    names do not matter. ``by_name``: each client of a natural partition is the device of its name.
    ``sample``: each client is a device drawn with replacement; clients with the same device are online at the same
    times, unless the availability shifts them (``{name: trace, shift: days}``)."""
    compute: Annotated[Part[Any], OfKind("compute", "trace")] = BY_DEFAULT
    """Compute speed; by default from the trace's compute table."""
    availability: Annotated[Part[Any], OfKind("availability", _availability)] = BY_DEFAULT
    """When clients are online and eligible; by default from the trace if there is one, otherwise always. For a trace
    without a table of availability, write ``always``."""
    network: Annotated[Part[Any], OfKind("network", "static")] = BY_DEFAULT
    """Links; by default static, from the trace's network table."""
    failures: Failures = Failures()
    """Crashes and lost uploads."""
    energy: Energy = Energy()
    """Power of the devices, from which ``energy_j`` is computed, and the battery."""
    carbon: Carbon | None = None
    """Carbon intensity of the grid, for emissions in g CO2e."""
    cost: Cost | None = None
    """Prices per byte, per hour of work and of energy."""
    exclude: tuple[int, ...] = ()
    """Numbers of clients that never participate; their data stay where they are."""
    memory: Size | list[Size] | None = None
    """Memory available for training on every device whose memory the trace does not give; or a list, one per client, in
    place of the trace's. A device is not eligible if it cannot hold the model, the gradient, the state of optimizer and
    method, and the activations of a batch."""


class WireCompression(Parameters):
    """How the vectors of a method are compressed on the way, which changes what is learned and how long it takes."""

    up: Annotated[Part[Any], OfKind("compression", "factor")] = BY_DEFAULT
    """Compression of uploads; by default none. It may keep its errors with the client and add them to the next upload
    (``error_feedback``). A vector named ``model`` is compressed as the difference to the model from which
    the client started."""
    down: Annotated[Part[Any], OfKind("compression", "factor")] = BY_DEFAULT
    """Compression of downloads; by default none. What is compressed is the difference to the client's reference: what
    it received with its newest update that the server has accepted. Until one has entered a version, downloads are
    complete."""


class EdgeColumn(Parameters):
    """Edge servers by a column of the trace: clients with the same value share one."""

    name: Literal["column"]
    """column"""
    column: str
    """Column of the trace's ``devices`` table."""


class EdgeFile(Parameters):
    """Edge servers by a file."""

    name: Literal["file"]
    """file"""
    path: Path
    """Table with the columns client (its number) or device_id (of its device in the trace), and edge (name or
    number of its edge server). With a column time_s, clients move: from that simulated time on, beginning with 0, a
    client is there. With a column latency_s, the row of the lowest latency counts."""
    on_move: Literal["finish", "drop"] = "finish"
    """A client that moves finishes its work for the edge server that it leaves (``finish``), or loses it (``drop``)."""


class EdgeNearest(Parameters):
    """Edge servers in the graph of a shared network."""

    name: Literal["nearest"]
    """nearest"""
    nodes: list[str] = Field(min_length=1)
    """Nodes of the topology of ``devices.network`` at which there is an edge server. A client belongs to the one with
    the lowest latency from its access node, and its transfers take that route."""


class EdgePower(Parameters):
    """Power of an edge server while it works for the cloud, above idle."""

    download_w: Watts = 0.0
    """Watts while it receives the model of the cloud."""
    rounds_w: Watts = 0.0
    """Watts while it does rounds with its clients."""
    upload_w: Watts = 0.0
    """Watts while it sends its update to the cloud."""


class Edges(Parameters):
    """Edge servers between the clients and the cloud.

    Each serves its clients by a schedule and a selection of its own, and works for the cloud as a client does.
    """

    count: int | None = Field(default=None, ge=1)
    """Number of edge servers, for members ``in_order`` and ``random``."""
    members: Literal["in_order", "random"] | EdgeColumn | EdgeFile | EdgeNearest = "in_order"
    """The clients of each edge server: equal numbers of consecutive clients (``in_order``), or of clients drawn at
    random (``random``); by a column of the ``devices`` table of the trace, such as ``{name: column, column: group}``;
    or by a table with the columns client and edge, such as ``{name: file, path: edges.csv}``; with a column time_s
    they move; or by the nearest of some nodes of the graph of ``devices.network``, such as
    ``{name: nearest, nodes: [n0, n4]}``."""
    rounds: int = Field(default=1, ge=1)
    """Rounds of an edge server per dispatch of the cloud; its versions if its schedule has no rounds."""
    method: Annotated[Part[Any], OfKind("method", "fedavg")] = BY_DEFAULT
    """The method of clients and edge servers. That of the cloud, ``server.method``, aggregates the changes of edge
    servers' models."""
    selection: Annotated[Part[Any], OfKind("selection", "uniform")] = BY_DEFAULT
    """Which clients of an edge server get work."""
    schedule: Annotated[Part[Any], OfKind("schedule", "sync")] = BY_DEFAULT
    """When an edge server dispatches, waits, cuts and aggregates."""
    aggregation_time: Duration = 0.0
    """Duration of an aggregation at an edge server."""
    partial_work: Literal["drop", "send"] = "drop"
    """An edge server that expects to miss the deadline of the cloud continues (``drop``), or sends its model after
    fewer rounds (``send``); it expects a round to take as long as the one before, and always does one."""
    trace: Path | None = None
    """Trace bundle of the edge servers: edge server i is device i."""
    network: Annotated[Part[Any], OfKind("network", "static")] = BY_DEFAULT
    """Links between edge servers and the cloud (the backhaul), as ``devices.network``."""
    availability: Annotated[Part[Any], OfKind("availability", "always")] = BY_DEFAULT
    """When edge servers are up, as ``devices.availability``. While one is down, its clients are offline, and its
    dispatch is lost or paused (``on_disconnect``); with ``finish`` it is only cut off from the cloud."""
    power: EdgePower = EdgePower()
    """Power of the edge servers, for ``energy_j`` in ``edge_dispatches``."""

    @model_validator(mode="after")
    def _counts(self) -> Edges:
        if isinstance(self.members, str) != (self.count is not None):
            raise ValueError(
                "give count, the number of edge servers"
                if self.count is None
                else "leave out count: members says how many edge servers there are"
            )
        return self


class Server(Parameters):
    """The server's method, selection and schedule."""

    method: Annotated[Part[Any], OfKind("method", "fedavg")] = BY_DEFAULT
    """The federated learning algorithm."""
    selection: Annotated[Part[Any], OfKind("selection", "uniform")] = BY_DEFAULT
    """Which clients get work; by default uniform among the clients that are online."""
    schedule: Annotated[Part[Any], OfKind("schedule", "sync")] = BY_DEFAULT
    """When to dispatch, wait, cut and aggregate; by default the method's own schedule if it has one, otherwise sync."""
    partial_work: Literal["drop", "send"] = "drop"
    """A client that cannot finish before the deadline continues and is late (``drop``), or stops in time and sends the
    steps that it has done (``send``)."""
    foresight: bool = False
    """Whether clients with ``partial_work: send`` know when they will go offline or slow down. By default, they expect
    to continue at their pace so far, and are late if that is wrong."""
    partial_unit: Literal["step", "epoch"] = "step"
    """Content of partial work: all local steps done, or only those of complete epochs."""
    failure_detection: Duration | Literal["never"] = 0.0
    """Time until the server notices that a client has gone offline during its work; ``never``: it does not notice."""
    aggregation_time: Duration = 0.0
    """Duration of an aggregation at the server."""
    exchange: Annotated[Part[Any], OfKind("exchange", "server")] = BY_DEFAULT
    """How the clients of a round exchange their updates: through the server, or among themselves by an all-reduce (ring
    or tree)."""
    compression: WireCompression = _SECTION
    """Compression of uploads and downloads."""
    submodels: Annotated[Part[Any], OfKind("submodels", "whole")] = BY_DEFAULT
    """Which part of the model each client trains, by its memory, speed or deadline; by default all of it. A client pays
    time, memory and bytes for its part alone."""
    transfer: Literal["changed", "all"] = "changed"
    """Content of a transfer if the model has frozen parameters or constant buffers: only what training changes, and the
    rest once, with a client's first dispatch (``changed``); or the whole model, in both directions (``all``)."""
    edges: Edges | None = None
    """Edge servers between the clients and this server, which is then the cloud: its method, selection and schedule
    concern edge servers. By default there are none."""

    @property
    def failure_detection_ns(self) -> int | None:
        """Time until the server notices a failure in nanoseconds; None if it never does."""
        return None if self.failure_detection == "never" else to_ns(self.failure_detection)

    @property
    def of_devices(self) -> Server:
        """The section of the servers that dispatch to the clients: the edge servers, or else this server."""
        edges = self.edges
        if edges is None:
            return self
        names = ("method", "selection", "schedule", "aggregation_time")
        return self.model_copy(update={name: getattr(edges, name) for name in names})

    @property
    def section_of_devices(self) -> str:
        """Where a scenario gives the method, selection and schedule of :attr:`of_devices`."""
        return "server" if self.edges is None else "server.edges"


class Stop(Parameters):
    """When the run ends: at the first of these limits that is met."""

    simulated_time: Duration | None = Field(default=None, gt=0)
    """Simulated time of the run."""
    rounds: int | None = Field(default=None, ge=1)
    """Rounds; server versions if the schedule has no rounds."""
    dispatches: int | None = Field(default=None, ge=1)
    """Dispatches handed out."""
    arrivals: int | None = Field(default=None, ge=1)
    """Client updates received by the server."""
    stalled_after: int | None = Field(default=None, ge=1)
    """Number of consecutive dispatches without an aggregated update after which the run fails, because it may never
    end. If null, 100 per client, but at least 100,000."""
    target: dict[str, Level] = {}
    """A metric and the value at which the run ends, such as ``{accuracy: 0.8}`` or ``{accuracy: 80%}``; metrics for
    which lower values are better, such as ``loss``, must fall to the value."""

    @property
    def until_ns(self) -> int | None:
        """Simulated nanoseconds of the run; None without that limit."""
        return None if self.simulated_time is None else to_ns(self.simulated_time)

    @model_validator(mode="after")
    def _ends(self) -> Stop:
        if not (self.simulated_time or self.rounds or self.dispatches or self.arrivals):
            raise ValueError(
                "give at least one of simulated_time, rounds, dispatches and arrivals, so that the run ends"
            )
        return self


def share_done(
    stop: Mapping[str, Any], *, simulated_s: float, rounds: int, dispatches: int, arrivals: int
) -> float:
    """Completed share of a run according to the limits of its ``stop`` section, 0 to 1."""
    done = {
        "simulated_time": simulated_s,
        "rounds": rounds,
        "dispatches": dispatches,
        "arrivals": arrivals,
    }
    shares = [count / float(stop[key]) for key, count in done.items() if stop.get(key)]
    return min(1.0, max(shares))


class Evaluation(Parameters):
    """When and how the global model is evaluated."""

    every: Duration | None = Field(default=None, ge=1e-9)
    """Simulated time between two evaluations; at most a million evaluations per run."""
    every_rounds: int | None = Field(default=None, ge=1)
    """Server versions between two evaluations. If neither this nor ``every`` is given, evaluations are as frequent as
    possible without costing more than a tenth of the training, ``per_client`` and ``objective`` included."""
    at_start: bool = True
    """Also evaluate the initial model."""
    per_client: bool = False
    """Also evaluate, on each client's own test samples, the model that the client would use: client_accuracy (mean over
    clients), client_accuracy_weighted (over samples), client_accuracy_worst (over the worst tenth of the clients) and
    client_loss; client_mae and so on in a regression. Methods with personal models always do."""
    objective: bool = False
    """Also evaluate the objective and its gradient over the training samples of all clients: objective_loss,
    gradient_norm_squared and, if parts of the model are personal, personal_gradient_norm_squared. The quadratic task
    always does. In supervised tasks each evaluation costs about an epoch of training."""
    by_class: bool = False
    """Also measure the accuracy of each class: class_accuracy_0 and so on, in a chart of the report."""
    metrics: list[Annotated[Part[Any], OfKind("metric")]] = []
    """Metrics on the test samples besides accuracy, loss, macro_f1, balanced_accuracy and, for next-character tasks,
    perplexity (in a regression: loss, which is the mean squared error, mae and r2): a list of names, or of parts with
    parameters such as ``{name: top_k_accuracy, k: 5}``."""
    batch_size: int | None = Field(default=None, ge=1)
    """Samples evaluated at once; by default 512 on a CPU and 8,192 on CUDA."""


class CheckpointModels(Parameters):
    """Models kept during a run, as ``models/version-N.safetensors`` in the run folder."""

    every: Annotated[str, BeforeValidator(_interval)]
    """Interval between two saved models: server versions (``10 versions``) or simulated time (``6h``)."""

    @property
    def versions(self) -> int | None:
        """Versions between two models; None for an interval of time."""
        number, _, unit = self.every.partition(" ")
        return int(number) if unit else None

    @property
    def interval_s(self) -> float:
        """Simulated seconds between two models, for an interval of time."""
        return parse_duration_s(self.every)


class Sweep(Parameters):
    """Many runs: every combination of ``variants`` with ``grid``, with every row of ``zip`` and with every seed."""

    variants: dict[str, dict[str, Any]] = {}
    """Values by name of a variant, written as in a scenario: `{fedbuff: {server: {method: {name: fedbuff}, schedule:
    {name: buffered}}}}`. A mapping with a `name` replaces a part; another one sets the keys in it."""

    grid: dict[str, list[Any]] = {}
    """Lists of values by dotted path; all combinations are run."""
    zip: dict[str, list[Any]] = {}
    """Lists of equal length by dotted path; the i-th values of all lists are used together."""
    seeds: list[int] = []
    """Seeds; by default the scenario's seed."""

    @field_serializer("variants", "grid", "zip")
    def _as_data(self, values: dict[str, Any]) -> Any:
        return as_data(values)

    @model_validator(mode="after")
    def _varies_something(self) -> Sweep:
        if not (self.variants or self.grid or self.zip or self.seeds):
            raise ValueError("give at least one of variants, grid, zip and seeds")
        empty = [path for path, values in {**self.grid, **self.zip}.items() if not values]
        if empty:
            raise ValueError(f"the list of values of '{empty[0]}' is empty")
        if len({len(values) for values in self.zip.values()}) > 1:
            lengths = ", ".join(f"{path} has {len(values)}" for path, values in self.zip.items())
            raise ValueError(f"the lists of zip must be of equal length; {lengths}")
        twice = sorted(set(self.grid) & set(self.zip))
        if twice:
            raise ValueError(f"'{twice[0]}' is in both grid and zip")
        axes = (*self.grid.values(), self.variants, self.seeds, *[*self.zip.values()][:1])
        count = math.prod(len(axis) or 1 for axis in axes)
        if count > MOST_RUNS:
            few = format_count(MOST_RUNS)
            raise ValueError(
                f"{format_count(count)} runs; at most {few}: list fewer values or seeds"
            )
        return self


class Scenario(Parameters):
    """A scenario: everything a run depends on."""

    name: Annotated[str, AfterValidator(_checked_name)] = "scenario"
    """Name of the run: letters and digits of any script, dots, dashes and underscores; the first is a letter or a
    digit. If a scenario file gives none, it is the file's name without its suffix."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Seed of every random stream."""
    task: Annotated[Part[Any], OfKind("task", "supervised")]
    """The learning task: the model, and how the data is spread over the clients, such as
    `{dataset: digits, partition: {name: iid, clients: 10}, model: logistic_regression}`."""
    training: Training = _SECTION
    """The local work of clients."""
    devices: Devices = _SECTION
    """The clients' devices."""
    server: Server = _SECTION
    """The method, selection and schedule of the server."""
    stop: Stop
    """The limits at which the run ends: write, for example, `stop: {rounds: 100}`."""
    evaluation: Evaluation = _SECTION
    """When and how the model is evaluated."""
    checkpoint_models: CheckpointModels | None = None
    """Models to keep besides the final one; by default none."""
    logging: list[Annotated[Part[Any], OfKind("logging")]] = []
    """Experiment trackers that receive the metrics during the run: tensorboard, wandb or mlflow, with their
    parameters, or ``file.py:ClassName``. Never changes a result."""
    ignore: list[str] = []
    """Rules whose warnings are not given, such as ``[slow-clients]``; ``fedsim describe rules`` lists them. Never
    changes a result."""
    tags: list[str] = []
    """Words by which to find the run in ``fedsim ls``, such as ``[paper, draft]``. Never changes a result."""
    sweep: Sweep | None = None
    """Many runs from one scenario, for ``fedsim sweep``."""
