"""DiLoCo, and its asynchronous form with delayed Nesterov momentum."""

import numpy as np
import pytest
import torch

from tests.methods.driver import play
from tests.methods.test_participation import LOG, q2

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
