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
    adapt_calls(module, (2, 3), {"a": part, "b": {"c": part}})
    module(X)
    for value in (module.given["a"], module.given["b"]["c"]):
        assert torch.equal(value, expected)
        assert value.dtype == expected.dtype


@pytest.mark.parametrize("part", ["", "x[]", "int(x", "x + 1", 3, {}])
def test_other_parts_are_refused(part: Any) -> None:
    for inputs in ({"a": part}, "x"):
        with pytest.raises(UserError, match="is not a part of the samples x"):
            adapt_calls(Recorder(), (2, 3), inputs)


@pytest.mark.parametrize("part", ["x[2]", "x[-3]", "x[1:3]", "x[-3:]", "x[2:]", "x[1:1]"])
def test_parts_outside_the_samples_are_refused(part: str) -> None:
    with pytest.raises(UserError, match=r"inputs\.a\.b: .* not within a sample, .* \(2, 3\)"):
        adapt_calls(Recorder(), (2, 3), {"a": {"b": part}})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_traced_module_is_accepted() -> None:
    module = torch.jit.trace(nn.Linear(3, 2), torch.zeros(1, 3))
    adapt_calls(module, (3,))
    assert module(torch.zeros(4, 3)).shape == (4, 2)


def test_logits_are_the_scores() -> None:
    class Output(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return SimpleNamespace(logits=x)

    module = Output()
    adapt_calls(module, (2, 3))
    assert torch.equal(module(X[:, 0]), X[:, 0])
    assert torch.equal(module(X), X[:, -1]), "of a language model, those of the last position"
