"""Availability from a bundle, by another rule of eligibility."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.composition.assembly import assemble
from fedsim.errors import UserError
from tests.devices.worlds import LINKS, STEPS, S, phones, timing
from tests.traces.cases import HOUR, bundle_of


def test_a_scenario_can_ask_for_another_eligibility(tmp_path: Path) -> None:
    """Charging from 1 h to 4 h, on Wi-Fi from 2 h: by the bundle's own table the device is online for one minute."""
    events = [(0, "network", "4g"), (1, "charging", "on"), (2, "network", "wifi")]
    events += [(4, "charging", "off")]
    bundle_of(
        {"d0": [(0, 60_000_000)]},
        on_end="unavailable",
        tables={
            "device_events": {
                "device_id": ["d0"] * len(events),
                "time_us": [hour * HOUR for hour, _, _ in events],
                "key": [key for _, key, _ in events],
                "value": [value for _, _, value in events],
            }
        },
    ).write(tmp_path / "events")

    def online(**options: Any) -> list[float]:
        devices = {
            "trace": str(tmp_path / "events"),
            "compute": STEPS,
            "network": LINKS,
            "availability": options,
        }
        index = assemble(fedsim.read_scenario(timing(devices, clients=1))).population.availability
        start = index.next_online(0, 0)
        return [start / 3600 / S, index.online_until(0, start) / 3600 / S]

    assert online() == [0, 1 / 60]
    assert online(require="charging") == [1, 4]
    assert online(require="charging and network == wifi") == [2, 4]
    with pytest.raises(UserError, match="eligibility, column"):
        online(require="charging and")
    devices = {"trace": phones(tmp_path), "compute": STEPS, "network": LINKS}
    loaded = fedsim.read_scenario(timing({**devices, "availability": {"require": "charging"}}))
    with pytest.raises(UserError, match="no device_events table"):
        assemble(loaded)
