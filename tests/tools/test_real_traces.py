"""The bundled traces of real devices: complete, small, licensed, and what the published files say."""

import json
from pathlib import Path

import numpy as np
import pytest

import fedsim
from fedsim import bundled
from fedsim.traces.bundle import TraceBundle
from fedsim.traces.inspection import sections
from fedsim.traces.statistics import describe
from fedsim.traces.validation import validate_bundle
from tools.real_traces import RECIPES, make


def bundle(name: str) -> TraceBundle:
    return TraceBundle.read(bundled.resolved(f"{bundled.PREFIX}{name}"))


@pytest.mark.parametrize("name", RECIPES)
def test_a_real_bundle_is_sound_and_says_where_it_is_from(name: str) -> None:
    shipped = bundle(name)
    manifest = shipped.manifest
    assert not validate_bundle(shipped)
    assert manifest.license
    assert manifest.citation
    assert "commit" in (manifest.source or "")
    assert manifest.caveats
    page = (bundled.located("docs") / "bundled_traces.md").read_text(encoding="utf-8")
    assert f"## {name}\n" in page
    assert f"`{name}` | {shipped.device_count:,} " in page
    assert f"| {manifest.license} |" in page
    assert sections(describe(shipped))["Origin"]["license"] == manifest.license
    assert name in (bundled.located("traces") / "NOTICE").read_text(encoding="utf-8")


def test_the_real_bundles_are_small() -> None:
    folders = [bundled.located("traces") / name for name in RECIPES]
    assert sum(file.stat().st_size for folder in folders for file in folder.iterdir()) < 2e6


@pytest.mark.real_data
@pytest.mark.parametrize("name", RECIPES)
def test_a_real_bundle_is_made_again_from_the_published_files(name: str, fedsim_data: Path) -> None:
    shipped, made = bundle(name), make(name, fedsim_data / "traces")
    assert shipped.tables.keys() == made.tables.keys()
    for table in made.tables:
        assert shipped.tables[table].equals(made.tables[table]), table
    for field in ("source", "license", "citation", "counts", "caveats", "command"):
        assert getattr(shipped.manifest, field) == getattr(made.manifest, field), field
    # Options that the importer has since had are at their defaults, and those that it no longer has were not given.
    given = {key: value for key, value in shipped.manifest.options.items() if value is not None}
    assert given.items() <= made.manifest.options.items()


@pytest.mark.real_data
def test_phones_are_those_of_the_published_file(fedsim_data: Path) -> None:
    """A reading of the file that shares no code with the importer."""
    folder = fedsim_data / "traces" / "fedscale_100"
    behavior = json.loads((folder / "client_behave_trace_100.json").read_text())
    capacity = json.loads((folder / "client_device_capacity_100.json").read_text())
    shipped = bundle("fedscale_phones")
    ids = shipped.device_ids.to_pylist()
    assert set(ids) == set(behavior)
    rate_bps = shipped.numpy("network", "bandwidth_bps")
    np.testing.assert_allclose(rate_bps, [capacity[id_]["communication"] * 1000 for id_ in ids])
    online_us = np.zeros(len(ids), np.int64)
    length = shipped.numpy("availability", "end_us") - shipped.numpy("availability", "start_us")
    np.add.at(online_us, shipped.device_rows("availability"), length)
    np.testing.assert_allclose(online_us / 1e6, [behavior[id_]["duration"] for id_ in ids])


@pytest.mark.parametrize(
    "part",
    [
        "availability={trace: builtin:fedscale_phones}",
        "compute={trace: builtin:fedscale_phones, train_factor: 3}",
        "compute={trace: builtin:propius_phones, train_factor: 3}",
        "compute={trace: builtin:azure_vms, reference_step: 1s}",
        "network={trace: builtin:fedscale_phones}",
        "network={trace: builtin:mobiperf_phones, up_ratio: 0.2}",
        "network={name: traced, trace: builtin:norway_3g, up_ratio: 0.2}",
        "network={name: traced, trace: builtin:puffer_homes, up_ratio: 0.2}",
        "network={trace: builtin:planetlab_rtt, latency: {name: rtt_matrix, server: n244}, down: 5Mbps, up: 1Mbps}",
        "network={trace: builtin:countries, latency: 40ms}",
    ],
)
def test_a_part_of_a_scenario_reads_a_real_bundle(part: str, tmp_path: Path) -> None:
    """What the page of the bundled traces says."""
    page = (bundled.located("docs") / "bundled_traces.md").read_text(encoding="utf-8")
    assert part.replace("={", ": {", 1) in page
    scenario = {
        "name": "served",
        "task": {"name": "timing", "clients": 18, "samples": 32},
        "training": {"local_steps": 5},
        "devices": {
            "compute": {"name": "lognormal", "median": "2s"},
            "network": {"down": "5Mbps", "up": "1Mbps"},
        },
        "stop": {"rounds": 2},
    }
    run = fedsim.run(scenario, tmp_path / "run", overrides=[f"devices.{part}"], timing_only=True)
    assert run.info["rounds"] == 2


def test_a_country_reaches_the_server_by_its_ping(tmp_path: Path) -> None:
    """By hand: 1 MB from a server in Australia to the United States, 300 and 55 Mbit/s, and back."""
    shipped = bundle("countries")
    scenario = {
        "name": "countries",
        "task": {"name": "timing", "clients": 17, "parameters": 250_000},
        "training": {"local_steps": 1},
        "devices": {
            "compute": {"name": "values", "step": 1},
            "network": {
                "trace": "builtin:countries",
                "latency": {"name": "rtt_matrix", "server": "Australia"},
            },
        },
        "stop": {"rounds": 1},
    }
    first = fedsim.run(scenario, tmp_path / "run", timing_only=True).dispatches.iloc[0]
    ends = list(zip(*(shipped.texts("rtt_matrix", k) for k in ("src", "dst")), strict=True))
    assert len(set(map(frozenset, ends))) == 18 * 17 / 2
    row = next(
        n for n, each in enumerate(ends) if set(each) == {"Australia", "United States of America"}
    )
    latency_s = float(shipped.numpy("rtt_matrix", "rtt_s")[row]) / 2
    assert first["download_s"] == pytest.approx(8e6 / 300e6 + latency_s, abs=1e-6)
    assert first["upload_s"] == pytest.approx(8e6 / 55e6 + latency_s, abs=1e-6)
