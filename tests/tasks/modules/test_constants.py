"""The guard of tensors that clients do not send."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsim.errors import UserError
from fedsim.tasks.modules.constants import Constants


class Model(nn.Module):
    """A sent weight, a frozen one, a mask, and the running statistics of a normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("mask", torch.tensor([True, False]), persistent=False)
        self.norm = nn.BatchNorm1d(2)


SENT = ("weight", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var")


def guarded(module: nn.Module) -> Constants:
    return Constants(module, SENT, "mine")


def test_what_is_sent_may_change() -> None:
    model = Model()
    constants = guarded(model)
    model.norm(torch.randn(4, 2))
    with torch.no_grad():
        model.weight.add_(1)
    assert model.norm.num_batches_tracked == 1
    constants.check()


@pytest.mark.parametrize("name", ["frozen", "mask"])
def test_a_change_of_anything_else_is_refused_by_name(name: str) -> None:
    model = Model()
    constants = guarded(model)
    with torch.no_grad():
        getattr(model, name)[0] = 0
    with pytest.raises(UserError, match=rf"'{name}' \((bool|float32)\) of model mine changes"):
        constants.check()


def test_a_tensor_in_its_place_counts_by_its_values() -> None:
    model = Model()
    constants = guarded(model)
    model.mask = model.mask.clone()
    constants.check()
    model.mask = ~model.mask
    with pytest.raises(UserError, match="'mask'"):
        constants.check()


def test_a_table_that_grows_is_a_cache() -> None:
    model = Model()
    constants = guarded(model)
    model.mask = torch.ones(3, dtype=torch.bool)
    constants.check()


def test_without_a_momentum_the_number_of_batches_matters() -> None:
    model = Model()
    model.norm = nn.BatchNorm1d(2, momentum=None)
    constants = guarded(model)
    model.norm(torch.randn(4, 2))
    with pytest.raises(UserError, match=r"'norm\.num_batches_tracked'"):
        constants.check()
