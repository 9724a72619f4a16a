"""The life of a sample of clients against the dispatches, the trace and a calculation by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsim
from fedsim.analysis.figures import timeline
from fedsim.analysis.figures.timeline import MAX_BARS_SHOWN
from fedsim.analysis.report import render
from fedsim.analysis.run import Run, load_run
from fedsim.runs.folder import Status
from tests.analysis.documents import columns, embedded, parquet
from tests.composition.test_closing import simulate
from tests.devices.worlds import LINKS, STEPS, phones, timing
from tests.runs.synthetic_runs import build_run


def test_timeline_shows_rows_of_dispatches(run: Run, document: dict[str, Any]) -> None:
    shown, dispatches = columns(document, "timeline"), parquet(run, "dispatches")
    table = pd.DataFrame(shown)
    rows = dispatches.set_index("dispatch_id").loc[table["dispatch_id"]]
    for name in ("dispatched_s", "downloaded_s", "computed_s", "arrived_s", "ended_s"):
        np.testing.assert_allclose(table[name].to_numpy(dtype=float), rows[name], atol=5.1e-4)
    assert table["outcome"].tolist() == rows["outcome"].tolist()
    clients = document["timeline"]["clients"]
    assert [clients[row] for row in document["timeline"]["order"]] == table["client_id"].tolist()
    assert len(table) == min(dispatches["client_id"].isin(clients).sum(), MAX_BARS_SHOWN)


def test_charge_of_a_battery_is_that_of_a_calculation_by_hand(tmp_path: Path) -> None:
    """Capacity 100 J, recharged with 0.01 W: work takes charge, and rest gives it back up to the capacity."""
    run = build_run(tmp_path / "run", clients=6, hours=3)
    text = run.folder.scenario.read_text()
    assert "devices:" not in text
    energy = "devices: {energy: {battery_j: 100, recharge_w: 0.01}}\n"
    run.folder.scenario.write_text(text + energy)
    run.folder.close(Status.COMPLETE)
    shown = columns(embedded(render(load_run(run.path))), "timeline")
    joules = parquet(run, "dispatches").set_index("dispatch_id")
    charge: dict[int, tuple[float, float]] = {}
    for client, number, before, after in zip(
        shown["client_id"],
        shown["dispatch_id"],
        shown["charge_before"],
        shown["charge_after"],
        strict=True,
    ):
        row = joules.loc[number]
        level, since = charge.get(client, (100.0, 0.0))
        level = min(100.0, level + 0.01 * (row["dispatched_s"] - since))
        assert before == pytest.approx(level / 100, abs=6e-4)
        level = max(0.0, level - row["energy_j"])
        assert after == pytest.approx(level / 100, abs=6e-4)
        charge[client] = (level, row["ended_s"])
    assert len(charge) > 3


def test_charge_of_devices_of_several_kinds(tmp_path: Path) -> None:
    """A phone and a tablet with batteries of their own, and a pc without one."""
    watts = {"compute_w": 10, "download_w": 0, "upload_w": 0}
    classes = {
        "pc": {**watts, "battery_j": "none"},
        "tablet": {**watts, "battery_j": 200, "battery_floor": 0.5, "recharge_w": 2},
    }
    energy = {**watts, "battery_j": 100, "recharge_w": 1, "classes": classes}
    trace = phones(tmp_path, kinds=["phone", "tablet", "pc"], count=3)
    devices = {"trace": trace, "compute": STEPS, "network": LINKS, "energy": energy}
    document = embedded(render(fedsim.run(timing(devices, clients=3), tmp_path / "run")))
    battery, chosen = document["timeline"]["battery"], document["timeline"]["clients"]
    floors, rates = {0: 0.2, 1: 0.5, 2: None}, {0: 0.01, 1: 0.01, 2: None}
    assert battery["floor"] == [floors[client] for client in chosen]
    assert battery["per_s"] == [rates[client] for client in chosen]
    shown = columns(document, "timeline")
    after = dict(zip(shown["client_id"], shown["charge_after"], strict=True))
    assert after == {0: 0.5, 1: 0.75, 2: None}
    assert shown["charge_before"][shown["client_id"].index(2)] is None


def test_presence_of_the_shown_clients(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=6, hours=30)
    run.presence = None
    assert embedded(render(run))["timeline"]["presence"] is None
    rows = pd.DataFrame(
        {"client_id": [2, 2, 4], "from_s": [0.0, 7200.0, 60.0], "to_s": [3600.0, 9000.0, 90.0]}
    )
    run.presence = rows
    document = embedded(render(run))["timeline"]
    shown = document["presence"]
    assert [document["clients"][row] for row in shown["row"]] == [2, 2, 4]
    assert (shown["from_s"], shown["to_s"]) == ([0.0, 7200.0, 60.0], [3600.0, 9000.0, 90.0])
    assert shown["gap_s"] == 0


def test_names_of_clients_devices_and_labels(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", clients=6, hours=30)
    numbered = embedded(render(run))["timeline"]
    assert (numbered["names"], numbered["kinds"]) == (None, None)
    devices = [f"d{number}" for number in range(6)]
    run.clients["device"] = devices
    assert embedded(render(run))["timeline"]["names"] is None, "these say no more than numbers"
    run.clients["device"] = [*devices[:3], "Ann's phone", "hall", "hall"]
    run.clients["name"] = ["Hamlet", *[None] * 5]
    run.clients["kind"] = ["pc", *["phone"] * 5]
    run.info["label_names"] = ["Coat"]
    document = embedded(render(run))
    figure = document["timeline"]
    names = ["Hamlet", "d1", "d2", "Ann's phone", "hall #4", "hall #5"]
    assert figure["names"] == [names[client] for client in figure["clients"]]
    assert figure["kinds"] == [run.clients["kind"][client] for client in figure["clients"]]
    rows = columns(document, "timeline")
    assert rows["name"] == [names[client] for client in rows["client_id"]]
    assert columns(document, "partition")["client_id"] == names
    assert document["partition"]["labels"][:2] == ["Coat", "label 1"]


def test_pauses_are_shown_the_longest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dispatch that is still computing when the run ends at 31 s."""
    sessions = [(0.0, 3.0), (10.0, 13.0), (25.0, 28.0), (30.0, 33.0)]
    run = simulate(tmp_path, "pause", sessions, until=31)
    pauses = timeline.timeline(run).extra["pauses"]
    assert list(pauses["row"]) == [0, 0, 0]
    assert list(zip(pauses["from_s"], pauses["to_s"], strict=True)) == [(3, 10), (13, 25), (28, 30)]
    assert pauses["shortest_s"] == 0
    monkeypatch.setattr(timeline, "_MAX_STRETCHES", 2)
    pauses = timeline.timeline(run).extra["pauses"]
    assert list(zip(pauses["from_s"], pauses["to_s"], strict=True)) == [(3, 10), (13, 25)]
    assert pauses["shortest_s"] == 7
    assert "pauses shorter than 7 s are not shown" in render(run)


def test_a_long_run_is_thinned_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = build_run(tmp_path / "run", clients=6, hours=48)
    whole = timeline.timeline(run)
    assert whole.extra["every"] == 1
    monkeypatch.setattr(timeline, "MAX_BARS_SHOWN", 60)
    thinned = timeline.timeline(run)
    numbers, every = thinned.columns[1].values, thinned.extra["every"]
    assert len(numbers) <= 66, "the bound, and one more per row"
    assert f"Of every {every} dispatches of a row, one is shown." in thinned.finding
    assert thinned.extra["people"]["updates"].tolist() == whole.extra["people"]["updates"].tolist()
    ends = [figure.columns[3].values[-1] for figure in (whole, thinned)]
    assert ends[1] > 0.99 * ends[0], "the end is not left out"
    assert thinned.extra["until_s"] == run.simulated_s


def test_the_speed_of_a_client_is_that_of_its_work(tmp_path: Path) -> None:
    run = simulate(tmp_path, "pause", [(0, 4), (30, 60)])
    assert timeline.timeline(run).extra["people"]["step_s"] == [1.0]
