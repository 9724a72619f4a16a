"""The parts that scenarios may name, by kind; each package is imported only when a part of its kind is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from fedsim.components import Component
from fedsim.scenario.catalog import Catalog, Kind


def _kind(package: str, base: str) -> Kind:
    """Parts that ``package.registry()`` lists, with ``module:Class`` as the base of a user's own."""
    module, _, class_name = base.partition(":")

    def registry() -> Mapping[str, type[Component]]:
        return cast(Mapping[str, type[Component]], importlib.import_module(package).registry())

    def base_class() -> type[Component]:
        return cast(type[Component], getattr(importlib.import_module(module), class_name))

    return Kind(registry, base_class)


def _load_model(reference: str, folder: Path) -> type[Component]:
    """A model of the user's own, which may be a plain torch module."""
    from fedsim.tasks.user_model import load_user_model

    return load_user_model(reference, folder)


CATALOG = Catalog(
    {
        "dataset": _kind("fedsim.tasks.datasets", "fedsim.tasks.dataset:DatasetComponent"),
        "partition": _kind("fedsim.tasks.partitions", "fedsim.tasks.partition:Partitioner"),
        "model": replace(
            _kind("fedsim.tasks.models", "fedsim.tasks.model:ModelComponent"), load=_load_model
        ),
        "method": _kind("fedsim.methods", "fedsim.methods.base:Method"),
        "selection": _kind("fedsim.scheduling.selections", "fedsim.scheduling.base:Selection"),
        "schedule": _kind("fedsim.scheduling.schedules", "fedsim.scheduling.base:Schedule"),
        "compute": _kind("fedsim.devices.compute", "fedsim.devices.compute.base:ComputeModel"),
        "availability": _kind(
            "fedsim.devices.availability", "fedsim.devices.availability.base:AvailabilityModel"
        ),
        "metric": _kind("fedsim.learning.metrics", "fedsim.learning.metrics.base:Metric"),
        "network": _kind("fedsim.network", "fedsim.network.base:NetworkKind"),
        "importer": _kind("fedsim.traces.importers", "fedsim.traces.importers:Importer"),
    }
)
"""All kinds of parts of this installation."""
