"""The clients' devices: their rows in the traces, and the population that these, the task and the method make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedsim import bundled
from fedsim.composition.needs import missing_tables
from fedsim.composition.shared import Shared
from fedsim.devices import DeviceContext
from fedsim.devices.availability.base import AvailabilityParams
from fedsim.devices.availability.trace import TraceAvailability
from fedsim.devices.battery import Batteries, Power
from fedsim.devices.compute.times import ComputeTimes
from fedsim.devices.grid import Footprint, Grid
from fedsim.devices.population import Population
from fedsim.errors import UserError, raise_all
from fedsim.learning.submodels.parts import Parts
from fedsim.methods.base import Method, Vector
from fedsim.network.base import Network, NetworkContext
from fedsim.parts.functions import returned
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.model import EdgeNearest, Energy, EnergyClass, Scenario
from fedsim.simulation.facts import Work
from fedsim.tasks.base import ITEM_BYTES, Task
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.intervals import device_periods
from fedsim.traces.parameters import TraceParameters
from fedsim.traces.tables import single_chunk
from fedsim.vocabulary.arrays import Array, Floats, Ints
from fedsim.vocabulary.formatting import format_bytes, format_counted, format_names

# The bundles of these parts are searched in this order for tables that all parts share.
PartName = Literal["compute", "availability", "network"]

_DAY_S = 86_400.0
_MOST_BYTES = 1e14  # Sums over many transfers are exact.
_FLOPS_PER_PARAMETER = 6.0
"""Operations per parameter and sample of a pass through dense layers: 2 forward and 4 backward (Kaplan et al., Scaling
Laws for Neural Language Models, 2020, section 2.1); used if the operations of the model are not known."""


@dataclass(frozen=True)
class Devices:
    """The devices of a scenario, and which of them each client has.

    Attributes:
        scenario: the scenario.
        folder: the folder that relative paths refer to.
        shared: the traces.
        task: the task.
        work: local work of a dispatch, for each client.
    """

    scenario: Scenario
    folder: Path
    shared: Shared
    task: Task
    work: Work
    _bundles: dict[PartName, TraceBundle] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def time_of_day_s(self) -> float | None:
        """Time of day at the start of the run, by the clock of the availability trace; None if it has none."""
        bundle, params = self.bundle("availability"), self.scenario.devices.availability.params
        if bundle is None or bundle.manifest.clock == "device-relative":
            return None
        if not isinstance(params, TraceAvailability.Params) or params.shift == "any":
            return None
        epoch = bundle.epoch
        midnight_s = 0 if epoch is None else 3600 * epoch.hour + 60 * epoch.minute + epoch.second
        return float(midnight_s + params.start) % _DAY_S

    @property
    def availability_cycle_s(self) -> float:
        """Seconds of one cycle of the devices' availability: a day, or the period of the trace if that is shorter."""
        bundle = self.bundle("availability")
        if bundle is None or "availability" not in bundle.tables:
            return _DAY_S
        availability: AvailabilityParams = self.scenario.devices.availability.params
        if (availability.on_end or bundle.manifest.on_end) != "wrap":
            return _DAY_S
        start, end = (bundle.numpy("devices", f"window_{edge}_us") for edge in ("start", "end"))
        period_s = float(device_periods(bundle, end - start).max(initial=0)) / 1e6
        return min(period_s, _DAY_S) if period_s > 0 else _DAY_S

    @property
    def item_bytes(self) -> int:
        """Bytes of a parameter."""
        return ITEM_BYTES[self.scenario.training.dtype]

    def wire_bytes(self, sent: float) -> float:
        """Bytes on the network of what has ``sent`` bytes; as many, unless ``task.size`` is set."""
        size_bytes, layout = self.task.size_bytes, self.task.layout
        return sent if size_bytes is None else sent * size_bytes / (layout.size * self.item_bytes)

    def bytes_of(
        self,
        vectors: Iterable[Vector],
        method: Method,
        parts: Parts | None = None,
        level: int = 0,
        *,
        fixed: bool | None = None,
    ) -> float:
        """Bytes on the network of the vectors of one transfer of a part of the model.

        ``fixed`` says whether they include what training does not change; by default as the scenario says.
        """
        task = self.task
        if fixed is None:
            fixed = self.scenario.server.transfer == "all"
        if parts is not None:
            task, elements = parts.tasks[level], parts.sent(level)
            vectors = [method.of_part(vector, task.layout, elements) for vector in vectors]
        sent = sum(vector.size_bytes(self.item_bytes) for vector in vectors)
        total = self.wire_bytes(sent + fixed * task.fixed_elements * self.item_bytes)
        if total > _MOST_BYTES:
            message = f"a transfer would take {format_bytes(total)}, more than {format_bytes(_MOST_BYTES)}"
            raise UserError(message, where="task", hint="choose a smaller model")
        return total

    @cached_property
    def names(self) -> dict[str, Any]:
        """The columns device and kind, as Arrow arrays; outlive the tables of the trace once they have been read."""
        bundle, rows = self._main()
        if bundle is None:
            return {}
        names = {"device": bundle.device_ids.take(rows)}
        if bundle.has("devices", "kind"):
            kinds = single_chunk(bundle.table("devices").column("kind"))
            names["kind"] = kinds.take(rows).cast(pa.string())
        return names

    def release_traces(self) -> None:
        """Free the tables of the traces, once the devices are built; the names of the devices stay."""
        _ = self.names
        self._bundles.clear()
        self.shared.forget_traces()

    def replayed_trace(self, part: PartName) -> TraceBundle | None:
        """The trace from which a part reads a table, if it does."""
        params = getattr(self.scenario.devices, part).params
        reads = isinstance(params, TraceParameters) and params.needs_tables()
        return self.bundle(part) if reads else None

    def clients_on_other_devices(self) -> int:
        """Number of clients that have the name of a device, but are on another, because they are paired in order."""
        part, names = self._main_part, self.task.client_names
        if part is None or not names or self._setting(part, "assign")[0] != "in_order":
            return 0
        bundle = self.bundle(part)
        assert bundle is not None
        rows = _rows_of_names(names, bundle)
        return int(np.count_nonzero((rows >= 0) & (rows != np.arange(len(rows)))))

    def population(self, method: Method, parts: Parts | None = None) -> Population:
        """The clients' devices, with their eligibility for the work of ``method``.

        ``parts`` are the parts of the model that clients train; None if all train the whole model.
        """
        devices, clients = self.scenario.devices, self.task.clients
        if wrong := [client for client in devices.exclude if not 0 <= client < clients]:
            raise UserError(
                f"there is no client {wrong[0]}",
                where="devices.exclude",
                hint=f"clients are 0 to {clients - 1}",
            )
        excluded = np.isin(np.arange(clients), devices.exclude)
        memory, short = self.memory_bytes(), np.zeros(clients, dtype=np.bool_)
        if memory is not None:
            short = ~excluded & (memory < self.memory_needed(method, parts))
        raise_all(
            problem
            for part in get_args(PartName)
            for problem in missing_tables(
                getattr(devices, part).params, self.bundle(part), f"devices.{part}"
            )
        )
        facts = {"eligible": ~excluded & ~short, **self._steps(method, parts)}
        availability = devices.availability.create(
            DeviceContext(**self._context("availability"), **facts)
        )
        offset_ns = availability.offset_ns()
        compute = devices.compute.create(
            DeviceContext(**self._context("compute", offset_ns), **facts)
        )
        network = devices.network.create().build(self.network_context(offset_ns))
        returned(devices.network.type, "build", network, Network)  # type: ignore[type-abstract]
        power = _power(devices.energy, *self._main(), clients)
        return Population(
            clients=clients,
            availability=availability.index(),
            on_disconnect=devices.availability.params.on_disconnect,
            compute=ComputeTimes(compute),
            network=network,
            power=power,
            batteries=Batteries(devices.energy, power.of_client)
            if devices.energy.has_batteries
            else None,
            short_of_memory=short,
            excluded=excluded,
            footprint=self._footprint(power),
        )

    def _footprint(self, power: Power) -> Footprint | None:
        devices, (bundle, rows) = self.scenario.devices, self._main()
        if devices.carbon is None and devices.cost is None:
            return None
        groups = [] if bundle is None else bundle.texts("devices", "group")[rows].tolist()
        carbon, prices = (
            None
            if given is None
            else Grid.read(given, self.task.clients, self.scenario.seed, groups)
            for given in (devices.carbon, None if devices.cost is None else devices.cost.energy)
        )
        return Footprint(power, carbon, devices.cost, prices)

    def network_context(self, offset_ns: Ints | int = 0) -> NetworkContext:
        """What the network of the clients is built from."""
        edges = self.scenario.server.edges
        members = None if edges is None else edges.members
        servers = members.nodes if isinstance(members, EdgeNearest) else ()
        return NetworkContext(**self._context("network", offset_ns), servers=servers)

    def _context(self, part: PartName, offset_ns: Ints | int = 0) -> dict[str, Any]:
        """What a part of the devices is built from; its traces have the offset of availability if both replay one."""
        bundle = self.bundle(part)
        is_shared = bundle is not None and bundle is self.bundle("availability")
        return {
            "clients": self.task.clients,
            "bundle": bundle,
            "device_rows": self.device_rows(part),
            "seed": self.scenario.seed,
            "folder": self.folder,
            "offset_ns": offset_ns if is_shared else 0,
        }

    def _steps(self, method: Method, parts: Parts | None) -> dict[str, Any]:
        """What a local step of each client costs."""
        task = self.task
        # Counting FLOPs may take a forward and a backward pass, so it is done only if they are needed.
        operations, frozen = method.vector_operations(), method.frozen()
        needs_flops = self.scenario.devices.compute.type.needs_flops or operations or frozen
        flops = task.flops_per_sample() if needs_flops or not task.learns else None
        batch = np.minimum(task.samples, self.scenario.training.batch_size)
        factor = method.compute_factor() + method.extra_passes() / np.maximum(self.work.steps, 1)
        work: Floats | float | None = flops
        trainable: Floats | float = task.layout.trainable
        shares: Floats | float = 1.0
        if parts is not None:
            shares = parts.of_clients(parts.flops_shares)
            trainable = parts.of_clients([one.layout.trainable for one in parts.tasks])
            work = None if flops is None else flops * shares
        if operations:
            pass_flops = batch * (_FLOPS_PER_PARAMETER * trainable if work is None else work)
            factor = factor + operations * trainable / np.maximum(pass_flops, 1)
        if not self.scenario.devices.compute.type.needs_flops:
            # These step times are those of the whole model.
            factor = factor * shares
        if frozen and flops:
            factor = factor * ((task.flops_per_sample(frozen) or flops) / flops)
        return {"batch_samples": batch, "flops_per_sample": work, "compute_factor": factor}

    def memory_needed(self, method: Method, parts: Parts | None) -> Floats:
        """Bytes that training needs on each client's device, (N,), including the method's state."""
        if parts is None:
            sizes = self.task.layout.sizes
            frozen = sum(sizes[name] for name in method.frozen())
            return self.task.memory_bytes(self.scenario.training, _kept(method), frozen)
        levels = range(len(parts.rates))
        return parts.of_clients([self.memory_of_part(method, parts, level) for level in levels])

    def memory_of_part(self, method: Method, parts: Parts, level: int) -> Floats:
        """Bytes that training a part needs on each client's device, (N,)."""
        kept = round(_kept(method) * parts.share(level))
        return parts.tasks[level].memory_bytes(self.scenario.training, kept)

    def memory_bytes(self) -> Floats | None:
        """Memory of each client's device in bytes, infinite if unknown; None if it is unknown for all devices."""
        given, of_client = self.scenario.devices.memory, self.memory_in_trace()
        memory = np.asarray(np.inf if given is None else given, dtype=np.float64)
        if memory.ndim and len(memory) != self.task.clients:
            raise UserError(
                f"{format_counted(len(memory), 'value')} for "
                f"{format_counted(self.task.clients, 'client')}",
                where="devices.memory",
                hint="give one for all, or one per client",
            )
        if of_client is None or memory.ndim:
            return None if given is None else memory
        return np.where(np.isnan(of_client), memory, of_client)

    def memory_in_trace(self) -> Floats | None:
        """Memory of each client's device in bytes, NaN if the main trace lacks it; None if it has no such column."""
        bundle, rows = self._main()
        table = None if bundle is None else bundle.tables.get("compute")
        if bundle is None or table is None or "ram_bytes" not in table.column_names:
            return None
        of_device = np.full(bundle.device_count, np.nan)
        ram_bytes = bundle.numpy("compute", "ram_bytes").astype(np.float64)
        known = np.flatnonzero(~np.isnan(ram_bytes))
        of_device[bundle.device_rows("compute")[known]] = ram_bytes[known]
        of_client: Floats = of_device[rows]
        return of_client

    @property
    def _main_part(self) -> PartName | None:
        """The first part with a bundle, from which tables that all parts share are read."""
        parts: tuple[PartName, ...] = get_args(PartName)
        return next((part for part in parts if self.bundle(part) is not None), None)

    def _main(self) -> tuple[TraceBundle | None, Ints]:
        """The bundle of the main part, and the row of each client's device in it."""
        part = self._main_part
        if part is None:
            return None, np.empty(0, dtype=np.int64)
        return self.bundle(part), self.device_rows(part)

    def _setting(self, part: PartName, key: Literal["trace", "assign"]) -> tuple[Any, str]:
        """The trace of a part or its pairing with clients, and the key that gives it, for the part or all devices."""
        devices = self.scenario.devices
        params = getattr(devices, part).params
        own = getattr(params, key) if isinstance(params, TraceParameters) else None
        shared = getattr(devices, key)
        return (shared, f"devices.{key}") if own is None else (own, f"devices.{part}.{key}")

    def trace_column(self, column: str, where: str) -> Array:
        """A column of the main trace's ``devices`` table, for each client."""
        bundle, rows = self._main()
        if bundle is None or not bundle.has("devices", column):
            names = "" if bundle is None else ", ".join(bundle.devices.column_names)
            raise UserError(
                f"the trace has no column '{column}' in its table of devices"
                if names
                else "there is no trace",
                where=where,
                hint=f"its columns are: {names}" if names else "name one in devices.trace",
            )
        return bundle.texts("devices", column)[rows].astype(str)

    def trace_key(self, part: PartName) -> str:
        """The parameter that names the bundle of a part."""
        return self._setting(part, "trace")[1]

    def bundle(self, part: PartName) -> TraceBundle | None:
        """The trace bundle of a part of the devices: its own, or that of all devices."""
        path, where = self._setting(part, "trace")
        if path is None or part in self._bundles:
            return self._bundles.get(part)
        if not path.exists():
            hint = bundled.suggested_trace(path)
            written = bundled.written(path)
            if not written.startswith(bundled.PREFIX):
                hint += f"\n  relative paths refer to {self.folder}"
            raise UserError(
                f"no such trace bundle: {written}",
                where=where,
                hint=f"{hint}\n  or make a bundle with 'fedsim traces import' or 'fedsim traces synthesize'",
            )
        self._bundles[part] = self.shared.trace(path)
        return self._bundles[part]

    def device_rows(self, part: PartName) -> Ints:
        """Row of each client's device in the bundle of a part."""
        bundle, (pairing, pairing_key) = self.bundle(part), self._setting(part, "assign")
        if bundle is None:
            return np.empty(0, dtype=np.int64)
        count, clients = bundle.device_count, self.task.clients
        if pairing == "by_name":
            return self._rows_by_name(bundle)
        if pairing == "sample":
            u = Stream(self.scenario.seed, Purpose.TRACE).uniforms(np.arange(clients))
            return np.minimum((u * count).astype(np.int64), count - 1)
        if count < clients:
            key = self.task.clients_key(self.scenario.task.params)
            fewer = f"set task.{key} to at most {count}" if key else "use fewer clients"
            raise UserError(
                f"{bundle.where} has {format_counted(count, 'device')} for "
                f"{format_counted(clients, 'client')}",
                where=self.trace_key(part),
                hint=f"{fewer}, use a larger bundle (fedsim traces scale), or draw a device for each client: "
                f"{pairing_key}: sample",
            )
        return np.arange(clients, dtype=np.int64)

    def _rows_by_name(self, bundle: TraceBundle) -> Ints:
        names = self.task.client_names
        if not names:
            raise UserError(
                "the clients have no names",
                where="devices.assign",
                hint="give the data set's samples groups and use task.partition: natural, or pair clients and devices "
                "in_order",
            )
        rows = _rows_of_names(names, bundle)
        if missing := [name for name, row in zip(names, rows, strict=True) if row < 0]:
            raise UserError(
                f"the trace has no device with the name of {format_counted(len(missing), 'client')}: "
                f"{format_names(missing[:3])}{', ...' if missing[3:] else ''}",
                where=bundle.where,
                hint="add them to the trace, or leave these clients out of the data set",
            )
        return rows


def _kept(method: Method) -> int:
    """Numbers of the method's state on a client's device."""
    memories = method.memories().values()
    return sum(memory.elements for memory in memories if memory.keeper != "server")


def _rows_of_names(names: Sequence[str], bundle: TraceBundle) -> Ints:
    """Row of the device of each name in a bundle; -1 if there is none."""
    rows = pc.index_in(pa.array(names, pa.string()), value_set=bundle.device_ids.cast(pa.string()))
    device_rows: Ints = rows.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return device_rows


def _power(energy: Energy, bundle: TraceBundle | None, rows: Ints, clients: int) -> Power:
    figures: list[Energy | EnergyClass] = [energy, *energy.classes.values()]
    watts = np.array([[item.download_w, item.compute_w, item.upload_w] for item in figures])
    if not energy.classes:
        return Power(watts, np.zeros(clients, dtype=np.uint8))
    where = "devices.energy.classes"
    if bundle is None or "kind" not in bundle.devices.column_names:
        raise UserError(
            "energy per kind of device needs a trace bundle that gives the kinds", where=where
        )
    codes, kinds = bundle.text_codes("devices", "kind")
    unknown = [kind for kind in energy.classes if kind not in kinds]
    if unknown:
        raise UserError(
            f"the trace bundle has no device of the kind '{unknown[0]}'",
            where=where,
            hint=f"its devices are: {', '.join(map(str, kinds)) or 'of no kind'}",
        )
    order = list(energy.classes)
    # The last entry is for devices of unknown kind.
    class_of_kind = [1 + order.index(kind) if kind in order else 0 for kind in kinds] + [0]
    return Power(watts, np.array(class_of_kind, dtype=np.uint8)[codes[rows]])
