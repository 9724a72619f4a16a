"""Importing FedScale's files: values, what is dropped and counted, and what is refused."""

import hashlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.traces.helpers import behaviour, client, import_, intervals, put, refused

US = 1_000_000


class Bomb:
    """Unpickling this makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.target,)


def test_behaviour_rows_and_windows(tmp_path: Path) -> None:
    path = behaviour(tmp_path / "b.json", {"7": client([10, 50], [20, 60], 100)})
    bundle = import_("fedscale", path)
    assert intervals(bundle) == {"7": [(10 * US, 20 * US), (50 * US, 60 * US)]}
    row = bundle.devices.to_pylist()[0]
    assert (row["window_start_us"], row["window_end_us"], row["period_us"]) == (
        0,
        100 * US,
        100 * US,
    )
    assert row["model"] == "M"
    assert bundle.manifest.on_end == "wrap"
    assert bundle.manifest.clock == "device-relative"


def test_origin_is_kept_in_the_manifest(tmp_path: Path) -> None:
    path = behaviour(tmp_path / "b.json", {"0": client([0], [10])})
    options = {
        "name": "float",
        "source": "a repository",
        "license": "Apache-2.0",
        "citation": "Lai et al.",
    }
    manifest = import_("fedscale", path, caveat="picked, not drawn", **options).manifest
    assert {key: getattr(manifest, key) for key in options} == options
    assert manifest.caveats[-1] == "picked, not drawn"
    assert manifest.options == {"bits_per_kbit": 1000}
    plain = import_("fedscale", path).manifest
    assert plain.name == "b"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert plain.source == f"b.json (sha256 {digest})"


def test_disorder_is_mended_and_counted(tmp_path: Path) -> None:
    clients = {
        "0": client([50, 10, 30], [60, 20, 30], 100, duration=20),  # out of order, one empty
        "1": client([10, 15, 18], [20, 17, 30], 100, duration=19),  # inside, then overlapping
        "2": client([10, 20], [20, 30], 100, duration=20),  # touching: stays as it is
        "3": client([10, 90], [5, 120], 100),  # reversed; beyond the period
    }
    clients["3"]["duration"] = 10
    bundle = import_("fedscale", behaviour(tmp_path / "b.json", clients))
    assert intervals(bundle) == {
        "0": [(10 * US, 20 * US), (50 * US, 60 * US)],
        "1": [(10 * US, 30 * US)],
        "2": [(10 * US, 20 * US), (20 * US, 30 * US)],
        "3": [(90 * US, 100 * US)],
    }
    assert bundle.manifest.counts == {
        "zero_length": 1,
        "reversed": 1,
        "out_of_order": 1,
        "overlapping": 2,
        "outside_window": 0,
        "cut_at_window": 1,
        "duration_differs": 1,
    }


@pytest.mark.parametrize("value", [[7], [[7]], [True], ["7"], {"a": 7}, True, None, "x"])
def test_a_number_in_a_list_or_object_is_no_number(tmp_path: Path, value: Any) -> None:
    path = put(tmp_path / "c.json", json.dumps({"1": {"computation": 1, "communication": value}}))
    assert "client 1: 'communication' is" in refused("fedscale", path)


def test_capacity_units(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"1": {"computation": 50.0, "communication": 8000.0}}))
    bundle = import_("fedscale", path)
    compute, network = (bundle.tables[name].to_pylist()[0] for name in ("compute", "network"))
    assert compute["sample_s"] == 0.05
    assert compute["phase"] == "inference"
    assert compute["step_fixed_s"] == 0.0
    assert (network["bandwidth_bps"], network["direction"]) == (8e6, "both")
    peer = import_("fedscale", path, bits_per_kbit=1024)
    # FedScale's own law: a megabyte takes 2**20 / 1024 * 8 kbit / communication seconds.
    ours_s = 2**20 * 8 / peer.tables["network"].to_pylist()[0]["bandwidth_bps"]
    assert ours_s == pytest.approx(2**20 / 1024 * 8 / 8000.0)


def test_both_files_keep_clients_of_both(tmp_path: Path) -> None:
    first = behaviour(tmp_path / "b.json", {"1": client([0], [5]), "2": client([0], [5])})
    second = tmp_path / "c.json"
    second.write_text(
        json.dumps({k: {"computation": 1.0, "communication": 1.0} for k in ("2", "3", "4")})
    )
    for paths in ((first, second), (second, first)):
        bundle = import_("fedscale", *paths)
        assert bundle.device_ids.to_pylist() == ["2"]
        assert bundle.manifest.counts["behavior_without_capacity"] == 1
        assert bundle.manifest.counts["capacity_without_behavior"] == 2


@pytest.mark.parametrize("protocol", [0, 2, 3, 4, 5])
def test_numpy_scalars_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "c.pkl"
    record = {"computation": np.float64(153.25), "communication": np.float64(2209.615982329485)}
    path.write_bytes(pickle.dumps({1: record}, protocol=protocol))
    bundle = import_("fedscale", path)
    assert bundle.tables["compute"].to_pylist()[0]["sample_s"] == 153.25 / 1000
    assert bundle.tables["network"].to_pylist()[0]["bandwidth_bps"] == 2209.615982329485 * 1000
    path.write_bytes(pickle.dumps({1: record, "1": record}, protocol=protocol))
    assert "has the id 1 twice" in refused("fedscale", path)


def test_a_pickle_that_calls_a_function_is_refused_unrun(tmp_path: Path) -> None:
    target = tmp_path / "made-by-pickle"
    path = tmp_path / "b.pkl"
    path.write_bytes(pickle.dumps({1: Bomb(target)}))
    message = refused("fedscale", path)
    assert "mkdir" in message
    assert not target.exists()


@pytest.mark.real_data
def test_real_counts_and_pickle_equals_json(real_traces: Path) -> None:
    folder = real_traces / "fedscale_100"
    pickled = import_(
        "fedscale",
        folder / "client_behave_trace_100.pkl",
        folder / "client_device_capacity_100.pkl",
    )
    plain = import_(
        "fedscale",
        folder / "client_behave_trace_100.json",
        folder / "client_device_capacity_100.json",
    )
    for name, table in pickled.tables.items():
        assert table.equals(plain.tables[name])
    counts = pickled.manifest.counts
    assert counts["zero_length"] == 10
    assert {key for key, count in counts.items() if count} == {"zero_length"}
    assert pickled.tables["availability"].num_rows == 6296
