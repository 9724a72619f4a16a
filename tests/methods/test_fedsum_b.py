"""FedSUM-B: its limit of stability, and centralized SGD as its case of full participation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.methods.driver import Round, close, play, quadratic
from tests.methods.problems import DECAYED, LOG, q2


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5])
def test_stability_limit_under_cyclic_participation(blocks: int) -> None:
    """All f_i = x^2 / 2: FedSUM-B is stable up to gamma = 2 B sin^2(pi / 2B)."""
    limit = 2 * blocks * np.sin(np.pi / (2 * blocks)) ** 2
    if blocks == 5:
        assert limit == pytest.approx(0.954915, abs=5e-7)
    task = quadratic([0.0] * blocks, 1.0, 1.0)
    log: list[Round] = [[t % blocks] for t in range(250)]

    def growth(gamma: float) -> float:
        x = np.abs(play("fedsum_b", task, log, lr=gamma).x)
        return float(x[-50:].max() / x[50:100].max())

    assert growth(0.96 * limit) < 0.7
    assert growth(1.04 * limit) > 1.5


def test_only_the_product_of_rates_counts_for_fedsum_b() -> None:
    """(eta_g c, eta_l / c) leave FedSUM-B alone; FedSUM tends to it linearly in eta_l."""
    base = play("fedsum_b", q2(), LOG, steps=2).x
    close(play("fedsum_b", q2(), LOG, steps=2, lr=0.01, server_lr=10).x, base)
    distances = [
        float(np.abs(play("fedsum", q2(), LOG, steps=2, lr=0.1 / c, server_lr=c).x - base).max())
        for c in (1e3, 1e4, 1e5)
    ]
    assert distances[0] / distances[1] == pytest.approx(10, rel=0.01)
    assert distances[1] / distances[2] == pytest.approx(10, rel=0.01)


def test_full_participation_of_fedsum_b_is_centralised_sgd() -> None:
    """With noise: SGD on K-fold mini-batches of everybody, with step eta_g eta_l K."""
    task = quadratic([[1.0, 0.0], [0.0, 2.0]], [[1.0, 2.0], [0.5, 1.0]], [4.0, -4.0], noise_std=0.3)
    played = play("fedsum_b", task, [[0, 1]] * 3, steps=3, server_lr=0.5)
    from fedsim.randomness import Purpose, Stream

    stream, x = Stream(1, Purpose.GRADIENT_NOISE), played.models[0]
    for t in range(3):
        gradient = np.zeros(2)
        for k in range(3):
            noise = task.noise(stream, np.arange(2), np.full(2, t), k).numpy()
            at = task._curvatures * (x - task._centers)
            gradient += (at + noise).mean(0) / 3
        x = x - 0.5 * 0.1 * 3 * gradient
        close(played.models[t + 1], x)


def test_iterates_of_fedsum_b_with_weight_decay() -> None:
    """From 2 along the gradients at the received model, decay included."""
    x1 = 2 - 0.1 * ((2 - 1) + 2)
    x2 = x1 - 0.1 * ((x1 - 1 + x1) + (3 * (x1 + 1) + x1))
    close(play("fedsum_b", q2(), [[0], [0, 1]], steps=2, training=DECAYED).x[1:], [x1, x2])
