"""Methods in whole simulated runs: emergent partial work, bytes, random availability, statistics of the books."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedsim
from fedsim.errors import UserError
from tests.composition.worlds import quadratic as scripted
from tests.devices.worlds import timing
from tests.methods.driver import close
from tests.methods.simulated import Simulated, simulate, world
from tests.simulation.harness import online_bundle

Q2 = ([1.0, -1.0], [1.0, 3.0], 2.0)

LOG = [[0], [1], [0], [0, 1]]


# -- iterates through scenarios --------------------------------------------------------------------


EMPTY_ROUNDS = {"schedule": {"name": "sync", "min_updates": 0}}


def test_steps_on_empty_rounds_are_the_schedules_choice() -> None:
    """N = 1, K = 3: FedSUM moves along the old y where empty rounds close with an update; FedAvg stays."""
    one = ([1.0], [2.0], 3.0)
    rounds: list[list[int]] = [[0], [], [0]]
    for method, expected in (
        ("fedsum", [2.024, 1.048, 1.024576]),
        ("fedsum_cr", [2.024, 1.048, 1.024576]),
        ("fedsum_b", [1.8, 0.6, 0.84]),
        ("fedavg", [2.024, 2.024, 1.524288]),
    ):
        scenario = world(*one, method=method, rounds=rounds, steps=3, server=EMPTY_ROUNDS)
        scenario["server"]["method"] = {"name": method}
        scenario["server"]["selection"] = {"name": "scripted", "rounds": rounds}
        close(simulate(scenario).x[1:], expected)


def test_one_availability_cycle_comes_from_the_trace(tmp_path: Path) -> None:
    """Clients take turns of 10 s; the trace repeats every 20 s, and every update at or after 20 s amplifies."""
    turns = online_bundle([(0.0, 10.0)], [(10.0, 20.0)], horizon_s=20.0, on_end="wrap")
    turns.write(tmp_path / "turns")
    method = {"name": "generalized_fedavg", "amplification": 10}
    scenario = world(
        [1.0, 3.0],
        method=method,
        devices={
            "trace": str(tmp_path / "turns"),
            "compute": {"name": "values", "step": [7.0, 7.0]},
        },
        stop={"simulated_time": 60},
    )
    ran = simulate(scenario)
    # Rounds at 0-7 (client 0; at 7 s it starts again and drops out at 10 s), 10-17 (client 1), 20-27, ...
    arrived = ran.dispatches.dropna(subset="arrived")
    assert arrived["client"].tolist() == [0, 1, 0, 1, 0, 1]
    # The first update at or after 20 s is client 0's second: 10 x (0.1, 0.29, 0.061).
    close(ran.x[:4], [0, 0.1, 0.39, 4.51], 1e-9)


# -- partial work that emerges ---------------------------------------------------------------------


def limited(
    centers: Any,
    curvatures: Any,
    initial: Any,
    done: list[int],
    full: int,
    rounds: int,
    cost: float = 1.0,
    **method: Any,
) -> Simulated:
    """Clients so slow that they do ``done`` of ``full`` steps, each of ``cost`` plain steps, by a deadline of 10 s."""
    scenario = world(
        centers,
        curvatures,
        initial,
        method=method,
        rounds=[list(range(len(done)))] * rounds,
        steps=full,
        devices={
            "compute": {"name": "values", "step": [9.9 / count / cost for count in done]},
            "network": {"name": "static", "latency": 0, "down": "1000Gbps", "up": "1000Gbps"},
        },
    )
    scenario["training"]["optimizer"]["lr"] = {3: 0.5, 4: 0.25}[full]
    scenario["server"] |= {"partial_work": "send", "schedule": {"name": "sync", "deadline": 10}}
    return simulate(scenario)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ({"name": "fedavg", "weights": "uniform"}, [7 / 16, 67 / 256]),
        ({"name": "fedlga", "grad_source": "last_grad"}, [107 / 256, 274097415 / 1073741824]),
        ({"name": "scaffold"}, [7 / 16, 69 / 256]),
    ],
)
def test_partial_work_by_a_deadline(method: dict[str, Any], expected: list[float]) -> None:
    """C1 of the FedLGA card: A does all 3 steps, B does 1, because of its speed."""
    # A gradient takes 4 operations. SCAFFOLD adds two per step, ``last_grad`` a gradient per dispatch of 3 steps.
    costs = {"scaffold": 3 / 2, "last_grad": 4 / 3}
    cost = costs.get(method.get("grad_source", method["name"]), 1.0)
    ran = limited([0.0, 0.5], 1.0, 1.0, [3, 1], 3, len(expected), cost, **method)
    assert ran.dispatches["steps_done"].tolist() == [3, 1] * len(expected)
    assert (ran.dispatches["steps_assigned"] == 3).all()
    close(ran.x[1:], expected)


def test_drawn_steps_reach_the_method() -> None:
    """Work in steps: E counts steps; what a limited client did not do is not learnt."""
    scenario = world([1.0] * 4, method="fedavg", rounds=[[0, 1, 2, 3]], steps=3)
    scenario["training"]["limited"] = {"share": 1.0, "tau_min": 3, "tau_max": 3}
    close(simulate(scenario).x[1], 0.1)
    scenario["training"]["limited"] = {"share": 0.0}
    close(simulate(scenario).x[1], 1 - 0.9**3)
    scenario["training"]["limited"] = {"tau_min": 3, "tau_max": 2}
    with pytest.raises(UserError, match="tau_max is 2, below tau_min 3"):
        simulate(scenario)


NETWORK = {"name": "static", "latency": 0, "down": "64kbps", "up": "32kbps"}


def timed(network: dict[str, Any], clients: int, **sections: Any) -> dict[str, Any]:
    """1,000 parameters, and two steps of a second per dispatch."""
    return timing(
        {"compute": {"name": "values", "step": 1.0}, "network": network},
        clients,
        training={"local_steps": 2},
        **sections,
    )


# -- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "down", "up", "extra_s"),
    [
        ({"name": "fedavg"}, 1, 1, 0),
        ({"name": "fedsum_b"}, 1, 1, 2 * 1 / 192),
        ({"name": "fedsum"}, 2, 1, 2 * 3 / 192),
        ({"name": "fedsum_cr"}, 1, 1, 2 * 3 / 192),
        ({"name": "scaffold"}, 2, 2, 2 * 2 / 192),
        ({"name": "scaffold", "uplink": 1}, 2, 1, 2 * 2 / 192),
        ({"name": "fedlga", "grad_source": "last_grad"}, 1, 2, 1),
    ],
)
def test_bytes_and_the_time_they_take(
    tmp_path: Path, method: dict[str, Any], down: int, up: int, extra_s: float
) -> None:
    """1,000 parameters of 4 bytes per vector at 8 kB/s down and 4 kB/s up: 0.5 s and 1 s per vector.

    A local step of 1 s is 6 x 32 operations per parameter, and those of the local rule come on top of them.
    """
    scenario = timed(NETWORK, 3, server={"method": method}, stop={"rounds": 2})
    rows = fedsim.run(scenario, tmp_path / "run").dispatches
    assert (rows["bytes_down"] == 4000 * down).all()
    assert (rows["bytes_up"] == 4000 * up).all()
    lasted = (rows["arrived_s"] - rows["dispatched_s"]).to_numpy()
    assert lasted == pytest.approx(0.5 * down + 2 + up + extra_s, abs=1e-8)


@pytest.mark.parametrize("shared", [False, True])
def test_bytes_of_the_first_download(tmp_path: Path, shared: bool) -> None:
    """FedSUM-CR that sends the initial model: two models down the first time, one later, on any network."""
    wide = {"name": "shared", "server_down": "1Gbps", "server_up": "1Gbps"}
    server = {
        "method": {"name": "fedsum_cr", "bootstrap": "first_download"},
        "selection": {"name": "scripted", "rounds": [[0], [0, 1], [0, 1]]},
    }
    network = NETWORK | wide if shared else NETWORK
    scenario = timed(network, 2, server=server, stop={"rounds": 3})
    rows = fedsim.run(scenario, tmp_path / "run").dispatches.sort_values("dispatch_id")
    assert rows["bytes_down"].tolist() == [8000, 4000, 8000, 4000, 4000]
    assert (rows["bytes_up"] == 4000).all()
    times = rows["downloaded_s"] - rows["dispatched_s"]
    assert times.to_numpy() == pytest.approx([1.0, 0.5, 1.0, 0.5, 0.5], abs=1e-6)


# -- schedules -------------------------------------------------------------------------------------


def test_mifa_may_begin_with_everybody() -> None:
    """Before the first round all clients are asked; then the rounds are those of the script."""
    scenario = world(*Q2, method={"name": "mifa", "first_round": "all"}, rounds=LOG)
    ran = simulate(scenario)
    x, latest = [2.0], [2.0 - 1, 3 * (2.0 + 1)]
    x.append(x[0] - 0.1 * sum(latest) / 2)
    for clients in LOG[: len(ran.x) - 2]:
        for client in clients:
            latest[client] = (x[-1] - 1) if client == 0 else 3 * (x[-1] + 1)
        x.append(x[-1] - 0.1 * sum(latest) / 2)
    close(ran.x, x)


def test_waiting_for_all(tmp_path: Path) -> None:
    """Client 0 is online from 0 to 100 s, client 1 from 20 s; a step takes 3 s. Each works once per window."""
    online_bundle([(0.0, 100.0)], [(20.0, 22.0), (30.0, 100.0)], horizon_s=1000.0).write(
        tmp_path / "trace"
    )
    scenario = world(
        [1.0, 3.0],
        method="wait",
        stop={"rounds": 3},
        devices={
            "trace": str(tmp_path / "trace"),
            "compute": {"name": "values", "step": [3.0, 3.0]},
        },
    )
    ran = simulate(scenario)
    close(ran.x, [0, 0.2, 0.38, 0.542])
    rows = ran.dispatches
    # Client 1 is offline until 20 s, drops out at 22 s and is back at 30 s; then both are there.
    assert [round(aggregate.time_s, 3) for aggregate in ran.book.aggregates] == [33, 36, 39]
    assert rows["client"].tolist()[:3] == [0, 1, 1]
    assert rows["dispatched"].tolist()[:3] == pytest.approx([0, 20, 30])
    assert (rows["version"] == [0, 0, 0, 1, 1, 2, 2]).all()


def test_fedavg_on_quadratics_gives_the_iterates_worked_out_by_hand(tmp_path: Path) -> None:
    """x -> b + (1 - 0.1 a)^2 (x - b) for each client; the mean of the participants; float64."""
    script = [[0, 1], [1, 2], [0, 1, 2], [2]]
    run = fedsim.run(scripted(script), tmp_path / "run")
    a, b, x = (1.0, 2.0, 4.0), (0.0, 3.0, -1.0), 1.0
    expected = [x]
    for clients in script:
        x = sum(b[i] + (1 - 0.1 * a[i]) ** 2 * (x - b[i]) for i in clients) / len(clients)
        expected.append(x)
    final = run.model()["x"]
    assert final.dtype == torch.float64
    assert final.item() == pytest.approx(expected[-1], rel=1e-12)
    losses = [sum(0.5 * a[i] * (x - b[i]) ** 2 for i in range(3)) / 3 for x in expected]
    assert run.metrics["loss"].to_list() == pytest.approx(losses, rel=1e-12)
    assert run.metrics["version"].to_list() == [0, 1, 2, 3, 4]
    assert run.metrics["round"].to_list() == [0, 1, 2, 3, 4]
    # 8 bytes at 1 Mbit/s are 64 us each way; two steps of the slowest participant.
    durations = np.diff([0.0, *run.aggregations["time_s"]])
    assert durations == pytest.approx([4.000128, 6.000128, 6.000128, 6.000128], abs=1e-9)


def test_sample_weights_and_server_learning_rate(tmp_path: Path) -> None:
    """Weights 1 : 3 and server learning rate 0.5, one round by hand: changes -0.19 and 0.72."""
    scenario = scripted(
        [[0, 1]],
        server={
            "method": {"name": "fedavg", "weights": "samples", "server_lr": 0.5},
            "selection": {"name": "scripted", "rounds": [[0, 1]]},
        },
    )
    scenario["task"] = {**scenario["task"], "samples": [1, 3, 1]}
    run = fedsim.run(scenario, tmp_path / "run")
    assert run.model()["x"].item() == pytest.approx(
        1 + 0.5 * (0.25 * -0.19 + 0.75 * 0.72), rel=1e-12
    )
