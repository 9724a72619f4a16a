"""Initial parameters."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsim.parts.catalog import CATALOG
from fedsim.tasks.modules.initialization import initialize
from tests.tasks.models.shapes import GREY, START, dataset_of
from tests.tasks.toys import task


@pytest.mark.parametrize(
    "name", ["logistic_regression", "mlp", "fedcompass_cnn", "fedsum_svhn_cnn"]
)
def test_initial_parameters_have_the_distribution_that_torch_gives_them(name: str) -> None:
    problem = task(dataset_of(GREY), name)
    ours = problem.layout.views(problem.initial(START))
    torch.manual_seed(0)
    component = CATALOG.parts("model")[name]
    theirs = component(component.Params()).build(problem.dataset).state_dict()
    for key, value in ours.items():
        if value.numel() >= 80:
            assert value.std() == pytest.approx(float(theirs[key].std()), rel=0.25)
            assert value.abs().max() == pytest.approx(float(theirs[key].abs().max()), rel=0.1)


@pytest.mark.parametrize("name", ["wangji_fashion_cnn", "cnn"])
def test_some_networks_start_with_kaiming_normal_and_zero_biases(name: str) -> None:
    problem = task(dataset_of(GREY), name)
    views = list(problem.layout.views(problem.initial(START)).values())
    weights, biases = views[::2], views[1::2]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        assert float(weight.std()) == pytest.approx((2 / weight[0].numel()) ** 0.5, rel=0.15)
        assert not bias.any()
    assert biases[-1].any()


def test_an_unknown_layer_has_no_rule() -> None:
    with pytest.raises(TypeError, match="no rule to initialize Bilinear"):
        initialize(nn.Bilinear(2, 2, 2), torch.Generator())
