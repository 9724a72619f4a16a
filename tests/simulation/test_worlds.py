"""Whole timing-only runs of random small worlds, judged by readings of the trace that share no code with the index."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import fedsim
from fedsim.errors import UserError
from fedsim.runs.run import Run
from fedsim.traces.bundle import Manifest, TraceBundle
from fedsim.traces.tables import make_table

pytestmark = pytest.mark.usefixtures("without_reports")

END_S = 240
US = 1_000_000
NEEDED_BYTES = 4 * 2 * 1000


@dataclass(frozen=True)
class Device:
    """A device's trace in whole seconds, and whether its memory holds the model."""

    window: tuple[int, int]
    period: int
    intervals: tuple[tuple[int, int], ...]
    fits: bool

    def is_online(self, time_s: float, on_end: str) -> bool:
        """What the trace says of an instant on its own clock; a half-open reading, one interval after the other."""
        begin, end = self.window
        if on_end == "wrap":
            time_s = begin + (time_s - begin) % self.period
        elif on_end == "hold":
            time_s = max(begin, time_s)
            if time_s >= end:
                return any(b == end for _, b in self.intervals)
        return self.fits and any(a <= time_s < b for a, b in self.intervals)


@dataclass(frozen=True)
class World:
    """Devices of a run, and the run's scenario."""

    devices: tuple[Device, ...]
    on_end: str
    start_s: int
    scenario: dict[str, Any]

    def is_online(self, client: int, time_s: float) -> bool:
        """Whether a client is online and eligible at a simulated instant."""
        device = self.devices[client]
        return device.fits and device.is_online(time_s + self.start_s, self.on_end)

    def leaves(self, client: int, time_s: float) -> float:
        """The first instant after ``time_s``, up to the run's end, at which a client is offline; edges are whole."""
        return next(
            (t for t in range(int(time_s) + 1, END_S + 1) if not self.is_online(client, t)),
            float("inf"),
        )

    def run(self, folder: Path) -> Run:
        """Write the trace, run the scenario."""
        ids = [f"d{i}" for i in range(len(self.devices))]
        spans = [(i, a, b) for i, one in enumerate(self.devices) for a, b in one.intervals]
        manifest = Manifest(
            name="w", horizon_us=US, importer="hand", importer_version="1", on_end=self.on_end
        )
        tables = {
            "devices": {
                "device_id": ids,
                "window_start_us": [one.window[0] * US for one in self.devices],
                "window_end_us": [one.window[1] * US for one in self.devices],
                "period_us": [one.period * US for one in self.devices],
                "valid": [True] * len(ids),
            },
            "availability": {
                "device_id": [ids[i] for i, _, _ in spans],
                "start_us": [a * US for _, a, _ in spans],
                "end_us": [b * US for _, _, b in spans],
            },
            "compute": {
                "device_id": ids,
                "task": ["*"] * len(ids),
                "phase": ["training"] * len(ids),
                "sample_s": [0.01 * (1 + i) for i in range(len(ids))],
                "ram_bytes": [NEEDED_BYTES - (not one.fits) for one in self.devices],
            },
        }
        made = {name: make_table(name, columns) for name, columns in tables.items()}
        TraceBundle(manifest, made).write(folder / "bundle")
        scenario = {**self.scenario, "devices": {**self.scenario["devices"]}}
        scenario["devices"]["trace"] = str(folder / "bundle")
        if not any(
            one.fits and self.is_online(client, second)
            for client, one in enumerate(self.devices)
            for second in range(END_S + 1)
        ):
            with pytest.raises(UserError, match="none of the"):
                fedsim.run(scenario, folder / "run", timing_only=True)
            reject()
        return fedsim.run(scenario, folder / "run", timing_only=True)


@st.composite
def devices(draw: st.DrawFn) -> Device:
    begin = draw(st.integers(0, 20))
    edges = draw(st.lists(st.integers(0, 90), max_size=8, unique=True).map(sorted))
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    if draw(st.booleans()):
        # Intervals that touch, and one that touches the end of its window.
        pairs = [
            (a, pairs[i + 1][0] if i + 1 < len(pairs) else b) for i, (a, b) in enumerate(pairs)
        ]
    length = max(1, pairs[-1][1] if pairs else 1) + draw(st.sampled_from([0, 0, 5]))
    return Device(
        window=(begin, begin + length),
        period=length + draw(st.sampled_from([0, 0, 7])),
        intervals=tuple((begin + a, begin + b) for a, b in pairs),
        fits=draw(st.sampled_from([True, True, True, False])),
    )


SCHEDULES: list[dict[str, Any]] = [
    {"name": "sync"},
    {"name": "sync", "deadline": 9, "over_selection": 1.5, "stragglers": "cut"},
    {"name": "sync", "deadline": 5, "pause": 2.5},
    {"name": "async", "concurrency": 3},
    {"name": "buffered", "buffer_size": 2, "concurrency": 4},
]
NETWORKS: list[dict[str, Any]] = [
    {"name": "static", "latency": 0.25, "down": "32kbps", "up": "16kbps"},
    {"name": "static", "latency": 0, "down": "32kbps", "up": "16kbps", "variation": 0.8},
    {"name": "shared", "latency": 0.1, "down": "32kbps", "up": "16kbps", "server_down": "48kbps"},
]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    made = tuple(draw(st.lists(devices(), min_size=1, max_size=6)))
    count = len(made)
    selection = draw(
        st.sampled_from(["uniform", "sample_weighted", "round_robin", "bernoulli", "scripted"])
    )
    options: dict[str, Any] = {
        "bernoulli": {"probability": 0.6},
        "scripted": {"rounds": [[i % count, (i + 1) % count][:count] for i in range(30)]},
    }.get(selection, {"cohort": min(2, count)})
    schedule = draw(st.sampled_from(SCHEDULES))
    if selection in ("bernoulli", "scripted"):
        schedule = draw(st.sampled_from(SCHEDULES[:3]))
    if selection == "scripted":
        schedule = {**schedule, "over_selection": 1}
    if "concurrency" in schedule:
        schedule = {**schedule, "concurrency": min(count, schedule["concurrency"])}
    scenario = {
        "name": "world",
        "seed": draw(st.integers(0, 3)),
        "task": {"name": "timing", "clients": count, "parameters": 1000, "samples": 16},
        "training": {"local_steps": draw(st.integers(1, 12)), "batch_size": 16},
        "devices": {
            "compute": {"jitter": {"cv": draw(st.sampled_from([0.0, 0.4]))}},
            "availability": {
                "on_disconnect": draw(
                    st.sampled_from(["drop", "drop", "pause", "finish", "send_partial"])
                ),
                "start": 0,
            },
            "network": draw(st.sampled_from(NETWORKS)),
            "failures": draw(
                st.sampled_from([{}, {"crash_rate": 200, "upload_loss": 0.2, "upload_retries": 1}])
            ),
        },
        "server": {
            "selection": {"name": selection, **options},
            "schedule": schedule,
            "partial_work": draw(st.sampled_from(["drop", "send"])),
            "aggregation_time": draw(st.sampled_from([0, 1.5])),
        },
        "stop": {"simulated_time": END_S},
    }
    start_s = draw(st.sampled_from([0, 0, 30]))
    scenario["devices"]["availability"]["start"] = start_s
    return World(
        made, draw(st.sampled_from(["wrap", "wrap", "hold", "unavailable"])), start_s, scenario
    )


def check_online_counts(world: World, run: Run) -> None:
    online = run.online
    assert online["time_s"].iloc[-1] > END_S - 10
    for time_s, count in zip(online["time_s"], online["online"], strict=True):
        expected = sum(world.is_online(client, time_s) for client in range(len(world.devices)))
        assert count == expected, time_s


def check_work(world: World, row: Any, policy: str) -> None:
    """Nobody is given work while offline, and nothing is moved or computed while offline but as the policy says."""
    client = int(row.client_id)
    assert world.devices[client].fits
    assert world.is_online(client, row.dispatched_s)
    leaves_s = world.leaves(client, row.dispatched_s)
    if policy == "drop":
        assert row.ended_s <= leaves_s or row.outcome == "unfinished"
    elif pd.notna(row.arrived_s):
        # Whoever has sent was online just before; a return in between is for the policy's own tests.
        assert world.is_online(client, row.arrived_s - 1e-6)
    for mark in (row.downloaded_s, row.computed_s):
        if pd.notna(mark) and policy in ("drop", "pause"):
            assert world.is_online(client, mark - 1e-6)


@settings(max_examples=20)
@given(world=worlds())
def test_no_device_works_while_it_is_offline_or_ineligible(world: World) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = world.run(Path(folder))
        policy = world.scenario["devices"]["availability"]["on_disconnect"]
        check_online_counts(world, run)
        assert run.info["ineligible_clients"] == sum(not one.fits for one in world.devices)
        for row in run.dispatches.itertuples():
            check_work(world, row, policy)
