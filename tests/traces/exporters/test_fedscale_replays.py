"""Imported bundles through fedsim's own index and back through other simulators' files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedsim.traces.availability import AvailabilityIndex
from tests.traces.helpers import export, import_, online
from tests.traces.timers import names, timer_file

US = 1_000_000


NS = 1_000_000_000


def test_export_on_the_clock_splits_sessions_at_the_seam(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    counts = export("fedscale", bundle, tmp_path / "clock.json")
    # 1050..1085 is 30..65 of a period of 60 s: split. 1095..1100 is 95..100 of 100 s: not.
    assert counts["split_at_seam"] == 1
    assert counts["invalid_devices"] == 1
    data = json.loads((tmp_path / "clock.json").read_text())
    assert data["8"] == {
        "duration": 35,
        "active": [0, 30],
        "inactive": [5, 60],
        "finish_time": 60,
        "model": "unknown",
    }
    again = import_("fedscale", tmp_path / "clock.json")
    for half_second in range(1, 800, 2):
        assert online(again, half_second * US / 2) == online(bundle, half_second * US / 2)


def test_export_by_device_keeps_each_devices_own_start(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    export("fedscale", bundle, tmp_path / "device.json", align="device")
    data = json.loads((tmp_path / "device.json").read_text())
    assert (data["5"]["active"], data["5"]["inactive"]) == ([0, 40, 95], [10, 60, 100])
    assert (data["8"]["active"], data["8"]["inactive"]) == ([20], [55])


@pytest.mark.real_data
def test_real_flash_to_fedscale_and_back(real_traces: Path, tmp_path: Path) -> None:
    bundle = import_("flash", real_traces / "flash_state_1k" / "cached_timers.json")
    counts = export("fedscale", bundle, tmp_path / "f.pkl")
    assert (counts["rounded"], counts["vanished"], counts["invalid_devices"]) == (0, 0, 290)
    again = import_("fedscale", tmp_path / "f.pkl")
    assert again.device_count == counts["clients"] == 710 - counts["never_available"]
    ours = AvailabilityIndex.from_bundle(bundle)
    theirs = AvailabilityIndex.from_bundle(again)
    generator = np.random.default_rng(8)
    for time_ns in generator.integers(0, 60 * 86400 * NS, 100).tolist():
        assert names(ours, bundle, time_ns) == names(theirs, again, time_ns)
