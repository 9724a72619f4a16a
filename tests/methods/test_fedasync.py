"""FedAsync against iterates written out from its paper's algorithm."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.methods.async_worlds import CENTRES, PLAIN, quadratics, trained
from tests.methods.fakes import Written, make


@pytest.mark.parametrize(
    ("staleness", "factor"),
    [
        ({"name": "constant"}, lambda s: 1.0),
        ({"name": "polynomial", "exponent": 0.5}, lambda s: (s + 1) ** -0.5),
        ({"name": "polynomial", "exponent": -0.5}, lambda s: (s + 1) ** 0.5),
        (
            {"name": "hinge", "delay": 1, "slope": 2},
            lambda s: 1.0 if s <= 1 else 1 / (2 * (s - 1) + 1),
        ),
    ],
)
def test_fedasync_mixes(staleness: dict[str, Any], factor: Any) -> None:
    """x_t = (1 - a) x_{t-1} + a x_new with a = alpha s(age) (Algorithm 1)."""
    method = {"name": "fedasync", "alpha": 0.6, "staleness": staleness}
    world = quadratics([1.0, 1.7, 4.1], method, schedule={"name": "async"}, until_s=60)
    ages = set()
    for (before, after), updates in zip(pairwise(world.w), trained(world), strict=True):
        ((_, _, model, age),) = updates
        mixing = 0.6 * factor(age)
        assert after == pytest.approx((1 - mixing) * before + mixing * model, rel=1e-12)
        ages.add(age)
    assert max(ages) >= 4


def test_fedasync_in_the_form_of_fedcompass() -> None:
    """w <- w - st(s) p_i Delta_i with p_i the client's share of all samples."""
    samples = [1, 2, 5]
    method = {"name": "fedasync", "form": "delta", "alpha": 0.9}
    world = quadratics(
        [1.0, 1.7, 4.1], method, schedule={"name": "async"}, until_s=60, samples=samples
    )
    for (before, after), updates in zip(pairwise(world.w), trained(world), strict=True):
        ((client, start, model, age),) = updates
        step = 0.9 * (age + 1) ** -0.5 * samples[client] / 8 * (model - start)
        assert after == pytest.approx(before + step, rel=1e-12)


def test_the_proximal_term() -> None:
    """Two steps on (x - b)^2 / 2 + rho (x - x_t)^2 / 2."""
    world = quadratics(
        [1.0], {"name": "fedasync", **PLAIN, "proximal": 0.5}, schedule={"name": "async"}, until_s=6
    )
    x = 0.0
    for version in range(1, 4):
        start = x
        for _ in range(2):
            x -= 0.1 * (x - CENTRES[0] + 0.5 * (x - start))
        assert world.w[version] == pytest.approx(x, rel=1e-12)


def test_several_updates_at_once_are_mixed_one_after_the_other() -> None:
    method = make({"name": "fedasync", "alpha": 0.5, "staleness": {"name": "constant"}}, [1, 1])
    updates = Written({"model": [[4.0], [8.0]]}, multiplicity=[1, 2])
    state = method.aggregate({"model": torch.tensor([0.0], dtype=torch.float64)}, updates)
    # 0 -> 2, then twice half-way to 8.
    assert state["model"].item() == pytest.approx(6.5, rel=1e-12)
