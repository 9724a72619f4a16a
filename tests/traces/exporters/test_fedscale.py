"""Exporting to FedScale's files: round trips, and what the format cannot hold."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.traces.exporters import registry as exporters
from tests.traces.fedscale_files import behaviour, client
from tests.traces.helpers import import_


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
    back, _ = export(bundle, tmp_path / "out.pkl")
    assert back == {int(key): value for key, value in clients.items()}


def test_export_capacity_counts_what_it_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("device,sample_time,step_time,down,up\n4,30,5,8,2\n5,60,0,4,\n6,1,,,\n")
    bundle = import_("csv", path, compute_unit="ms", rate_unit="Mbps")
    back, counts = export(bundle, tmp_path / "c.json", content="capacity")
    assert back == {
        "4": {"computation": pytest.approx(10.0), "communication": 8000.0},
        "5": {"computation": pytest.approx(20.0), "communication": 4000.0},
    }
    assert counts == {"fixed_parts_lost": 1, "up_rates_lost": 1, "clients": 2}
    (tmp_path / "s.csv").write_text("device,score,down\n4,30,5\n")
    scores = import_("csv", tmp_path / "s.csv", rate_unit="Mbps")
    with pytest.raises(UserError, match="no device has both"):
        export(scores, tmp_path / "d.json", content="capacity")


def test_export_names_clients_that_have_no_numbers(tmp_path: Path) -> None:
    bundle = import_(
        "fedscale", behaviour(tmp_path / "b.json", {"a": client([0], [5]), "b": client([1], [5])})
    )
    back, _ = export(bundle, tmp_path / "out.json")
    assert [back["1"]["active"], back["2"]["active"]] == [[0], [1]]


def test_export_refuses_to_overwrite_and_unknown_endings(tmp_path: Path) -> None:
    path = behaviour(tmp_path / "b.json", {"1": client([0], [5])})
    bundle = import_("fedscale", path)
    with pytest.raises(UserError, match="already exists"):
        export(bundle, path)
    with pytest.raises(UserError, match=r"\.json or \.pkl"):
        export(bundle, tmp_path / "out.txt")
    exporter = exporters()["fedscale"]
    exporter.write(bundle, path, exporter.Params(), overwrite=True)
    assert json.loads(path.read_text())["1"]["inactive"] == [5]


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
