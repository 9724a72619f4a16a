"""Synthetic trace bundles of any size, calibrated to real traces or from a simple family.

A device is a function of the seed and its number: a bundle of 100 devices equals the first 100 devices of a bundle of
1,000,000 with the same seed and options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field, ValidationError

from fedsim.errors import unknown
from fedsim.parts.component import Parameters
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.problems import all_errors, problems
from fedsim.scenario.source import Source
from fedsim.traces.bundle import Eligibility, Manifest, TraceBundle, package_version
from fedsim.traces.synthesis.columns import (
    ComputeParams,
    ComputeSeriesParams,
    NetworkParams,
    NetworkSeriesParams,
    compute_series_table,
    compute_table,
    network_series_tables,
    network_table,
)
from fedsim.traces.synthesis.families import FAMILIES as FAMILIES
from fedsim.traces.synthesis.families import Population
from fedsim.traces.synthesis.presets import PRESETS as PRESETS
from fedsim.traces.tables import id_column, make_table
from fedsim.units import DAY_S

DEVICES_AT_ONCE = 1 << 16
ID_DIGITS = 7


class Synthesis(Parameters):
    """Options of a synthetic bundle."""

    population: str
    """A preset or a family of availability."""
    devices: int = Field(ge=1, le=100_000_000)
    """Number of devices."""
    days: float = Field(7.0, ge=1e-6, le=3660)
    """Length of the traces in days, from local midnight of a Monday; they repeat at their end."""
    seed: int = Field(0, ge=0)
    """Seed of all random numbers."""
    name: str | None = None
    """Name of the bundle; by default that of the population."""
    availability: dict[str, Any] = {}
    """Parameters of the family that differ from the preset."""
    compute: dict[str, Any] = {}
    """Parameters of the compute columns that differ from the preset."""
    network: dict[str, Any] = {}
    """Parameters of the network columns that differ from the preset."""
    compute_series: ComputeSeriesParams | None = None
    """Parameters of the variation of speed over time; none by default."""
    network_series: NetworkSeriesParams | None = None
    """Parameters of the variation of rates over time; none by default."""


def synthesize(spec: Synthesis, progress: Callable[[int], None] | None = None) -> TraceBundle:
    """A synthetic bundle; ``progress`` is called repeatedly with the number of devices done."""
    population = find_population(spec.population)
    sections = {
        section: _parameters(model, values, getattr(spec, section), section)
        for section, model, values in population_parameters(spec.population)
        if section in ("availability", "compute", "network")
    }
    span_us = round(spec.days * DAY_S * 1e6)
    stream, blocks = Stream(spec.seed, Purpose.TRACE), []
    for low in range(0, spec.devices, DEVICES_AT_ONCE):
        devices = np.arange(low, min(low + DEVICES_AT_ONCE, spec.devices))
        blocks.append(
            population.sessions(sections["availability"], devices, spec.days * DAY_S, stream)
        )
        if progress is not None:
            progress(low + len(devices))
    device, start_us, end_us, censored = map(np.concatenate, zip(*blocks, strict=True))
    numbers = pa.array(np.arange(spec.devices)).cast(pa.string())
    ids = pc.utf8_lpad(numbers, ID_DIGITS, padding="0")
    ids = pc.binary_join_element_wise("d", ids, "")
    compute, network = (
        Stream(spec.seed, purpose) for purpose in (Purpose.COMPUTE_PROFILE, Purpose.NETWORK_PROFILE)
    )
    tables: dict[str, dict[str, Any]] = {
        "devices": {
            "device_id": ids,
            "kind": population.kind,
            "window_start_us": 0,
            "window_end_us": span_us,
            "valid": True,
        },
        "availability": {
            "device_id": id_column(device, ids),
            "start_us": start_us,
            "end_us": end_us,
            "censored": censored,
        },
        "compute": compute_table(sections["compute"], ids, compute),
        "network": network_table(sections["network"], ids, network),
    }
    if spec.compute_series is not None:
        tables["compute_series"] = compute_series_table(
            spec.compute_series, ids, span_us / 1e6, Stream(spec.seed, Purpose.COMPUTE_JITTER)
        )
    if spec.network_series is not None:
        rates_bps = tables["network"]["bandwidth_bps"]
        tables["network_series"], tables["network_assign"] = network_series_tables(
            spec.network_series, rates_bps, ids, Stream(spec.seed, Purpose.NETWORK_JITTER)
        )
    manifest = Manifest(
        name=spec.name or spec.population,
        source="; ".join(filter(None, ("synthetic", population.source))),
        license="Apache-2.0",
        clock="local",
        epoch_weekday=0,
        horizon_us=span_us,
        on_end="wrap",
        eligibility=population.eligibility or Eligibility(words=population.description),
        importer="synthesize",
        importer_version=package_version(),
        options={
            "family": population.family or spec.population,
            **{section: params.model_dump(mode="json") for section, params in sections.items()},
            "compute_series": spec.compute_series and spec.compute_series.model_dump(mode="json"),
            "network_series": spec.network_series and spec.network_series.model_dump(mode="json"),
        },
        seed=spec.seed,
        counts={
            "devices": spec.devices,
            "sessions": len(device),
            "devices_never_available": spec.devices - len(np.unique(device)),
        },
    )
    made = {name: make_table(name, columns) for name, columns in tables.items()}
    return TraceBundle(manifest, made)


def find_population(name: str) -> Population:
    """The preset or the family of this name."""
    every = {**PRESETS, **FAMILIES}
    if name not in every:
        names = f"presets: {', '.join(PRESETS)}; families: {', '.join(FAMILIES)}"
        raise unknown("population", name, every, every=names)
    return every[name]


def population_parameters(name: str) -> Iterator[tuple[str, type[BaseModel], Mapping[str, Any]]]:
    """Sections of parameters of a population: key, model, and the preset's values."""
    population = find_population(name)
    yield "availability", population.Params, population.params
    yield "compute", ComputeParams, population.compute
    yield "network", NetworkParams, population.network
    yield "compute_series", ComputeSeriesParams, {}
    yield "network_series", NetworkSeriesParams, {}


def _parameters(
    model: type[BaseModel], preset: Mapping[str, Any], given: dict[str, Any], section: str
) -> Any:
    """The preset's parameters, overridden by those given."""
    values = {**preset, **given}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        nested = [replace(item, path=(section, *item.path)) for item in problems(error, values)]
        raise all_errors(nested, Source("parameters")) from error
