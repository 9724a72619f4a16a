"""Devices of whole runs: memory, energy by class, message sizes, bundles of their own, and counted operations."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import fedsim
from fedsim.analysis.headline import tiles
from fedsim.api import read_scenario
from fedsim.cli.summary import print_summary
from fedsim.composition.build import build
from fedsim.composition.build import check_scenario as check
from fedsim.errors import UserError
from fedsim.network.base import Direction
from fedsim.network.static import VaryingNetwork
from fedsim.scenario.loading import LoadedScenario
from tests.devices.worlds import LINKS, STEPS, S, phones, timing
from tests.traces.cases import DAY, HOUR, bundle_of


def test_energy_of_a_dispatch_is_power_by_class_times_time_at_work(tmp_path: Path) -> None:
    """4,000 bytes take 1 s down and 2 s up; ten steps take 5 s."""
    folder = phones(tmp_path, kinds=["phone", "pc", None, "tablet"])
    classes = {
        "pc": {"compute_w": 40, "download_w": 3, "upload_w": 5},
        "phone": {"compute_w": 4, "download_w": 0.5, "upload_w": 2},
    }
    energy = {"compute_w": 10, "download_w": 1, "upload_w": 0, "classes": classes}
    devices = {"trace": folder, "compute": STEPS, "network": LINKS, "energy": energy}
    run = fedsim.run(timing(devices), tmp_path / "run")
    expected = [0.5 + 20 + 4, 3 + 200 + 10, 1 + 50, 1 + 50]
    joules = run.dispatches.set_index("client_id")["energy_j"].sort_index()
    assert joules.tolist() == pytest.approx(expected, rel=1e-12)
    assert run.clients["energy_j"].tolist() == pytest.approx(expected, rel=1e-12)


def test_batteries_by_class(tmp_path: Path) -> None:
    """Each dispatch takes 1 s down, 5 s of steps at 10 W and 2 s up.

    The phone's 100 J last for two; 20 s later they are at the floor of 20 J, which lasts for 2 s of steps. The tablet's
    60 J last for one; 10 s later they are at the floor of 30 J, which lasts for 3 s of steps. The pc has no battery,
    and the last device, of no kind, has the one of the phone.
    """
    folder = phones(tmp_path, kinds=["phone", "tablet", "pc", None])
    watts = {"compute_w": 10, "download_w": 0, "upload_w": 0}
    classes = {
        "pc": {**watts, "battery_j": "none"},
        "tablet": {**watts, "battery_j": 60, "battery_floor": 0.5, "recharge_w": 2},
    }
    energy = {**watts, "battery_j": 100, "recharge_w": 1, "classes": classes}
    devices = {"trace": folder, "compute": STEPS, "network": LINKS, "energy": energy}
    stop = {"simulated_time": 100}
    run = fedsim.run(
        timing(devices, server={"schedule": {"name": "async"}}, stop=stop), tmp_path / "run"
    )
    begun = [
        run.dispatches.loc[run.dispatches["client_id"] == client, "dispatched_s"].tolist()[:4]
        for client in range(4)
    ]
    phone, tablet, pc, other = begun
    assert phone == other == [0.0, 8.0, 36.0, 59.0]
    assert tablet == [0.0, 18.0, 37.0, 56.0]
    assert pc == [0.0, 8.0, 16.0, 24.0]


def test_power_of_a_kind_that_no_device_is_of_is_refused(tmp_path: Path) -> None:
    energy = {"classes": {"fridge": {"compute_w": 1, "download_w": 1, "upload_w": 1}}}
    devices = {"compute": STEPS, "network": LINKS, "energy": energy}
    known = {"trace": phones(tmp_path, kinds=["phone"] * 4), **devices}
    with pytest.raises(UserError, match="no device of the kind 'fridge'"):
        fedsim.run(timing(known), tmp_path / "run")
    with pytest.raises(UserError, match="needs a trace bundle that gives the kinds"):
        fedsim.run(timing(devices), tmp_path / "run")


# Model and gradient of 1,000 numbers, and 100 of each of the 16 samples of a batch, in 4 bytes each.
NEEDED = 4 * (2 * 1000 + 16 * 100)


@pytest.mark.usefixtures("with_reports")
def test_devices_without_the_memory_for_model_and_batch_take_no_work(tmp_path: Path) -> None:
    folder = phones(
        tmp_path,
        compute={
            "task": ["*"] * 4,
            "phase": ["training"] * 4,
            "sample_s": [0.01] * 4,
            "ram_bytes": [NEEDED, NEEDED - 1, None, 10 * NEEDED],
        },
    )
    world = timing(
        {"trace": folder, "network": LINKS, "memory": NEEDED - 1},
        server={"selection": {"name": "uniform", "cohort": 4}, "schedule": {"name": "async"}},
        stop={"simulated_time": 600},
    )
    world["task"]["activations"] = 100
    run = fedsim.run(world, tmp_path / "run")
    # The third's memory is not known: it is taken to have what the scenario says.
    assert sorted(run.dispatches["client_id"].unique()) == [0, 3]
    assert run.info["ineligible_clients"] == 2
    # The two count once, although they are never online.
    assert "of 4; 2 without the memory to train<" in run.report().read_text(encoding="utf-8")
    run.info["ineligible_clients"] = 1
    (note,) = (tile.note for tile in tiles(run) if tile.label == "Clients that contributed")
    assert note == "of 4; 1 without the memory to train; 1 never online"
    # A list is that of the clients, whatever the trace says.
    world["devices"]["memory"] = [NEEDED - 1, NEEDED, NEEDED - 1, NEEDED - 1]
    short = build(fedsim.read_scenario(world)).population.short_of_memory
    assert np.flatnonzero(~short).tolist() == [1]
    world["devices"]["memory"] = NEEDED - 1
    # A smaller batch, a longer one that the clients cannot fill, another optimizer.
    for training, able in (
        ({"batch_size": 15}, [0, 1, 2, 3]),
        ({"batch_size": 17}, [3]),
        ({"batch_size": 1000}, [3]),
        ({"optimizer": {"name": "adam"}}, [3]),
        ({"optimizer": {"name": "sgd", "momentum": 0.9}}, [3]),
        ({"dtype": "float64"}, [3]),
    ):
        loaded = fedsim.read_scenario({**world, "training": {"batch_size": 16, **training}})
        short = build(loaded).population.short_of_memory
        assert np.flatnonzero(~short).tolist() == able, training


@pytest.mark.parametrize("memory", [None, 100])
def test_memory_that_no_device_tells_of_leaves_everybody_eligible(memory: int | None) -> None:
    loaded = fedsim.read_scenario(timing({"compute": STEPS, "network": LINKS, "memory": memory}))
    assert set(build(loaded).population.short_of_memory) == {memory is not None}


@pytest.mark.usefixtures("with_reports")
def test_each_client_without_work_has_one_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Client 0 lacks the memory, but is excluded anyway; client 2 lacks it, and client 3 is never online."""
    online = {f"d{i}": [(0, 7 * DAY)] if i < 3 else [] for i in range(4)}
    bundle_of(online).write(tmp_path / "trace")
    devices: dict[str, Any] = {
        "trace": str(tmp_path / "trace"),
        "compute": STEPS,
        "network": LINKS,
        "exclude": [0, 1, 2, 3],
    }
    devices["memory"] = [NEEDED - 1, NEEDED, NEEDED - 1, NEEDED]
    content = timing(devices, server={}, stop={"rounds": 1})
    content["task"] |= {"activations": 100}
    with pytest.raises(UserError, match=r"work: 4 are excluded\n  .* devices\.exclude\n"):
        check(fedsim.read_scenario(content))
    devices["exclude"] = [0, 1]
    reasons = "2 are excluded, 1 have less memory than training needs, 1 are never online"
    with pytest.raises(UserError, match=rf"work: {reasons}\n  .*exclude; raise .*;"):
        check(fedsim.read_scenario(content))
    devices["exclude"] = [0]
    run = fedsim.run(content, tmp_path / "run")
    assert (run.info["excluded_clients"], run.info["ineligible_clients"]) == (1, 1)
    print_summary(run)
    summary = capsys.readouterr().out.splitlines()
    for label in ("clients excluded", "clients short of memory"):
        (line,) = (line for line in summary if label in line)
        assert line.split()[-2] == "1"
    (note,) = (tile.note for tile in tiles(run) if tile.label == "Clients that contributed")
    assert note == "of 4; 1 excluded; 1 without the memory to train; 1 never online"
    page = run.report().read_text(encoding="utf-8")
    assert "excluded: 1; never online, or without the memory: 2" in page


def test_activations_of_a_model_are_what_its_backward_pass_needs() -> None:
    """An MLP 64-16-10: inputs, hidden values, their softmax (or logits), and labels; its parameters are no part."""
    world = timing({"compute": STEPS, "network": LINKS, "memory": "1GB"}, clients=3)
    world["task"] = {
        "dataset": {"name": "digits"},
        "partition": {"name": "iid", "clients": 3},
        "model": {"name": "mlp", "hidden": [16]},
    }
    task = build(fedsim.read_scenario(world)).task
    assert task is not None
    least = 64 + 16 + 10
    assert least <= task.activations_per_sample() <= least + 4
    world["task"]["model"]["hidden"] = [16, 1000]
    wider = build(fedsim.read_scenario(world)).task
    assert wider is not None
    assert wider.activations_per_sample() - task.activations_per_sample() == 1000


@pytest.mark.parametrize(
    ("changes", "down", "up"),
    [
        ({}, 4000, 4000),
        ({"training": {"dtype": "float64"}}, 8000, 8000),
        ({"server": {"compression": {"up": {"factor": 0.1}, "down": {"factor": 0.5}}}}, 2000, 400),
        # SCAFFOLD sends model and control variate both ways.
        (
            {
                "server": {"method": {"name": "scaffold"}, "compression": {"up": {"factor": 0.5}}},
                "training": {},
            },
            8000,
            4000,
        ),
    ],
)
def test_bytes_of_a_message_are_vectors_times_size_of_a_number_times_compression(
    tmp_path: Path, changes: dict[str, Any], down: int, up: int
) -> None:
    world = timing({"compute": STEPS, "network": LINKS})
    for section, values in changes.items():
        world[section] = {**world[section], **values}
    run = fedsim.run(world, tmp_path / "run")
    assert set(run.dispatches["bytes_down"]) == {down}
    assert set(run.dispatches["bytes_up"]) == {up}
    # At 32 kbit/s a second brings 4,000 bytes, and takes 2,000 back.
    first = run.dispatches.iloc[0]
    assert first["downloaded_s"] - first["dispatched_s"] == pytest.approx(down / 4000)
    assert first["arrived_s"] - first["computed_s"] == pytest.approx(up / 2000)


def test_parts_replay_bundles_of_their_own_paired_by_row(tmp_path: Path) -> None:
    hours = {f"d{i}": [(i * HOUR, (i + 1) * HOUR)] for i in range(5)}
    bundle_of(hours, on_end="unavailable").write(tmp_path / "online")
    speeds = {"task": ["*"] * 4, "phase": ["training"] * 4, "sample_s": [0.1, 0.2, 0.3, 0.4]}
    fast = phones(tmp_path, "fast", compute=speeds)
    rates = {"direction": ["both"] * 6, "bandwidth_bps": [1e3 * 2**i for i in range(6)]}
    linked = phones(tmp_path, "linked", count=6, network=rates)
    devices = {
        "compute": {"name": "trace", "trace": fast},
        "availability": {"trace": str(tmp_path / "online")},
        "network": {"name": "static", "trace": linked, "latency": 0},
    }
    population = build(fedsim.read_scenario(timing(devices))).population
    assert population.compute.step_s.tolist() == pytest.approx([1.6, 3.2, 4.8, 6.4])
    assert [population.network.rate_bps(i, 0) for i in range(4)] == [1000, 2000, 4000, 8000]
    assert [population.availability.next_online(i, 0) for i in range(4)] == [
        i * 3600 * S for i in range(4)
    ]
    too_many = {**timing(devices, clients=5), "stop": {"rounds": 1}}
    with pytest.raises(UserError, match="fast has 4 devices for 5 clients") as refused:
        build(fedsim.read_scenario(too_many))
    assert "devices.compute.trace" in refused.value.message
    assert "devices.assign: sample" in str(refused.value.hint)


@pytest.mark.parametrize("policy", ["drop", "pause"])
def test_each_dispatch_has_the_rates_drawn_for_it(tmp_path: Path, policy: str) -> None:
    hours = {f"d{i}": [(0, DAY)] for i in range(2)}
    bundle_of(hours).write(tmp_path / "online")
    devices = {
        "trace": str(tmp_path / "online"),
        "compute": STEPS,
        "network": {**LINKS, "variation": 0.5},
        "availability": {"on_disconnect": policy},
    }
    server = {"selection": {"name": "scripted", "rounds": [[0, 1], [0], [1, 0]]}}
    world = timing(devices, clients=2, server=server, stop={"rounds": 3})
    run = fedsim.run(world, tmp_path / "run")
    network = build(fedsim.read_scenario(world)).population.network
    assert isinstance(network, VaryingNetwork)
    seen = {0: 0, 1: 0}
    for row in run.dispatches.itertuples():
        client = int(row.client_id)
        down, up = (network.factor(client, way, seen[client]) for way in Direction)
        assert row.downloaded_s - row.dispatched_s == pytest.approx(1 / down, abs=1e-8)
        assert row.arrived_s - row.computed_s == pytest.approx(2 / up, abs=1e-8)
        assert (row.bytes_down, row.bytes_up) == (4000, 4000)
        seen[client] += 1
    assert seen == {0: 3, 1: 2}


def test_devices_are_those_of_the_first_bundle(tmp_path: Path) -> None:
    """Which is that of the availability, because the compute model reads none."""
    bundle_of({f"online{i}": [(0, DAY)] for i in range(4)}).write(tmp_path / "online")
    rates = {"direction": ["both"] * 4, "bandwidth_bps": [1e6] * 4}
    linked = phones(tmp_path, "linked", network=rates)
    devices = {
        "compute": STEPS,
        "availability": {"trace": str(tmp_path / "online")},
        "network": {"trace": linked, "latency": 0},
    }
    run = fedsim.run(timing(devices), tmp_path / "run")
    assert run.clients["device"].tolist() == [f"online{i}" for i in range(4)]
    description = pq.read_schema(run.path / "clients.parquet").field("device").metadata
    assert b"first trace bundle of compute, availability and network" in description[b"description"]


def named_world(tmp_path: Path, groups: list[str], **devices: Any) -> LoadedScenario:
    """One sample for each of the groups, which are clients, on the devices d0 to d3."""
    np.savez(
        tmp_path / "data.npz",
        x=np.ones((2 * len(groups), 2), np.float32),
        y=np.arange(2 * len(groups)) % 2,
        group=groups * 2,
        is_test=np.repeat([False, True], len(groups)),
    )
    world = timing(
        {"trace": phones(tmp_path), "compute": STEPS, "network": LINKS, **devices},
        task={
            "dataset": {"name": "npz", "path": str(tmp_path / "data.npz")},
            "partition": "natural",
            "model": "logistic_regression",
        },
        server={},
    )
    return read_scenario(world)


@pytest.mark.parametrize(
    ("groups", "wrong"),
    [
        (["d0", "d1", "d2", "d3"], None),
        (["d1", "d2", "d3"], "3 of 3 clients are"),
        (["a", "d0"], "1 of 2 clients is"),
        (["a", "b"], None),
    ],
)
def test_clients_on_devices_of_other_names_are_named(
    groups: list[str], wrong: str | None, tmp_path: Path
) -> None:
    warnings = [str(each) for each in check(named_world(tmp_path, groups)) if "name" in str(each)]
    assert len(warnings) == (wrong is not None)
    assert all(f"devices.assign: {wrong} not on the device of that name" in w for w in warnings)


def test_clients_are_paired_with_the_devices_of_their_names(tmp_path: Path) -> None:
    loaded = named_world(tmp_path, ["d3", "d1"], assign="by_name")
    assert not [each for each in check(loaded) if "name" in str(each)]
    names = build(loaded).names()
    assert list(names["name"]) == names["device"].to_pylist() == ["d1", "d3"]
    (tmp_path / "other").mkdir()
    missing = named_world(tmp_path / "other", ["d3", "d9"], assign="by_name")
    with pytest.raises(UserError, match=r"no device with the name of 1 client: d9"):
        check(missing)
    with pytest.raises(UserError, match="the clients have no names"):
        check(read_scenario(timing({"trace": phones(tmp_path, "b"), "assign": "by_name"})))


@pytest.mark.parametrize(
    ("rtt_s", "latency", "warned"),
    [
        (0.08, {}, 1),
        (0.08, {"latency": "40ms"}, 0),
        (0.08, {"latency": "bundle"}, 0),
        (None, {}, 0),
    ],
)
def test_round_trip_times_are_not_ignored_in_silence(
    rtt_s: float | None, latency: dict[str, Any], warned: int, tmp_path: Path
) -> None:
    columns = {"direction": ["both"] * 4, "bandwidth_bps": [1e6] * 4, "rtt_s": [rtt_s] * 4}
    devices = {"trace": phones(tmp_path, network=columns), "compute": STEPS, "network": latency}
    named = [each for each in check(read_scenario(timing(devices))) if "round-trip" in str(each)]
    assert len(named) == warned
    assert all("default of 40 ms" in str(each) for each in named)
    builtin = timing({"trace": "builtin:phones_week"})
    assert not [each for each in check(read_scenario(builtin)) if "round-trip" in str(each)]
