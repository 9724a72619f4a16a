"""Importing FLASH's files: values, what is dropped and counted, and what is refused."""

import json
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.traces.eligibility import rederive
from tests.traces.helpers import import_, intervals, online, refused

US = 1_000_000


ZERO = datetime(2020, 1, 2)


START = datetime(2020, 1, 31, 22)


def at(second: int) -> str:
    return (START + timedelta(seconds=second)).strftime("%Y-%m-%d %H:%M:%S")


def us(second: int) -> int:
    return int((START - ZERO).total_seconds() + second) * US


def messages(*events: tuple[int, str]) -> str:
    return "\n".join(f"{at(second)}\t{event}" for second, event in events)


def raw(path: Path, *devices: str, model: str = "M") -> Path:
    path.write_text(
        json.dumps(
            {
                str(number): {"guid": str(number), "model": model, "messages": text}
                for number, text in enumerate(devices)
            }
        )
    )
    return path


READY = [(0, "battery_charged_on"), (10, "wifi"), (20, "screen_off"), (30, "screen_lock")]


EVENTS = ["battery_charged_on", "battery_charged_off", "wifi", "2g", "4g", "unknown"]


def flash_by_loop(events: list[tuple[int, str]]) -> list[tuple[int, int]]:
    """FLASH's rule, read line by line: states, then sorted and merged where they touch, empty ones dropped."""
    charged = wifi = locked = False
    opened: int | None = None
    joined: list[list[int]] = []
    for second, event in events:
        if event.startswith("battery"):
            charged = event.endswith("_on")
        elif event in ("wifi", "2g", "4g", "unknown"):
            wifi = event == "wifi"
        elif event in ("screen_lock", "screen_unlock"):
            locked = event == "screen_lock"
        ready = charged and wifi and locked
        if ready and opened is None:
            opened = second
        elif not ready and opened is not None:
            if joined and opened <= joined[-1][1]:
                joined[-1][1] = second
            else:
                joined.append([opened, second])
            opened = None
    return [(us(low), us(high)) for low, high in joined if high > low]


def timers(path: Path, **devices: Any) -> Path:
    path.write_text(json.dumps(devices))
    return path


def timer(start: Any, end: Any, ready: Any, success: Any = True) -> dict[str, Any]:
    return {"isSuccess": success, "trace_start": start, "trace_end": end, "ready_time": ready}


def test_flash_rule_by_hand(tmp_path: Path) -> None:
    text = messages(*READY, (100, "Screen_UNLOCK"), (200, "55.0%"))
    path = raw(tmp_path / "s.json", f"\n{text}\n\n")
    bundle = import_("flash", path)
    assert intervals(bundle) == {"0": [(us(30), us(100))]}
    row = bundle.devices.to_pylist()[0]
    assert (row["window_start_us"], row["window_end_us"]) == (us(0), us(200))
    assert (row["model"], row["valid"]) == ("M", True)
    manifest = bundle.manifest
    assert (manifest.epoch, manifest.epoch_weekday, manifest.clock) == (
        "2020-01-02T00:00:00",
        3,
        "local",
    )
    assert manifest.eligibility is not None
    assert manifest.eligibility.expression == "charging and network == wifi and lock"
    assert [
        (event["time_us"], event["key"], event["value"])
        for event in bundle.tables["device_events"].to_pylist()
    ] == [
        (us(0), "charging", "on"),
        (us(10), "network", "wifi"),
        (us(20), "screen", "off"),
        (us(30), "lock", "on"),
        (us(100), "lock", "off"),
        (us(200), "battery_pct", "55.0"),
    ]


def test_an_unknown_line_invalidates_its_device_alone(tmp_path: Path) -> None:
    good = messages(*READY, (100, "screen_unlock"))
    path = raw(
        tmp_path / "s.json",
        good,
        good + f"\n{at(120)}\tphone_on_fire",
        good + "\nyesterday\twifi",
        good + "\n2020-02-30 10:00:00\twifi",
        good.replace("\t", " ", 1),
        "",
        messages((5, "wifi")),
    )
    bundle = import_("flash", path)
    assert [row["valid"] for row in bundle.devices.to_pylist()] == [True] + [False] * 6
    assert online(bundle, us(50)) == {"0"}
    counts = bundle.manifest.counts
    assert (counts["invalid_devices"], counts["invalid_lines"]) == (4, 4)
    assert counts["devices_without_span"] == 2
    message = refused("flash", raw(tmp_path / "bad.json", "2020-02-01 00:00:00 wifi"))
    assert "device 0, line 1 of messages" in message


def test_lines_out_of_order_are_sorted(tmp_path: Path) -> None:
    events = [*READY, (100, "screen_unlock"), (200, "10%")]
    mixed = [events[index] for index in (0, 2, 1, 3, 5, 4)]
    bundle = import_("flash", raw(tmp_path / "s.json", messages(*mixed)))
    assert intervals(bundle) == {"0": [(us(30), us(100))]}
    assert bundle.manifest.counts["events_out_of_order"] == 2


def test_another_rule_and_its_derivation_from_events(tmp_path: Path) -> None:
    path = raw(
        tmp_path / "s.json",
        messages(*READY, (60, "4g"), (100, "screen_unlock"), (120, "screen_on"), (130, "5g")),
        messages((0, "screen_off"), (40, "wifi"), (80, "screen_on"), (90, "battery_charged_on")),
    )
    rule = "not screen and network in (wifi, 4g)"
    direct = import_("flash", path, eligibility=rule)
    assert intervals(direct) == {"0": [(us(20), us(120))], "1": [(us(40), us(80))]}
    derived = rederive(import_("flash", path), rule)
    assert derived.tables["availability"].equals(direct.tables["availability"])
    assert derived.manifest.eligibility is not None
    assert derived.manifest.eligibility.expression == rule


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 8), st.sampled_from(EVENTS)), min_size=1, max_size=40),
        min_size=1,
        max_size=4,
    )
)
def test_raw_states_match_a_line_by_line_reading(
    tmp_path_factory: pytest.TempPathFactory, devices: list[list[tuple[int, str]]]
) -> None:
    timelines = []
    for steps in devices:
        now, events = 0, []
        for step, event in steps:
            now += step // 3
            events.append((now, event))
        timelines.append([*events, (now + 1, "1.0%")])
    path = raw(tmp_path_factory.mktemp("s") / "s.json", *(messages(*t) for t in timelines))
    expected = {str(row): flash_by_loop(events) for row, events in enumerate(timelines)}
    assert intervals(import_("flash", path)) == expected


def test_timers(tmp_path: Path) -> None:
    path = timers(
        tmp_path / "t.json",
        a=timer(100.0, 200.0, [[110.0, 120.0], [150.0, 150.0], [190.5, 200.0]]),
        b=timer(None, None, [], False),
    )
    bundle = import_("flash", path)
    assert intervals(bundle) == {
        "a": [(110 * US, 120 * US), (int(190.5 * US), 200 * US)],
        "b": [],
    }
    counts = bundle.manifest.counts
    assert (counts["zero_length"], counts["invalid_devices"]) == (1, 1)
    # Each device repeats with its own length: 90 s is 190 s, and so is 290 s.
    assert online(bundle, 90.7 * US) == online(bundle, 290.7 * US) == {"a"}
    assert online(bundle, 120 * US) == set()


def test_timers_take_no_rule(tmp_path: Path) -> None:
    path = timers(tmp_path / "t.json", a=timer(0.0, 10.0, []))
    assert "raw state file" in refused("flash", path, eligibility="charging")


def test_speeds(tmp_path: Path) -> None:
    devices = timers(tmp_path / "t.json", a=timer(0.0, 10.0, []), b=timer(0.0, 10.0, []))
    speeds = timers(
        tmp_path / "speed.json",
        a={"down_u": 250.0, "down_sigma": 50.0, "up_u": 125.0, "up_sigma": 0.0},
        z={"down_u": 1.0, "down_sigma": 0.0, "up_u": 1.0, "up_sigma": 0.0},
    )
    bundle = import_("flash", devices, speeds)
    rows = bundle.tables["network"].to_pylist()
    assert [(r["device_id"], r["direction"], r["bandwidth_bps"]) for r in rows] == [
        ("a", "down", 2e6),
        ("a", "up", 1e6),
    ]
    assert rows[0]["bandwidth_cv"] == pytest.approx(0.2)
    assert bundle.manifest.counts["speeds_without_device"] == 1
    assert bundle.manifest.counts["devices_without_speed"] == 1
    alone = import_("flash", speeds)
    assert alone.device_ids.to_pylist() == ["a", "z"]
    huge = timers(
        tmp_path / "h.json", a={"down_u": 1.0, "down_sigma": 0.0, "up_u": 1.0, "up_sigma": 1e300}
    )
    with warnings.catch_warnings(action="error"):
        assert "bandwidth_cv is inf" in refused("flash", huge)


@pytest.mark.real_data
def test_real_timers_are_value_exact(real_traces: Path) -> None:
    source = real_traces / "flash_state_1k" / "cached_timers.json"
    data = json.loads(source.read_text())
    bundle = import_("flash", source)
    read_intervals = intervals(bundle)
    assert list(read_intervals) == list(data)
    for key, record in data.items():
        positive = [(s, e) for s, e in record["ready_time"] if e > s]
        assert [(s / US, e / US) for s, e in read_intervals[key]] == positive
    counts = bundle.manifest.counts
    assert (counts["zero_length"], counts["invalid_devices"]) == (844, 290)
    assert {key for key, count in counts.items() if count} == {"zero_length", "invalid_devices"}
    assert sum(map(len, read_intervals.values())) == 14139 - 844
