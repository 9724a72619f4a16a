"""DiLoCo, its asynchronous form with delayed Nesterov momentum, and Streaming DiLoCo, step by step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedsim
from fedsim.errors import UserError
from tests.methods.driver import play, quadratic
from tests.methods.simulated import world
from tests.methods.test_participation import LOG, q2

CENTERS = np.array([[1.0, -2.0, 0.5, 3.0, 2.0], [-1.0, 1.0, 2.0, 0.0, 4.0]])
CURVATURES = np.array([1.0, 3.0])
FULL = [[0, 1]] * 7


@pytest.mark.parametrize(("fragments", "overlap"), [(2, 0), (2, 2), (3, 1), (5, 3)])
def test_iterates(fragments: int, overlap: int) -> None:
    """Algorithm 2 of the paper in global steps: a fragment is sent every K steps and merged ``overlap`` steps later."""
    steps, lr, beta, outer, alpha = 4, 0.1, 0.6, 0.5, 0.3
    played = play(
        "streaming_diloco",
        quadratic(CENTERS, CURVATURES),
        FULL,
        steps=steps,
        fragments=fragments,
        overlap=overlap,
        momentum=beta,
        server_lr=outer,
        own_share=alpha,
    )
    size = CENTERS.shape[1]
    length = -(-size // fragments)
    parts = [slice(i * length, min((i + 1) * length, size)) for i in range(fragments)]
    model, momentum = np.zeros(size), np.zeros(size)
    local = np.zeros((2, size))
    pending: list[tuple[int, int]] = []
    sent = 0
    for t in range(1, steps * len(FULL) + overlap + 1):
        if pending and pending[0][0] == t - 1:
            part = parts[pending.pop(0)[1]]
            local[:, part] = alpha * local[:, part] + (1 - alpha) * model[part]
        local -= lr * CURVATURES[:, None] * (local - CENTERS)
        if t % steps == 0 and sent < len(FULL):
            part = parts[sent % fragments]
            change = (local[:, part] - model[part]).mean(axis=0)
            momentum[part] = beta * momentum[part] + change
            model = model.copy()
            model[part] += outer * (change + beta * momentum[part])
            pending.append((t + overlap, sent % fragments))
            sent += 1
            np.testing.assert_allclose(played.models[sent], model, rtol=1e-12, atol=1e-14)


def test_clients_that_have_missed_a_round_begin_with_the_whole_model() -> None:
    """Clients in turn: each trains the model sent, and the change of one fragment moves it."""
    log = [[0], [1], [0], [1], [0]]
    played = play(
        "streaming_diloco", quadratic(CENTERS, CURVATURES), log, steps=2, fragments=5, overlap=1
    )
    model, momentum = np.zeros(5), np.zeros(5)
    for version, (client,) in enumerate(log):
        shrunk = (1 - 0.1 * CURVATURES[client]) ** 2
        change = (shrunk - 1) * (model - CENTERS[client])
        part = version % 5
        momentum[part] = 0.9 * momentum[part] + change[part]
        model[part] += 0.7 * (change[part] + 0.9 * momentum[part])
        np.testing.assert_allclose(played.models[version + 1], model, rtol=1e-12)


def test_an_overlap_of_all_local_steps_is_refused() -> None:
    with pytest.raises(UserError, match="overlap is 3"):
        play("streaming_diloco", q2(), LOG, steps=3, overlap=3)


def test_one_fragment_without_overlap_is_diloco() -> None:
    options: dict[str, Any] = {"steps": 3, "momentum": 0.6, "server_lr": 0.4}
    streaming = play(
        "streaming_diloco", q2(), LOG, fragments=1, overlap=0, own_share=0.0, **options
    )
    assert streaming.x.tolist() == play("diloco", q2(), LOG, **options).x.tolist()


def scenario(method: dict[str, Any]) -> dict[str, Any]:
    """Two always-on clients that need 1 s per step and 0.5 s per number sent."""
    return world(
        CENTERS[:, :4].tolist(),
        method=method,
        steps=4,
        training={"optimizer": {"name": "adamw", "lr": 0.1}, "optimizer_state": "kept"},
        devices={"network": {"name": "static", "latency": "0s", "down": "128bps", "up": "128bps"}},
        stop={"rounds": 5},
        evaluation={"every_rounds": 1},
    )


def test_transfers_hide_behind_local_steps(tmp_path: Path) -> None:
    streaming = {"name": "streaming_diloco", "fragments": 2, "overlap": 2}
    run = fedsim.run(scenario(streaming), tmp_path / "streaming")
    # The whole model first: 2 + 4 + 1 s. Then two steps and the longer of two steps and two transfers of 1 s.
    assert run.aggregations["time_s"].tolist() == [7, 11, 15, 19, 23]
    assert run.dispatches["bytes_down"].tolist() == [32, 32] + 8 * [16]
    assert run.dispatches["bytes_up"].unique().tolist() == [16]
    assert run.dispatches["compute_s"].unique().tolist() == [4]
    plain = fedsim.run(scenario({"name": "diloco"}), tmp_path / "diloco")
    assert plain.aggregations["time_s"].tolist() == [8, 16, 24, 32, 40]
    bound = fedsim.compare([run]).curves(bound=True)
    assert bound["x"].max() <= 23
    # A client of a cohort downloads the whole model after a round that it has missed.
    sampled = scenario(streaming)
    sampled["server"]["selection"] = {"name": "uniform", "cohort": 1}
    sampled["stop"] = {"rounds": 12}
    rows = fedsim.run(sampled, tmp_path / "sampled").dispatches
    repeats = rows["client_id"].diff().eq(0)
    assert 0 < repeats.sum() < 11
    assert rows["bytes_down"].tolist() == np.where(repeats, 16, 32).tolist()
    again = scenario(streaming)
    again["training"]["verify"] = "eager"
    eager = fedsim.run(again, tmp_path / "eager")
    assert eager.metrics.equals(run.metrics)


ADAMW = {"optimizer": {"name": "adamw", "lr": 0.05}}


def test_the_outer_optimizer_is_torchs_nesterov() -> None:
    played = play("diloco", q2(), LOG, steps=3, momentum=0.6, server_lr=0.4)
    plain = torch.tensor([float(played.x[0])], requires_grad=True, dtype=torch.float64)
    outer = torch.optim.SGD([plain], lr=0.4, momentum=0.6, nesterov=True)
    for version, clients in enumerate(LOG):
        x = float(played.x[version])
        centers, curvatures = (1.0, -1.0), (1.0, 3.0)
        change = np.mean(
            [
                centers[c] + (1 - 0.1 * curvatures[c]) ** 3 * (x - centers[c]) - x
                for c in clients
                if isinstance(c, int)
            ]
        )
        plain.grad = torch.tensor([-float(change)], dtype=torch.float64)
        outer.step()
        assert played.x[version + 1] == pytest.approx(float(plain.detach()), rel=1e-10)


def test_without_momentum_it_is_fedavg_with_adamw() -> None:
    diloco = play("diloco", q2(), LOG, steps=3, momentum=0.0, server_lr=1.0, training=ADAMW)
    fedavg = play("fedavg", q2(), LOG, steps=3, weights="uniform", training=ADAMW)
    assert diloco.x.tolist() == fedavg.x.tolist()


def test_delayed_nesterov_of_every_update_is_diloco() -> None:
    log = [[0], [1], [0], [1], [1]]
    delayed = play("delayed_nesterov", q2(), log, momentum_every=1, activation=0.3)
    np.testing.assert_allclose(delayed.x, play("diloco", q2(), log).x, rtol=1e-12)
