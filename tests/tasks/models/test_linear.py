"""The binary linear model."""

from __future__ import annotations

from typing import Any

import torch

from fedsim.tasks.modules.networks import SplitLinear
from tests.tasks.toys import task, toy_dataset


def test_features_can_be_dealt_at_random_and_scaled_to_unit_norm() -> None:
    def module(**params: Any) -> SplitLinear:
        built = task(toy_dataset(shape=(50,)), "linear", **params).module
        assert isinstance(built, SplitLinear)
        return built

    shuffled = module(shuffle_features=True, personal_features=20)
    assert sorted(shuffled.order.tolist()) == list(range(50))
    assert shuffled.order.tolist() != list(range(50))
    assert torch.equal(module(shuffle_features=True).order, shuffled.order)
    scaled = module(unit_norm=True)
    torch.nn.init.ones_(scaled.shared)
    inputs = torch.rand(3, 50, generator=torch.Generator().manual_seed(0))
    expected = inputs.sum(1) / inputs.norm(dim=1)
    assert torch.allclose(scaled(inputs).squeeze(1), expected)
