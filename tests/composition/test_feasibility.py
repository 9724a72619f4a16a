"""What the clients can never do is refused if it is certain, and named with the number of clients if it is not.

The limits are those of the worked example of docs/time.md: clients whose dispatches take 13.1 s, 23.1 s and 43.1 s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fedsim
from fedsim.api import read_scenario
from fedsim.composition.checking import check
from fedsim.errors import UserError
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.tables import make_table
from tests.cli.invoking import run
from tests.devices.worlds import phones
from tests.simulation.harness import online_bundle


def world(**sections: Any) -> dict[str, Any]:
    devices: dict[str, Any] = {
        "compute": {"name": "values", "step": ["1s", "2s", "4s"]},
        "network": {"name": "static", "latency": "50ms", "down": "8Mbps", "up": "4Mbps"},
    }
    base: dict[str, Any] = {
        "task": {"name": "timing", "clients": 3, "parameters": 250_000},
        "training": {"local_steps": 10},
        "devices": {**devices, **sections.pop("devices", {})},
        "stop": {"rounds": 2},
    }
    return base | sections


def crowd(**sections: Any) -> dict[str, Any]:
    """3,000 equal clients, in a run that ends after 1,000 arrivals."""
    devices = {"compute": {"name": "values", "step": "1s"}, **sections.pop("devices", {})}
    task = {"name": "timing", "clients": 3000, "parameters": 250_000}
    return world(task=task, devices=devices, stop={"arrivals": 1000}, **sections)


def sync(**schedule: Any) -> dict[str, Any]:
    return {"schedule": {"name": "sync", **schedule}}


def jittery() -> dict[str, Any]:
    step = ["1s", "2s", "4s"]
    return {"compute": {"name": "values", "step": step, "jitter": {"cv": 0.1}}}


def tcp(**more: Any) -> dict[str, Any]:
    """The same links with TCP."""
    return {"network": {**world()["devices"]["network"], "transport": {"name": "tcp"}, **more}}


LINKS = {"down": "8Mbps", "up": "4Mbps"}


def shared(capacity: str, latency: str) -> dict[str, Any]:
    """A core node with three sites behind the server's link of this capacity and latency."""
    levels = {"capacity": [capacity, "1Gbps"], "latency": [latency, "5ms"]}
    return {"name": "shared", "topology": {"name": "tree", "fan_out": [1, 3], **levels}, **LINKS}


TIERED = {
    "method": "fedat",
    "schedule": {"name": "tiered", "speed_ratio": 1.5, "profiled": "all"},
    "selection": {"cohort": 1},
}
PHONES = {"name": "trace", "trace": "builtin:phones_week"}


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (
            world(server=sync(deadline=13)),
            "no client can finish a dispatch within 13 s; the fastest needs 13.1 s\n  raise "
            "server.schedule.deadline to at least 13.1s for the fastest client, 43.1s for all, or give less work",
        ),
        (world(server={"schedule": {"name": "async", "timeout": "1ns"}}), "no client can finish"),
        (world(server={"schedule": {"name": "window", "deadline": 13}}), "no client can finish"),
        (
            world(server=sync(deadline=4) | {"partial_work": "send"}),
            "no client can finish one local step within 4 s",
        ),
        (
            world(training={"time_budget": 60}, server=sync(deadline=60)),
            r"the fastest needs 1 min 3(.|\n)* to at least 63.1s, or give less work",
        ),
        (world(server=sync(min_cohort=4)), "a round needs 4 clients, but there are 3"),
        (world(server={"selection": {"cohort": 4}}), "a cohort of 4 cannot be drawn from 3"),
        (
            world(server={"schedule": {"name": "async", "concurrency": 4}}),
            "4 clients cannot be busy at once: there are only 3",
        ),
        (
            crowd(server={"schedule": {"name": "async", "concurrency": 4000}}),
            "4,000 clients cannot be busy at once: there are only 3,000",
        ),
        (
            crowd(devices={"memory": "1kB"}),
            "none of the 3,000 clients .*: 3,000 have less memory than",
        ),
        (
            crowd(server={"schedule": {"name": "buffered", "buffer_size": 2000}}),
            "a version needs 2,000 updates, but the run ends after 1,000 arrivals",
        ),
        (crowd(server=sync(min_cohort=4000)), "a round needs 4,000 clients, but there are 3,000"),
        (
            crowd(server={"selection": {"cohort": 4000}}),
            "a cohort of 4,000 cannot be drawn from 3,000 clients",
        ),
        (world(devices={"memory": "1kB"}), "none of the 3 clients .*: 3 have less memory than"),
        (
            world(
                devices={"failures": {"upload_loss": 1}},
                server={"schedule": "async"},
                stop={"arrivals": 1},
            ),
            "every upload is lost, so the run never ends",
        ),
    ],
)
def test_what_is_certain_is_refused(scenario: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(read_scenario(scenario))


@pytest.mark.parametrize(
    ("scenario", "messages"),
    [
        (world(server=sync(deadline=43.1)), []),
        (world(server=sync(deadline=43.0999)), ["1 of 3 clients cannot finish a dispatch"]),
        (world(server=sync(deadline=13.1)), ["2 of 3 clients cannot finish a dispatch"]),
        # A draw may be shorter, so nothing is certain.
        (world(server=sync(deadline=13), devices=jittery()), ["3 of 3 clients cannot finish"]),
        (
            world(server=sync(deadline=5) | {"partial_work": "send"}),
            ["2 of 3 clients cannot finish"],
        ),
        (
            world(server=sync(over_selection=2) | {"selection": {"cohort": 2}}),
            ["4 clients should work at once, but there are 3"],
        ),
        (world(devices={"failures": {"upload_loss": 1}}), ["every upload is lost"]),
        # exp(-1e3 x 20 / 3600) is above 1 in 1,000; exp(-1e3 x 40 / 3600) is below.
        (world(devices={"failures": {"crash_rate": 1e3}}), ["for 1 of 3 clients, fewer than 1 in"]),
        # Five bits per second; a client whose link is off is meant to be.
        (
            world(devices={"network": {"name": "static", "down": "8Mbps", "up": 5}}),
            ["the uplink of 3 of 3 clients has less than 1 kbit/s"],
        ),
        (world(devices={"network": {"name": "static", "down": "1kbps", "up": "1kbps"}}), []),
        # 1.05 s at 0.8 W, 10, 20 or 40 s at 2.5 W and 2.05 s at 1.2 W: 28.3, 53.3 and 103.3 J.
        (
            world(devices={"energy": {"battery_j": 53.2, "battery_floor": 0.54}}),
            ["for 2 of 3 clients, a full battery (53.2 J) does not last for a dispatch, which"],
        ),
        (world(devices={"energy": {"battery_j": 103.4, "battery_floor": 0.9999}}), []),
        # At a charge of 60, all but the last finish; above 103.3 J, all do.
        (
            world(devices={"energy": {"battery_j": 120, "battery_floor": 0.5}}),
            [
                "for 1 of 3 clients, a battery at its floor (60 J) does not last for a dispatch, which "
                "needs up to 103 J"
            ],
        ),
        (world(devices={"energy": {"battery_j": 120, "battery_floor": 0.862}}), []),
        # Forty seconds.
        (
            world(devices={"network": {"name": "static", **LINKS, "latency": 40}}),
            ["the latency of 3 of 3 clients is above 5 s"],
        ),
        (world(devices={"network": {"name": "static", **LINKS, "latency": "5s"}}), []),
        (
            world(devices={"network": {"name": "static", **LINKS, "down": "160Gbps"}}),
            ["the downlink of 3 of 3 clients has more than 100 Gbit/s"],
        ),
        (
            world(devices={"network": shared("1000", "2")}),
            [
                "2 of 8 links of the topology have less than 10 kbit/s, the first from server to n0",
                "2 of 8 links of the topology have a latency above 1 s, the first from server to n0",
            ],
        ),
        (world(devices={"network": shared("1Gbps", "5ms")}), []),
        # Three seconds, and the 23.1 s of the middle client.
        (
            world(stop={"simulated_time": 3}),
            ["3 of 3 clients need longer for one dispatch than the run lasts, 3 s; the fastest"],
        ),
        (
            world(stop={"simulated_time": 23.09}),
            ["2 of 3 clients need longer for one dispatch than the run lasts, 23.1 s; the"],
        ),
        (world(stop={"simulated_time": 23.1}), []),
        (
            world(devices={"energy": {"compute_w": 2500}}),
            ["2,500 W is more than a phone or a PC draws"],
        ),
        (world(devices={"energy": {"compute_w": 1000}}), []),
        (
            world(devices={"network": {"name": "static", **LINKS, "rate_factor": 1000}}),
            ["the downlink of 3 of 3 clients has more than 1 Gbit/s, because all rates are"],
        ),
        # The factor corrects the unit of slow rates, or the links are meant to be fast.
        (
            world(
                devices={"network": {"name": "static", "down": 8e3, "up": 4e3, "rate_factor": 1000}}
            ),
            [],
        ),
        (world(devices={"network": {"name": "static", "down": "20Gbps", "up": "4Mbps"}}), []),
        # Durations of 13, 23 and 43 s are tiers of one client each.
        (world(server=TIERED), []),
        (
            world(server=TIERED, devices={"availability": PHONES}),
            ["of 3 (1 is the fastest) has 0."],
        ),
    ],
)
def test_what_is_likely_is_named(scenario: dict[str, Any], messages: list[str]) -> None:
    warnings = check(read_scenario(scenario))
    assert len(warnings) == len(messages)
    for warning, message in zip(warnings, messages, strict=True):
        assert message in warning.message


@pytest.mark.parametrize(
    ("battery_j", "fix"),
    [(120, "set at least 0.87"), (103.4, "raise battery_j, or give less work")],
)
def test_the_floor_that_suffices_is_told_and_suffices(battery_j: float, fix: str) -> None:
    """The slowest of the three devices needs 103.3 J, 86.1% of 120 J."""
    energy = {"battery_j": battery_j}
    (warning,) = check(read_scenario(world(devices={"energy": energy})))
    assert warning.message.startswith("devices.energy.battery_floor: for ")
    assert warning.hint == fix
    energy["battery_floor"] = 0.87
    assert len(check(read_scenario(world(devices={"energy": energy})))) == (battery_j < 120)


def test_a_class_whose_battery_is_too_small_is_named(tmp_path: Path) -> None:
    """Two phones that need 28.3 and 53.3 J, and a pc that needs more, but has no battery."""
    watts = {"compute_w": 2.5, "download_w": 0.8, "upload_w": 1.2}
    classes = {
        "phone": {**watts, "battery_j": 60, "battery_floor": 0.5},
        "pc": {**watts, "battery_j": "none"},
    }
    trace = phones(tmp_path, kinds=["phone", "phone", "pc"], count=3)
    devices = {"trace": trace, "energy": {"battery_j": 1, "classes": classes}}
    (warning,) = check(read_scenario(world(devices=devices)))
    assert warning.message.startswith(
        "devices.energy.classes.phone.battery_floor: for 1 of 3 clients, a battery at its floor (30 J)"
    )
    assert warning.hint == "set at least 0.89"


@pytest.mark.parametrize(
    ("window_h", "stop", "drifts"),
    [
        (7 * 24, {"simulated_time": "14d"}, False),
        (7 * 24 + 10, {"simulated_time": "7d"}, False),
        (7 * 24 + 10, {"simulated_time": "8d"}, True),
        (7 * 24 + 10, {"rounds": 2}, False),
        (7 * 24 + 10, {"rounds": 100}, True),
    ],
)
def test_traces_that_repeat_at_another_hour_are_named(
    window_h: int, stop: dict[str, Any], drifts: bool, tmp_path: Path
) -> None:
    """By the check if the run's length is known, else at its end: 100 rounds with pauses of 3 hours take 12 days."""
    start, end = (
        "2025-03-03T00:00Z",
        np.datetime64("2025-03-03T00:00") + np.timedelta64(window_h, "h"),
    )
    (tmp_path / "days.csv").write_text(f"device,start,end\na,{start},{end}Z\n")
    assert (
        run(
            "traces", "import", "csv", str(tmp_path / "days.csv"), "-o", str(tmp_path / "days")
        ).exit_code
        == 0
    )
    scenario = world(
        devices={"trace": str(tmp_path / "days")} | jittery(),
        task={"name": "timing", "clients": 1, "parameters": 250_000},
        server=sync(pause="3h"),
        stop=stop,
    )
    scenario["devices"]["compute"]["step"] = "1s"
    checked = [str(warning) for warning in check(read_scenario(scenario))]
    notes = fedsim.run(scenario, tmp_path / "run").info.get("notes", [])
    assert any("repeats every 7 d 10 h, which is not" in note for note in notes) == drifts
    assert any("hours of the day drift" in text for text in checked) == (
        drifts and "simulated_time" in stop
    )


def test_devices_that_the_trace_marks_as_invalid_are_counted(tmp_path: Path) -> None:
    bundle = online_bundle([(0.0, 86_400.0)], [], [])
    devices = bundle.devices
    index = devices.column_names.index("valid")
    valid = pa.array([True, False, False])
    tables = {**bundle.tables, "devices": devices.set_column(index, "valid", valid)}
    TraceBundle(bundle.manifest, tables).write(tmp_path / "trace")
    scenario = world(devices={"trace": str(tmp_path / "trace")})
    messages = [warning.message for warning in check(read_scenario(scenario))]
    assert messages == ["devices.trace: 2 of 3 clients are devices that the trace marks as invalid"]


@pytest.mark.parametrize(
    ("ram_bytes", "memory"),
    [
        ([4.0, 8.0, 8.0], "ram_bytes (in bytes) in the trace's compute table"),
        ([4.0, 8.0, None], "devices.memory"),
    ],
)
def test_too_little_memory_is_corrected_where_it_is_given(
    ram_bytes: list[float | None], memory: str, tmp_path: Path
) -> None:
    bundle = online_bundle([], [], [])
    compute = {
        "device_id": bundle.device_ids.to_pylist(),
        "task": ["*"] * 3,
        "phase": ["training"] * 3,
        "sample_s": [0.1] * 3,
        "ram_bytes": ram_bytes,
    }
    tables = {**bundle.tables, "compute": make_table("compute", compute)}
    TraceBundle(bundle.manifest, tables).write(tmp_path / "trace")
    devices = {
        "trace": str(tmp_path / "trace"),
        "compute": "trace",
        "availability": "always",
        "memory": "1kB",
    }
    with pytest.raises(UserError, match="3 have less memory than training needs") as caught:
        check(read_scenario(world(devices=devices)))
    assert f"raise {memory}, or choose a smaller model" in str(caught.value)


def test_a_start_after_all_sessions_is_named_as_the_cause(tmp_path: Path) -> None:
    online_bundle([(100.0, 200.0)], [(100.0, 200.0)], []).write(tmp_path / "trace")
    trace = {"name": "trace", "trace": str(tmp_path / "trace")}
    scenario = world(devices={"availability": {**trace, "start": "1h"}})
    with pytest.raises(UserError, match="none of the 3 clients") as caught:
        check(read_scenario(scenario))
    assert str(caught.value.hint) == (
        "choose an earlier devices.availability.start (now 1 h), change devices.availability.on_end, or take another"
        " trace"
    )


@pytest.mark.parametrize("more", [{}, {"loss": 0.01}], ids=["no loss", "loss"])
def test_the_deadline_suggested_with_tcp_is_met(more: dict[str, Any], tmp_path: Path) -> None:
    """The nominal duration includes what the transport adds, so that nobody is late with the value of the hint."""
    scenario = world(server=sync(deadline=30), devices=tcp(**more))
    warning = next(
        one for one in check(read_scenario(scenario)) if "cannot finish a dispatch" in one.message
    )
    assert warning.hint is not None
    deadline = warning.hint.split(" at least ")[1].split(",")[0]
    assert float(deadline.removesuffix("s")) > 43.1, "more than with a fluid transfer"
    met = fedsim.run(world(server=sync(deadline=deadline), devices=tcp(**more)), tmp_path / "run")
    assert set(met.dispatches["outcome"]) == {"aggregated"}
    # The hint is no longer than needed: a round takes as long as its slowest client.
    assert met.aggregations["time_s"][0] > 0.99 * float(deadline.removesuffix("s"))
