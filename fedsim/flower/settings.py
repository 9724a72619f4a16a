"""The device file: a scenario whose task is a Flower app."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedsim.errors import UserError
from fedsim.scenario.loading import LoadedScenario, load_source
from fedsim.scenario.overrides import Override, apply_overrides
from fedsim.scenario.source import Source, read_yaml

_COUNTING = ("unit", "work")
_SECTIONS = {
    "name": None,
    "seed": None,
    "task": None,
    "devices": None,
    "stop": None,
    "training": ("batch_size",),
    "server": ("failure_detection", "aggregation_time"),
    "ignore": None,
}
"""The sections of a scenario that apply to a Flower app, each with its keys that apply; None if all do."""
DEFAULT_COMPUTE = {"name": "values", "step": "100ms"}
DEFAULT_NETWORK = {"latency": "50ms", "down": "20Mbps", "up": "10Mbps"}
"""Compute and network of devices for which none are given."""
DEFAULT_STOP = {"simulated_time": "365d"}


def load_devices(
    devices: Path | Mapping[str, Any] | None, name: str, overrides: Iterable[Override | str] = ()
) -> LoadedScenario:
    """The scenario of a Flower app.

    ``devices.compute.unit`` and ``devices.compute.work`` are moved to the task, where they belong.

    Args:
        devices: the YAML file, its content, or None for ten nodes that are always online.
        name: name of the run, if the file gives none.
        overrides: values by dotted path.
    """
    if isinstance(devices, Path):
        source, folder = read_yaml(devices), devices.resolve().parent
    else:
        source, folder = Source("devices", copy.deepcopy(dict(devices or {}))), Path.cwd()
    source = apply_overrides(source, overrides)
    data = source.data = {} if source.data is None else source.data
    if not isinstance(data, dict):
        raise UserError("a device file is a mapping of sections", where=source.label)
    for section, value in data.items():
        keys = _SECTIONS.get(section, ())
        others = [] if keys is None else [key for key in value or () if key not in keys]
        if section not in _SECTIONS or others:
            path = (section, *others[:1])
            raise UserError(
                f"'{'.'.join(path)}' has no effect on a Flower app, which decides that itself",
                where=source.key_place(path),
                hint="remove it; a device file may have the sections name, seed, task, devices, stop, "
                "training.batch_size, server.failure_detection, server.aggregation_time and ignore",
            )
    data.setdefault("name", name)
    data.setdefault("stop", dict(DEFAULT_STOP))
    task = data.setdefault("task", {})
    section = data.setdefault("devices", {})
    if isinstance(task, dict) and isinstance(section, dict):
        if task.setdefault("name", "flower") != "flower":
            raise UserError(
                f"the task of a Flower app is 'flower', not '{task['name']}'",
                where=source.value_place(("task", "name")),
                hint="write task: {clients: 100}",
            )
        compute = section.get("compute")
        if isinstance(compute, dict):
            for key in _COUNTING:
                if key in compute:
                    task[key] = compute.pop(key)
                    for places in (source.keys, source.values):
                        path = ("devices", "compute", key)
                        places[("task", key)] = places.get(path, source.key_place(path))
        if not section.get("trace"):
            given = section.get("compute")
            if given is None or (isinstance(given, dict) and "name" not in given):
                section["compute"] = {**DEFAULT_COMPUTE, **(given or {})}
            section.setdefault("network", dict(DEFAULT_NETWORK))
    return load_source(source, folder)


def resolved(loaded: LoadedScenario) -> dict[str, Any]:
    """The sections that concern a Flower app, with every default written out."""
    every = loaded.resolved()
    return {
        section: every[section] if keys is None else {key: every[section][key] for key in keys}
        for section, keys in _SECTIONS.items()
    }
