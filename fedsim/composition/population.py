"""Builds the population of a run from the scenario's ``devices`` section."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fedsim.devices.availability.base import AvailabilityParams
from fedsim.devices.battery import Batteries
from fedsim.devices.compute.times import ComputeTimes
from fedsim.devices.context import DeviceContext
from fedsim.devices.population import Population, Power
from fedsim.errors import UserError
from fedsim.network.base import NetworkContext
from fedsim.network.columns import text_codes
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.loading import LoadedScenario
from fedsim.scenario.model import Devices, Energy, EnergyClass
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.intervals import device_periods
from fedsim.traces.validation import require_sound

Int64Array = npt.NDArray[np.int64]

# In the order in which their bundles are asked for what all of the population shares.
_PartName = Literal["compute", "availability", "network"]

_DAY_S = 86_400.0


class Bundles:
    """Trace bundles by folder, each read once."""

    def __init__(self) -> None:
        self._loaded: dict[Path, TraceBundle] = {}

    def read(self, path: Path) -> TraceBundle:
        """The bundle in ``path``.

        Raises:
            UserError: it is missing or damaged, or its tables contradict themselves.
        """
        path = path.resolve()
        if path not in self._loaded:
            bundle = TraceBundle.read(path)
            require_sound(bundle)
            self._loaded[path] = bundle
        return self._loaded[path]


def build_population(
    loaded: LoadedScenario,
    samples: Int64Array,
    *,
    flops_per_sample: float | None,
    compute_factor: float,
    memory_needed_bytes: Callable[[], npt.NDArray[np.float64]],
    bundles: Bundles,
) -> Population:
    """The devices of all clients.

    Args:
        loaded: the scenario.
        samples: training samples of each client, (N,).
        flops_per_sample: counted operations of a forward and backward pass, where there is a model.
        compute_factor: the method's cost of a local step.
        memory_needed_bytes: gives the memory that model and batch take on each client's device, (N,).
        bundles: trace bundles.

    Raises:
        UserError: the section and the traces do not fit the clients.
    """
    devices, seed, clients = loaded.scenario.devices, loaded.scenario.seed, len(samples)

    def context_for(part: _PartName, eligible: npt.NDArray[np.bool_]) -> DeviceContext:
        bundle = _bundle_of(devices, part, bundles)
        return DeviceContext(
            clients=clients,
            seed=seed,
            folder=loaded.folder,
            bundle=bundle,
            device_rows=_device_rows(bundle, clients, devices, seed),
            batch_samples=np.minimum(samples, loaded.scenario.training.batch_size),
            flops_per_sample=flops_per_sample,
            eligible=eligible,
            compute_factor=compute_factor,
        )

    everybody = np.ones(clients, dtype=np.bool_)
    given = (_bundle_of(devices, part, bundles) for part in get_args(_PartName))
    main = next((bundle for bundle in given if bundle is not None), None)
    rows = _device_rows(main, clients, devices, seed)
    memory = _memory_of(main, rows, devices)
    eligible = everybody if memory is None else memory >= memory_needed_bytes()
    compute_model = devices.compute.create(context_for("compute", everybody))
    availability_params: AvailabilityParams = devices.availability.params
    index = devices.availability.create(context_for("availability", eligible)).index()
    network_bundle = _bundle_of(devices, "network", bundles)
    network = devices.network.create().build(
        NetworkContext(
            clients,
            network_bundle,
            _device_rows(network_bundle, clients, devices, seed),
            seed,
            loaded.folder,
        )
    )
    return Population(
        clients=clients,
        availability=index,
        on_disconnect=availability_params.on_disconnect,
        compute=ComputeTimes(compute_model),
        network=network,
        power=_power(devices.energy, main, rows, clients),
        batteries=Batteries(devices.energy, clients) if devices.energy.battery_j else None,
        eligible=eligible,
    )


def availability_cycle_s(devices: Devices, bundles: Bundles) -> float:
    """One cycle of the devices' availability: a day, or the period after which their trace repeats where that is
    shorter."""
    bundle = _bundle_of(devices, "availability", bundles)
    if bundle is None or "availability" not in bundle.tables:
        return _DAY_S
    if (getattr(devices.availability.params, "on_end", None) or bundle.manifest.on_end) != "wrap":
        return _DAY_S
    window = bundle.numpy("devices", "window_end_us") - bundle.numpy("devices", "window_start_us")
    period_s = float(device_periods(bundle, window).max(initial=0)) / 1e6
    return min(period_s, _DAY_S) if period_s > 0 else _DAY_S


def _bundle_of(devices: Devices, part: _PartName, bundles: Bundles) -> TraceBundle | None:
    own = getattr(getattr(devices, part).params, "trace", None)
    path = own if own is not None else devices.trace
    if path is None:
        return None
    if not path.exists():
        raise UserError(
            f"no such trace bundle: {path}",
            where="devices.trace" if own is None else f"devices.{part}.trace",
            hint="'fedsim traces import' and 'fedsim traces synthesize' make them",
        )
    return bundles.read(path)


def _device_rows(
    bundle: TraceBundle | None, clients: int, devices: Devices, seed: int
) -> Int64Array:
    """Row of each client's device in a bundle; client i is the same device in every bundle that has it."""
    if bundle is None:
        return np.empty(0, dtype=np.int64)
    count = bundle.device_count
    if devices.assign == "sample":
        u = Stream(seed, Purpose.TRACE).uniforms(np.arange(clients))
        return np.minimum((u * count).astype(np.int64), count - 1)
    if count < clients:
        raise UserError(
            f"the trace bundle has {count} devices for {clients} clients",
            where=bundle.where,
            hint="use fewer clients, a larger bundle (fedsim traces sample), or devices.assign: sample",
        )
    return np.arange(clients, dtype=np.int64)


def _memory_of(
    bundle: TraceBundle | None, rows: Int64Array, devices: Devices
) -> npt.NDArray[np.float64] | None:
    """Memory of each client's device in bytes, endless where it is not known; None where it is of no device."""
    memory = np.inf if devices.memory is None else devices.memory
    table = None if bundle is None else bundle.tables.get("compute")
    if bundle is None or table is None or "ram_bytes" not in table.column_names:
        return None if devices.memory is None else np.asarray(memory, dtype=np.float64)
    of_device = np.full(bundle.device_count, np.nan)
    told = bundle.numpy("compute", "ram_bytes").astype(np.float64)
    known = np.flatnonzero(~np.isnan(told))
    of_device[bundle.device_rows("compute")[known]] = told[known]
    of_client = of_device[rows]
    return np.where(np.isnan(of_client), memory, of_client)


def _power(energy: Energy, bundle: TraceBundle | None, rows: Int64Array, clients: int) -> Power:
    figures: list[Energy | EnergyClass] = [energy, *energy.classes.values()]
    watts = np.array([[item.download_w, item.compute_w, item.upload_w] for item in figures])
    if not energy.classes:
        return Power(watts, np.zeros(clients, dtype=np.uint8))
    where = "devices.energy.classes"
    if bundle is None or "kind" not in bundle.devices.column_names:
        raise UserError(
            "power by kind of device needs a trace bundle that tells the kinds", where=where
        )
    codes, kinds = text_codes(bundle.devices, "kind")
    unknown = [kind for kind in energy.classes if kind not in kinds]
    if unknown:
        raise UserError(
            f"no device of the trace bundle is a '{unknown[0]}'",
            where=where,
            hint=f"its devices are: {', '.join(map(str, kinds)) or 'of no kind'}",
        )
    order = list(energy.classes)
    # The last entry is for devices whose kind is not known.
    class_of_kind = [1 + order.index(kind) if kind in order else 0 for kind in kinds] + [0]
    return Power(watts, np.array(class_of_kind, dtype=np.uint8)[codes[rows]])
