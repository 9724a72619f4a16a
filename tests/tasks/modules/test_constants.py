"""The guard of tensors that clients do not send."""

from __future__ import annotations

from contextlib import nullcontext

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


def test_what_is_sent_may_change_and_nothing_else() -> None:
    for name, changes in (("", False), ("frozen", True), ("mask", True)):
        model = Model()
        constants = guarded(model)
        model.norm(torch.randn(4, 2))
        with torch.no_grad():
            model.weight.add_(1)
            if changes:
                getattr(model, name)[0] = 0
        with pytest.raises(UserError, match=f"'{name}'") if changes else nullcontext():
            constants.check()


def test_a_tensor_in_its_place_counts_by_its_values_and_a_table_that_grows_is_a_cache() -> None:
    model = Model()
    constants = guarded(model)
    for mask in (model.mask.clone(), torch.ones(3, dtype=torch.bool)):
        model.mask = mask
        constants.check()
    model.mask = torch.tensor([False, True])
    with pytest.raises(UserError, match="'mask'"):
        constants.check()


def test_without_a_momentum_the_number_of_batches_matters() -> None:
    model = Model()
    model.norm = nn.BatchNorm1d(2, momentum=None)
    constants = guarded(model)
    model.norm(torch.randn(4, 2))
    with pytest.raises(UserError, match=r"'norm\.num_batches_tracked'"):
        constants.check()
