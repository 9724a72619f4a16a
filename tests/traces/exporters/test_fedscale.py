"""Exporting to FedScale's files: round trips, and what the format cannot hold."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.traces.exporters import registry as exporters
from tests.traces.fedscale_files import behaviour, client
from tests.traces.helpers import import_, online

US, NS = 1_000_000, 1_000_000_000


def export(bundle: Any, path: Path, **options: Any) -> tuple[Any, dict[str, int]]:
    exporter = exporters()["fedscale"]
    counts = exporter.write(bundle, path, exporter.Params(**options))
    if path.suffix == ".pkl":
        return pickle.loads(path.read_bytes()), counts
    return json.loads(path.read_text()), counts


def test_round_trip(tmp_path: Path) -> None:
    clients = {
        "1": client([10, 50], [20, 60], 100, duration=20),
        "12": client([0, 20, 30], [10, 30, 100], 100, duration=90),
    }
    bundle = import_("fedscale", behaviour(tmp_path / "b.json", clients))
    back, counts = export(bundle, tmp_path / "out.json")
    assert back == clients
    assert counts["clients"] == 2
    with pytest.raises(UserError, match=r"\.json or \.pkl"):
        export(bundle, tmp_path / "out.txt")
    back, _ = export(bundle, tmp_path / "out.pkl")
    assert back == {int(key): value for key, value in clients.items()}


def test_export_capacity_counts_what_it_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("device,sample_time,step_time,down,up\n4,30,5,8,2\n5,60,0,4,\n6,1,,,\n")
    bundle = import_("table", path, compute_unit="ms", rate_unit="Mbps")
    back, counts = export(bundle, tmp_path / "c.json", content="capacity")
    assert back == {
        "4": {"computation": pytest.approx(10.0), "communication": 8000.0},
        "5": {"computation": pytest.approx(20.0), "communication": 4000.0},
    }
    assert counts == {"fixed_parts_lost": 1, "up_rates_lost": 1, "clients": 2}
    (tmp_path / "s.csv").write_text("device,score,down\n4,30,5\n")
    scores = import_("table", tmp_path / "s.csv", rate_unit="Mbps")
    with pytest.raises(UserError, match="no device has both"):
        export(scores, tmp_path / "d.json", content="capacity")


def test_clients_without_numbers_are_numbered_from_1(tmp_path: Path) -> None:
    clients = {"a": client([0], [5]), "b": client([1], [5])}
    back, _ = export(
        import_("fedscale", behaviour(tmp_path / "b.json", clients)), tmp_path / "o.json"
    )
    assert [back["1"]["active"], back["2"]["active"]] == [[0], [1]]


def timer_file(path: Path) -> Path:
    """Two devices whose windows differ, one of them available across its seam."""
    devices = {
        "5": {
            "isSuccess": True,
            "trace_start": 1000.0,
            "trace_end": 1100.0,
            "ready_time": [[1000.0, 1010.0], [1040.0, 1060.0], [1095.0, 1100.0]],
        },
        "8": {
            "isSuccess": True,
            "trace_start": 1030.0,
            "trace_end": 1090.0,
            "ready_time": [[1050.0, 1085.0]],
        },
        "9": {"isSuccess": False, "trace_start": None, "trace_end": None, "ready_time": []},
    }
    path.write_text(json.dumps(devices))
    return path


def test_export_on_the_clock_splits_sessions_at_the_seam(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    data, counts = export(bundle, tmp_path / "clock.json")
    # 1050..1085 is 30..65 of a period of 60 s: split. 1095..1100 is 95..100 of 100 s: not.
    assert counts["split_at_seam"] == 1
    assert counts["invalid_devices"] == 1
    assert data["8"] == {
        "duration": 35,
        "active": [0, 30],
        "inactive": [5, 60],
        "finish_time": 60,
        "model": "unknown",
    }
    again = import_("fedscale", tmp_path / "clock.json")
    for half_second in range(1, 800, 13):
        assert online(again, half_second * US / 2) == online(bundle, half_second * US / 2)


def test_export_by_device_keeps_each_devices_own_start(tmp_path: Path) -> None:
    bundle = import_("flash", timer_file(tmp_path / "t.json"))
    data, _ = export(bundle, tmp_path / "device.json", align="device")
    assert (data["5"]["active"], data["5"]["inactive"]) == ([0, 40, 95], [10, 60, 100])
    assert (data["8"]["active"], data["8"]["inactive"]) == ([20], [55])


@pytest.mark.real_data
def test_real_round_trip(real_traces: Path, tmp_path: Path) -> None:
    source = real_traces / "fedscale_100" / "client_behave_trace_100.pkl"
    original = json.loads(source.with_suffix(".json").read_text())
    bundle = import_("fedscale", source)
    for align in ("clock", "device"):
        back, counts = export(bundle, tmp_path / f"{align}.json", align=align)
        assert (counts["clients"], counts["rounded"], counts["vanished"]) == (100, 0, 0)
        clean = 0
        for key, record in original.items():
            pairs = list(zip(record["active"], record["inactive"], strict=True))
            positive = sorted((s, e) for s, e in pairs if e > s)
            clean += positive == pairs
            # Dropping the empty intervals is all that normalising does here.
            starts, ends = [s for s, _ in positive], [e for _, e in positive]
            assert back[key] == record | {"active": starts, "inactive": ends}
        assert clean == 91


@pytest.mark.real_data
def test_real_capacity_round_trip(real_traces: Path, tmp_path: Path) -> None:
    source = real_traces / "fedscale_100" / "client_device_capacity_100.pkl"
    original = json.loads(source.with_suffix(".json").read_text())
    back, _ = export(import_("fedscale", source), tmp_path / "c.json", content="capacity")
    assert back.keys() == original.keys()
    for key, record in original.items():
        # ms to s and back costs at most one unit in the last place.
        assert back[key] == pytest.approx(record, rel=3e-16)


@pytest.mark.real_data
def test_real_flash_to_fedscale_and_back(real_traces: Path, tmp_path: Path) -> None:
    bundle = import_("flash", real_traces / "flash_state_1k" / "cached_timers.json")
    _, counts = export(bundle, tmp_path / "f.pkl")
    assert (counts["rounded"], counts["vanished"], counts["invalid_devices"]) == (0, 0, 290)
    again = import_("fedscale", tmp_path / "f.pkl")
    assert again.device_count == counts["clients"] == 710 - counts["never_available"]
    generator = np.random.default_rng(8)
    for time_ns in generator.integers(0, 60 * 86400 * NS, 20).tolist():
        assert online(bundle, time_ns / 1000) == online(again, time_ns / 1000)
