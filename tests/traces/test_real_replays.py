"""Replays of real traces against readings of the raw files that share no code with the importer or the index."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedsim.parts.catalog import CATALOG
from fedsim.traces.availability import AvailabilityIndex
from fedsim.traces.importers import import_bundle
from fedsim.traces.validation import implausible_times

NS = 1_000_000_000
WEEK_S = 7 * 86_400

pytestmark = pytest.mark.real_data


def instants(count, seed):
    """Instants over three weeks that are no whole seconds, since the sources count both ends of an interval."""
    return np.random.default_rng(seed).integers(0, 3 * WEEK_S, count) + 0.5


def check(index, names, online_at, times):
    """The online set, and for a few clients the next change, at some instants."""
    for t in times.tolist():
        t_ns = round(t * NS)
        expected = [row for row, name in enumerate(names) if online_at(name, t)]
        assert index.online_clients(t_ns).tolist() == expected
        for client in range(0, len(names), 37):
            online = online_at(names[client], t)
            assert index.is_online(client, t_ns) == online
            change = (
                index.online_until(client, t_ns) if online else index.next_online(client, t_ns)
            ) / NS
            if change > 1e9:
                continue
            assert online_at(names[client], change - 0.25) == online
            assert online_at(names[client], change + 0.25) != online


def read(name, *paths):
    importer = CATALOG.parts("importer")[name]
    return import_bundle(importer, list(paths), importer.Params())


def test_flash_timers(fedsim_data):
    path = fedsim_data / "traces" / "flash_state_1k" / "cached_timers.json"
    raw = json.loads(path.read_text())
    bundle = read("flash", path)
    assert implausible_times(bundle) is None
    source = "source_id" if "source_id" in bundle.devices.column_names else "device_id"
    names = bundle.devices.column(source).to_pylist()
    assert sorted(names) == sorted(raw)

    def online_at(name, t):
        entry = raw[name]
        if not entry["isSuccess"]:
            return False
        start, end = entry["trace_start"], entry["trace_end"]
        t = (t - start) % (end - start) + start
        return any(a <= t <= b for a, b in entry["ready_time"])

    check(AvailabilityIndex.from_bundle(bundle), names, online_at, instants(12, seed=0))


def test_fedscale_behaviour(fedsim_data):
    path = fedsim_data / "traces" / "fedscale_100" / "client_behave_trace_100.json"
    raw = json.loads(path.read_text())
    bundle = read("fedscale", path)
    assert implausible_times(bundle) is None
    source = "source_id" if "source_id" in bundle.devices.column_names else "device_id"
    names = bundle.devices.column(source).to_pylist()
    assert sorted(names) == sorted(raw)

    def online_at(name, t):
        entry = raw[name]
        t %= entry["finish_time"]
        return any(
            a <= t <= b for a, b in zip(entry["active"], entry["inactive"], strict=True) if b > a
        )

    check(AvailabilityIndex.from_bundle(bundle), names, online_at, instants(60, seed=1))
