"""The modules that guess the next character."""

from __future__ import annotations

import torch
from torch import nn
from torch.func import functional_call

from fedsim.tasks.modules.characters import LstmLayer
from tests.tasks.models.shapes import START
from tests.tasks.toys import characters, task


def test_our_lstm_is_torchs() -> None:
    ours, theirs = LstmLayer(3, 5), nn.LSTM(3, 5, batch_first=True)
    state = theirs.state_dict()
    with torch.no_grad():
        ours.input_weight.copy_(state["weight_ih_l0"])
        ours.hidden_weight.copy_(state["weight_hh_l0"])
        ours.bias.copy_(state["bias_ih_l0"] + state["bias_hh_l0"])
    inputs = torch.randn(4, 7, 3, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(ours(inputs), theirs(inputs)[0], atol=1e-6)


def test_the_transformer_attends_to_every_position() -> None:
    problem = task(characters(), "char_transformer")
    views = problem.layout.views(problem.initial(START))
    codes = problem.inputs(problem.train_x[:1])
    reference = functional_call(problem.module, views, (codes,))
    for position in range(codes.shape[1]):
        changed = codes.clone()
        changed[0, position] = (changed[0, position] + 1) % 65
        assert not torch.equal(functional_call(problem.module, views, (changed,)), reference)
