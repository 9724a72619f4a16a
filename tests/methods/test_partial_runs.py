"""Split models in whole runs: time, bytes, the prologue, absent clients, personal metrics and files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedsim
from fedsim.composition.build import build
from tests.composition.worlds import digits
from tests.oracle.compare import write_bundle

MEGABIT = 1_000_000


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with the links of the two clients; where it is asked for availability, A is offline for a minute."""
    second = 10**9
    day = 24 * 3600 * second
    rates = [{"down": 10 * MEGABIT, "up": 5 * MEGABIT}, {"down": 20 * MEGABIT, "up": 10 * MEGABIT}]
    tables = {
        "on_end": "unavailable",
        "devices": [{"window": (0, day)}] * 2,
        "network": rates,
        "availability": [(0, 60 * second, day, 1), (1, 0, day, 1)],
    }
    path = tmp_path_factory.mktemp("bundles") / "links"
    write_bundle(tables, path)
    return path


def two_links(links: Path, method: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Card section 9: client A 10/5 Mbit/s and 0.1 s a step, client B 20/10 Mbit/s and 0.5 s, 10 steps."""
    scenario = {
        "name": "two-links",
        "task": {
            "name": "timing",
            "clients": 2,
            "parameters": 1_100_000,
            "names": {"u": 1_000_000, "v": 100_000},
        },
        "training": {"local_steps": 10},
        "devices": {
            "compute": {"name": "values", "step": [0.1, 0.5]},
            "network": {"name": "static", "latency": 0, "trace": str(links)},
        },
        "server": {"method": method, "selection": {"name": "scripted", "rounds": [[0, 1], [0, 1]]}},
        "stop": {"rounds": 2},
    }
    return {**scenario, **changes}


COMPUTE_S = 10 * np.array([0.1, 0.5])
SCAFFOLD_P = 2 * 1.0 / 1.1  # on the shared part only
CORRECTION_S = COMPUTE_S * SCAFFOLD_P / (6 * 32)


@pytest.mark.parametrize(
    ("method", "seconds", "vectors", "operations"),
    [
        ({"name": "fedavg_p"}, (10.6, 9.8), (1, 1), 0),
        ({"name": "fedalt"}, (11.6, 14.8), (1, 1), 0),
        ({"name": "fedrep", "personal_steps": 2}, (12.6, 19.8), (1, 1), 0),
        ({"name": "scaffold_p", "c0": "zero"}, (20.2, 14.6), (2, 2), SCAFFOLD_P),
        ({"name": "scaffold_p", "c0": "zero", "uplink": 1}, (13.8, 11.4), (2, 1), SCAFFOLD_P),
        ({"name": "fedavg_p", "personal": "none"}, (11.56, 10.28), (1.1, 1.1), 0),
        ({"name": "feddyn"}, (11.56, 10.28), (1.1, 1.1), 4),
        ({"name": "ditto"}, (12.56, 15.28), (1.1, 1.1), 3),
        ({"name": "lg_fedavg", "personal": ["u"]}, (1.96, 5.48), (0.1, 0.1), 0),
        ({"name": "fedper", "personal": "all"}, (1.0, 5.0), (0, 0), 0),
    ],
)
def test_time_and_bytes_of_a_round(
    method: dict[str, Any],
    seconds: tuple[float, float],
    vectors: tuple[float, float],
    operations: float,
    links: Path,
    tmp_path: Path,
) -> None:
    """Each client's time and both rounds' length, to the nanosecond; a vector is 4 MB.

    ``operations`` of the local rule per parameter and step come on top of 6 x 32 for a batch of 32 samples.
    """
    run = fedsim.run(two_links(links, method), tmp_path / "run")
    table = run.dispatches
    spent = (table["arrived_s"] - table["dispatched_s"]).to_numpy().reshape(2, 2)
    expected = np.array(seconds) + COMPUTE_S * operations / (6 * 32)
    assert spent == pytest.approx(np.array([expected, expected]), abs=1e-8)
    assert np.diff([0.0, *run.aggregations["time_s"]]) == pytest.approx(
        [max(expected)] * 2, abs=1e-8
    )
    assert (table["bytes_down"] == 4 * MEGABIT * vectors[0]).all()
    assert (table["bytes_up"] == 4 * MEGABIT * vectors[1]).all()


# -- the prologue ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["static", "shared"])
def test_the_prologue_takes_time_and_bytes(links: Path, network: str, tmp_path: Path) -> None:
    """One vector each way and ten gradients from all clients; the first round starts when the last has answered."""
    scenario = two_links(links, {"name": "scaffold_p"})
    scenario["devices"]["network"]["name"] = network
    run = fedsim.run(scenario, tmp_path / "run")
    extra = CORRECTION_S[0] * np.array([1, 2, 3])
    assert run.aggregations["time_s"].to_numpy() == pytest.approx(
        np.array([10.6, 30.8, 51.0]) + extra, abs=1e-6
    )
    assert run.aggregations["round"].to_list() == [0, 0, 1]
    table = run.dispatches
    assert table["version"].to_list() == [0, 0, 1, 1, 2, 2]
    for column in ("bytes_down", "bytes_up"):
        assert table[column].to_list() == [4 * MEGABIT] * 2 + [8 * MEGABIT] * 4
    assert run.info["rounds"] == 2


def test_the_prologue_closes_at_the_deadline(links: Path, tmp_path: Path) -> None:
    """Client 0 would need 15.6 s: its answer is late, and the rounds (client 1 needs 14.6 s) begin without it."""
    schedule = {"name": "sync", "deadline": "15s", "stragglers": "cut"}
    server = {"method": {"name": "scaffold_p"}, "schedule": schedule}
    scenario = two_links(links, {}, server=server, stop={"rounds": 1})
    scenario["devices"]["compute"]["step"] = [0.6, 0.5]
    run = fedsim.run(scenario, tmp_path / "run")
    assert run.aggregations["contributor_ids"].map(list).to_list()[0] == [1]
    assert run.aggregations["time_s"].to_list()[0] == 15
    assert run.dispatches["outcome"].to_list()[:2] == ["cut", "aggregated"]


def test_clients_that_are_offline_at_the_start_have_no_prologue(
    links: Path, tmp_path: Path
) -> None:
    """Only B answers, after 1.6 + 5 + 3.2 s; A begins with c_i = 0 when it checks in."""
    scenario = two_links(links, {"name": "scaffold_p"}, stop={"rounds": 1})
    scenario["devices"]["availability"] = {"name": "trace", "trace": str(links)}
    run = fedsim.run(scenario, tmp_path / "run")
    assert run.aggregations["contributor_ids"].map(list).to_list() == [[0], [1, 2]]
    assert run.dispatches["client_id"].to_list() == [1, 1, 0]
    assert run.aggregations["time_s"].to_numpy() == pytest.approx(
        np.array([9.8, 80.2]) + CORRECTION_S[::-1], abs=1e-6
    )


@pytest.mark.parametrize("c0_clients", [1.0, 2])
def test_a_prologue_can_wait_for_clients_that_are_offline(
    links: Path, c0_clients: float, tmp_path: Path
) -> None:
    """A checks in after a minute and answers 10.6 s later; the deadline of the rounds does not apply."""
    method = {"name": "scaffold_p", "c0_clients": c0_clients}
    schedule = {"name": "sync", "deadline": "30s"}
    scenario = two_links(links, {}, server={"method": method, "schedule": schedule})
    scenario["stop"] = {"rounds": 1}
    scenario["devices"]["availability"] = {"name": "trace", "trace": str(links)}
    run = fedsim.run(scenario, tmp_path / "run")
    assert run.aggregations["contributor_ids"].map(len).to_list()[0] == 2
    assert run.aggregations["time_s"].to_list()[0] == pytest.approx(
        70.6 + CORRECTION_S[0], abs=1e-6
    )
    assert run.dispatches["version"].to_list() == [0, 0, 1, 1]


# -- learning ----------------------------------------------------------------------------------------------------------


def personal_digits(method: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Digits with two classes a client, and test samples of each client's own."""
    world = digits(
        task={
            "dataset": {"name": "digits"},
            "partition": {
                "name": "shards",
                "classes_per_client": 2,
                "clients": 12,
                "test": "split",
            },
            "model": {"name": "mlp", "hidden": [16]},
        },
        stop={"rounds": 8},
    )
    return {**world, "server": {**world["server"], "method": method}, **changes}


@pytest.mark.parametrize("method", ["scaffold_p", "fedalt", "lg_fedavg", "ditto"])
def test_each_client_is_measured_with_a_model_of_its_own(method: str, tmp_path: Path) -> None:
    """Personal metrics are there and beat the global model's on two-class clients; files hold the personal parts."""
    run = fedsim.run(personal_digits({"name": method}), tmp_path / "run")
    last = run.metrics.iloc[-1]
    assert last["client_accuracy_worst"] <= last["client_accuracy"]
    assert last["client_loss"] < run.metrics["client_loss"].iloc[0]
    if method != "lg_fedavg":
        assert last["client_accuracy"] > last["accuracy"]
    parts, model = run.personal_parts(), run.model()
    clients = parts.pop("clients").tolist()
    used = run.dispatches.query("outcome == 'aggregated'")
    assert clients == sorted(used["client_id"].unique())
    # In its prologue a client leaves its personal part as it is.
    trained = used[used["version"] > 0] if method == "scaffold_p" else used
    head, body = {"layers.1.weight", "layers.1.bias"}, {"layers.0.weight", "layers.0.bias"}
    assert set(model) == head | body
    assert set(parts) == {"ditto": head | body, "lg_fedavg": body}.get(method, head)
    for name, rows in parts.items():
        assert rows.shape == (len(clients), *model[name].shape)
        own_rows = rows[[client in set(trained["client_id"]) for client in clients]]
        assert len({row.numpy().tobytes() for row in own_rows}) == len(own_rows)
    accuracies = run.clients.set_index("client_id")["last_accuracy"]
    known = accuracies.dropna()
    assert last["client_accuracy"] == pytest.approx(known.mean(), rel=1e-12)
    untouched = sorted(set(range(12)) - set(clients))
    assert method == "ditto" or not untouched or accuracies[untouched].notna().any()


def test_personal_parts_are_what_the_final_metrics_measured(tmp_path: Path) -> None:
    """The saved global and personal tensors, put together, give a client's last accuracy."""
    scenario = personal_digits({"name": "fedper"})
    run = fedsim.run(scenario, tmp_path / "run")
    task = build(fedsim.read_scenario(scenario)).task
    assert task is not None
    parts, model = run.personal_parts(), run.model()
    row, client = 0, int(parts["clients"][0])
    state = {**model, **{name: rows[row] for name, rows in parts.items() if name != "clients"}}
    offsets, rows = task.client_test_offsets, task.client_test_rows  # type: ignore[attr-defined]
    mine = torch.from_numpy(rows[offsets[client] : offsets[client + 1]])
    hidden = task.inputs(task.client_test[0][mine]).flatten(1)  # type: ignore[attr-defined]
    hidden = torch.relu(hidden @ state["layers.0.weight"].T + state["layers.0.bias"])
    outputs = hidden @ state["layers.1.weight"].T + state["layers.1.bias"]
    right = outputs.argmax(1) == task.client_test[1][mine]  # type: ignore[attr-defined]
    recorded = run.clients.set_index("client_id")["last_accuracy"][client]
    assert recorded == pytest.approx(right.double().mean().item(), rel=1e-12)


def test_lost_work_is_kept_where_asked_for(tmp_path: Path) -> None:
    """With every upload lost the model never moves; personal parts do only with keep_v_on_drop, and can be resumed."""
    parts = {}
    for keep in (False, True):
        method = {"name": "fedavg_p", "keep_v_on_drop": keep}
        scenario = personal_digits(method, evaluation={"every": "1s"})
        scenario["devices"] = {**scenario["devices"], "failures": {"upload_loss": 1.0}}
        run = fedsim.run(scenario, tmp_path / f"run-{keep}")
        assert set(run.dispatches["outcome"]) == {"dropped"}
        parts[keep] = run.personal_parts()
        if keep:
            losses = run.metrics["client_loss"].to_numpy()
    assert not parts[False]
    assert len(parts[True]["clients"]) > 4
    assert losses[-1] < losses[0]
