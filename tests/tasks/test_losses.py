"""Loss functions."""

from __future__ import annotations

import torch
from torch import nn

from fedsim.tasks.losses import Loss


def test_cross_entropy_is_torchs() -> None:
    outputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    loss = Loss()
    assert torch.equal(
        loss.per_sample(outputs, labels).mean(), nn.functional.cross_entropy(outputs, labels)
    ) or torch.allclose(
        loss.per_sample(outputs, labels).mean(), nn.functional.cross_entropy(outputs, labels)
    )
    assert torch.equal(loss.predictions(outputs), outputs.argmax(1))
    assert torch.equal(loss.targets(labels), labels)
