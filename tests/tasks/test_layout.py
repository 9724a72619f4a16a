import pytest
import torch
from torch import nn
from torch.func import functional_call

from fedsim.errors import UserError
from fedsim.tasks.layout import Layout


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 2)
        self.gain = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("constant", torch.ones(5), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(inputs))) * self.gain


def test_parameters_come_first_then_the_buffers_that_training_changes() -> None:
    layout = Layout.of_module(Net())
    assert layout.names[-2:] == layout.buffers == ("norm.running_mean", "norm.running_var")
    assert layout.trainable == sum(value.numel() for value in Net().parameters()) == 35
    assert layout.size == 35 + 8
    assert layout.offsets[0] == 0
    assert layout.offsets[-1] == layout.size
    # Integer counters cannot be averaged, unsaved buffers are constants: neither is part of the vector.
    assert not any("num_batches" in name or "constant" in name for name in layout.names)


def test_flatten_and_views_are_inverse_and_views_share_memory() -> None:
    module = Net()
    layout = Layout.of_module(module)
    flat = layout.flatten(module)
    views = layout.views(flat)
    state = module.state_dict()
    assert all(torch.equal(views[name], state[name]) for name in layout.names)
    views["first.bias"][2] = 7.0
    start = layout.offsets[layout.names.index("first.bias")]
    assert flat[start + 2] == 7.0
    flat[:] = 0
    assert state["first.weight"].abs().sum() > 0, "flatten gives a new vector"
    module.gain = nn.Parameter(torch.tensor(2.0).to(torch.float8_e4m3fn))
    assert layout.views(layout.flatten(module))["gain"] == 2.0


def test_views_of_a_stack_keep_the_leading_axis() -> None:
    layout = Layout.of([("w", (2, 3)), ("b", ()), ("c", (2,))])
    stack = torch.arange(18.0).reshape(2, 9)
    views = layout.views(stack)
    assert views["w"].shape == (2, 2, 3)
    assert views["b"].tolist() == [6.0, 15.0]
    assert views["c"][1].tolist() == [16.0, 17.0]
    views["w"] += 100
    assert stack[1, 0] == 109.0


def test_training_a_module_on_views_changes_the_running_statistics_in_the_vector() -> None:
    module = Net()
    layout = Layout.of_module(module)
    flat = layout.flatten(module)
    functional_call(module, layout.views(flat), (torch.randn(8, 3),))
    changed = (flat != layout.flatten(module)).nonzero().flatten()
    assert len(changed)
    assert changed.min() >= layout.trainable


def test_masks_name_tensors_modules_and_wildcards() -> None:
    layout = Layout.of_module(Net())

    def names(*patterns: str) -> set[str]:
        mask = layout.mask(patterns)
        views = layout.views(mask)
        assert all(view.all() or not view.any() for view in views.values())
        return {name for name, view in views.items() if view.any()}

    assert names("last") == {"last.weight", "last.bias"}
    assert names("last.bias", "gain") == {"last.bias", "gain"}
    assert names("*.weight") == {"first.weight", "norm.weight", "last.weight"}
    assert names() == set()


def test_a_mask_that_matches_nothing_names_the_parts() -> None:
    with pytest.raises(UserError, match=r"'head' matches no part.*\n.*last\.weight"):
        Layout.of_module(Net()).mask(["last", "head"])
