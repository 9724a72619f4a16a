"""Clients that are always online, and availability from a bundle, perhaps by another rule of eligibility."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsim
from fedsim.composition.build import build
from fedsim.composition.build import check_scenario as check
from fedsim.devices.availability.trace import Always
from fedsim.errors import UserError
from fedsim.units import NEVER
from tests.devices.worlds import LINKS, STEPS, S, context, phones, timing
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
        index = build(fedsim.read_scenario(timing(devices, clients=1))).population.availability
        start = index.next_online(0, 0)
        return [start / 3600 / S, index.online_until(0, start) / 3600 / S]

    assert online() == [0, 1 / 60]
    assert online(require="charging") == [1, 4]
    assert online(require="charging and network == wifi") == [2, 4]
    with pytest.raises(UserError, match="eligibility, column"):
        online(require="charging and")
    devices = {"trace": str(tmp_path / "events"), "compute": STEPS, "network": LINKS}
    never = {"availability": {"require": "not charging and " * 50 + "charging"}}
    with pytest.raises(UserError, match=r"never meet the rule '.{60}\.\.\.'"):
        check(fedsim.read_scenario(timing({**devices, **never}, clients=1)))
    devices["trace"] = phones(tmp_path)
    loaded = fedsim.read_scenario(timing({**devices, "availability": {"require": "charging"}}))
    with pytest.raises(UserError, match="no device_events table"):
        build(loaded)


def test_everything_recorded_on_a_device_starts_together(tmp_path: Path) -> None:
    """Simulated time 0 is 100 s in the trace, and 101 s in the link's series.

    32 kbit take 1 s to arrive. From 1 s on: 4 steps of 0.5 s by 3 s, 4 steps of 1 s by 7 s, 2 steps by 8 s. The upload
    has 1 s at 32 kbit/s before the rate falls at 9 s.
    """
    second = 1_000_000
    bundle_of(
        {"d0": [(100 * second, 200 * second)]},
        on_end="unavailable",
        tables={
            "compute_series": {
                "device_id": ["d0"], "start_us": [103 * second], "dur_us": [4 * second],
                "multiplier": [2.0],
            },
            "network_series": {
                "series_id": ["s"] * 3, "direction": ["both"] * 3,
                "start_us": [0, 101 * second, 110 * second],
                "dur_us": [101 * second, 9 * second, 90 * second],
                "rate_bps": [1.0, 32_000.0, 16_000.0],
            },
            "network_assign": {"device_id": ["d0"], "series_id": ["s"], "offset_us": [second],
                "scale": [1.0],
            },
        },
    ).write(tmp_path / "joint")  # fmt: skip
    devices = {
        "trace": str(tmp_path / "joint"),
        "compute": STEPS,
        "network": {"name": "traced", "latency": 0},
        "availability": {"start": "100s"},
    }
    run = fedsim.run(timing(devices, clients=1), tmp_path / "run")
    row = run.dispatches.iloc[0]
    assert (row.downloaded_s, row.computed_s, row.arrived_s) == (1, 8, 9)


def test_a_shift_moves_everything_recorded_on_a_device(tmp_path: Path) -> None:
    """Each client's steps are slow in the same part of its time online, wherever its trace begins."""
    hours = 60 * 60 * S // 1000
    bundle_of(
        {"d0": [(0, 2 * hours)], "d1": [(0, 2 * hours)]},
        days=1,
        on_end="wrap",
        devices={"period_us": [24 * hours, 36 * hours]},
        tables={
            "compute_series": {
                "device_id": ["d0", "d1"], "start_us": [0, 0], "dur_us": [2 * hours] * 2,
                "multiplier": [2.0, 2.0],
            },
        },
    ).write(tmp_path / "phases")  # fmt: skip
    devices = {
        "trace": str(tmp_path / "phases"),
        "compute": STEPS,
        "network": LINKS,
        "availability": {"shift": "any"},
    }
    pause = {"schedule": {"name": "sync", "pause": "20h"}}
    scenario = timing(devices, clients=2, stop={"rounds": 6}, server=pause)
    scenario["server"]["selection"] = {"name": "uniform"}
    rows = fedsim.run(scenario, tmp_path / "run").dispatches
    assert set(rows.computed_s - rows.downloaded_s) == {10.0}
    assert rows.dispatched_s.max() > 24 * 3600


def test_eligible_clients_are_online_at_every_time() -> None:
    model = Always(Always.Params(), context(3, eligible=np.array([True, False, True])))
    clients = np.arange(3)
    for now_ns in (0, 10**18):
        online, change_ns = model.index().state_many(clients, now_ns)
        assert np.where(online, now_ns, change_ns).tolist() == [now_ns, NEVER, now_ns]
    assert model.offset_ns() == 0


@pytest.mark.parametrize("window_us", [2, 5_000, 600_000])
def test_a_trace_that_repeats_within_a_second_is_refused(window_us: int, tmp_path: Path) -> None:
    """Its times are in the wrong unit, and the sessions of a day would fill the memory."""
    bundle_of({"d0": [(0, 1)]}, days=window_us / (24 * HOUR), on_end="wrap").write(
        tmp_path / "short"
    )
    devices = {"trace": str(tmp_path / "short"), "compute": STEPS, "network": LINKS}
    loaded = fedsim.read_scenario(timing(devices, clients=1))
    with pytest.raises(
        UserError, match=r"short: a client comes online every .*\n.*correct its source"
    ):
        check(loaded)
