"""What a module's forward is given, and what counts as its output."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedsim.errors import UserError
from fedsim.tasks.modules.calls import adapt_calls

X = torch.tensor([[[1.0, 2, 0], [3, 4, 5]]])


class Recorder(nn.Module):
    """Keeps its arguments."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        self.given = kwargs or args
        return torch.zeros(1, 3)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("x", X),
        ("x[1]", X[:, 1]),
        ("x[-1]", X[:, -1]),
        ("x[:1]", X[:, :1]),
        ("x[1:]", X[:, 1:]),
        ("int(x[0])", X[:, 0].long()),
        ("x[0] != 0", torch.tensor([[1, 1, 0]])),
        ("x[0]!=2", torch.tensor([[1, 0, 1]])),
    ],
)
def test_arguments_are_parts_of_the_samples(part: str, expected: Tensor) -> None:
    module = Recorder()
    adapt_calls(module, {"a": part, "b": {"c": part}})
    module(X)
    for value in (module.given["a"], module.given["b"]["c"]):
        assert torch.equal(value, expected)
        assert value.dtype == expected.dtype


@pytest.mark.parametrize("part", ["", "y", "x[]", "x[1", "int(x", "x + 1", 3, {}, "x[0][1]"])
def test_other_parts_are_refused(part: Any) -> None:
    with pytest.raises(UserError, match="is not a part of the samples x"):
        adapt_calls(Recorder(), {"a": part})
    with pytest.raises(UserError, match="is not a part of the samples x"):
        adapt_calls(Recorder(), "x")


def test_logits_are_the_scores() -> None:
    class Output(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return SimpleNamespace(logits=x)

    module = Output()
    adapt_calls(module)
    assert torch.equal(module(X[:, 0]), X[:, 0])
    assert torch.equal(module(X), X[:, -1]), "of a language model, those of the last position"
