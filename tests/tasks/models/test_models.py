"""All models: their sizes, modules and losses."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.layout import Layout
from fedsim.tasks.models.cnn import Cnn
from fedsim.tasks.modules.checks import refusal_of_one_sample
from fedsim.tasks.modules.networks import SplitLinear
from tests.tasks.toys import (
    COLOUR,
    GREY,
    START,
    dataset_of,
    described,
    quantities,
    task,
    toy_dataset,
)

SIZES: list[tuple[str, dict[str, Any], tuple[int, ...], int]] = [
    ("logistic_regression", {}, GREY, 7_850),
    ("mlp", {}, GREY, 159_010),
    ("mlp", {"hidden": [400]}, GREY, 318_010),
    ("mlp", {"hidden": [200, 200]}, GREY, 199_210),
    ("mlp", {"hidden": [32]}, (20,), 1_002),
    ("linear", {}, GREY, 784),
    ("linear", {"bias": True, "personal_features": 392}, GREY, 785),
    ("cnn", {}, GREY, 107_786),
    ("fedcompass_cnn", {}, GREY, 582_026),
    ("fedsum_mnist_cnn", {}, GREY, 51_480),
    ("fedsum_svhn_cnn", {}, COLOUR, 273_706),
    ("fedsum_cifar_cnn", {}, COLOUR, 551_786),
    ("wangji_fashion_cnn", {}, GREY, 228_586),
    ("wangji_cifar_cnn", {}, COLOUR, 2_218_314),
    ("resnet18", {}, COLOUR, 11_173_962),
    ("resnet18", {"norm": "batch"}, COLOUR, 11_173_962),
    ("resnet20", {}, COLOUR, 269_722),
    ("resnet20", {"norm": "batch"}, COLOUR, 269_722),
]


@pytest.mark.parametrize(("name", "params", "shape", "size"), SIZES)
def test_models_have_the_published_number_of_parameters(
    name: str, params: dict[str, Any], shape: tuple[int, ...], size: int
) -> None:
    component = CATALOG.parts("model")[name]
    module = component(component.Params(**params)).build(dataset_of(shape))
    assert sum(value.numel() for value in module.parameters()) == size


def dataset_for(name: str, shape: tuple[int, ...]) -> Dataset:
    dataset = dataset_of(shape)
    return quantities(dataset) if name == "linear_regression" else dataset


CHEAP = [
    ("logistic_regression", {}, GREY),
    ("logistic_regression", {"start": "zero"}, GREY),
    ("linear_regression", {}, GREY),
    ("mlp", {}, GREY),
    ("linear", {"personal_features": 3}, GREY),
    ("cnn", {}, (1, 8, 8)),
    ("fedcompass_cnn", {}, GREY),
    ("fedsum_mnist_cnn", {}, GREY),
    ("fedsum_svhn_cnn", {}, COLOUR),
    ("fedsum_cifar_cnn", {}, COLOUR),
    ("wangji_fashion_cnn", {}, GREY),
    ("wangji_cifar_cnn", {}, COLOUR),
    ("resnet18", {}, (3, 8, 8)),
    ("resnet20", {}, COLOUR),
    ("resnet20", {"norm": "batch"}, COLOUR),
    ("char_lstm", {}, (12,)),
    ("char_transformer", {}, (12,)),
]


def test_every_model_is_tested_here() -> None:
    assert {name for name, _, _ in CHEAP} == set(CATALOG.parts("model"))


@pytest.mark.parametrize(("name", "params", "shape"), CHEAP)
def test_initial_models_are_a_function_of_the_stream_alone(
    name: str, params: dict[str, Any], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    problem = task(dataset_for(name, shape), name, **params)
    first = problem.initial(START)
    assert torch.equal(torch.get_rng_state(), before), "the global generator is left alone"
    torch.manual_seed(2)
    assert torch.equal(problem.initial(START), first)
    assert torch.equal(problem.initial(START, torch.float64), first.double())
    other = problem.initial(Stream(1, Purpose.INITIAL_MODEL))
    at_zero = name == "linear" or params == {"start": "zero"}
    assert (torch.equal(other, first), not first.any()) == (at_zero, at_zero)
    assert first.shape == (problem.layout.size,)
    assert torch.isfinite(first).all()
    inputs = problem.inputs(problem.train_x[:5])
    problem.module.eval()
    outputs = functional_call(problem.module, problem.layout.views(first), (inputs,))
    assert outputs.shape == (5, 1 if name == "linear" else problem.dataset.classes)
    if not problem.layout.buffers:
        assert refusal_of_one_sample(problem.module, problem.loss, problem._probe) is None


@pytest.mark.parametrize(("name", "params", "shape"), CHEAP)
def test_shapes_are_those_of_the_module(
    name: str, params: dict[str, Any], shape: tuple[int, ...]
) -> None:
    problem = task(dataset_for(name, shape), name, **params)
    assert problem.layout == Layout.of_module(problem.module)


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


def test_batch_norm_keeps_its_statistics_in_the_vector() -> None:
    problem = task(dataset_of(COLOUR), "resnet20", norm="batch")
    assert len(problem.layout.buffers) == 2 * 19
    assert problem.parameters == 269_722
    assert problem.layout.size == 269_722 + 2 * 688
    flat = problem.initial(START)
    views = problem.layout.views(flat)
    assert (views["stem_norm.running_var"] == 1).all()
    assert not views["stem_norm.running_mean"].any()
    before = flat.clone()
    problem.module.train()
    functional_call(problem.module, views, (problem.inputs(problem.train_x[:8]),))
    assert torch.equal(flat[: problem.parameters], before[: problem.parameters])
    assert not torch.equal(flat[problem.parameters :], before[problem.parameters :])


@pytest.mark.parametrize(
    ("name", "params", "shape", "message"),
    [
        ("cnn", {}, (20,), "needs images"),
        ("cnn", {}, (1, 3, 8), "images of 3 x 8 are too small; the minimum is 4 x 4"),
        ("fedcompass_cnn", {}, (1, 15, 20), "the minimum is 16 x 16"),
        ("mlp", {}, (12,), "samples are sequences of tokens"),
        ("linear", {"positive": [3]}, (1, 8, 8), "do not split its 3 classes"),
        ("linear", {"positive": [0, 1, 2]}, (1, 8, 8), "do not split its 3 classes"),
        ("linear", {"personal_features": 64}, (1, 8, 8), "with 64 personal features, none"),
        ("resnet18", {}, (3, 4, 4), "the minimum is 8 x 8"),
        ("resnet20", {"groups": 3}, (1, 8, 8), "3 groups do not divide 16 channels"),
        ("char_lstm", {}, (1, 8, 8), "samples are not sequences of characters"),
        ("char_transformer", {"width": 5, "heads": 2}, (12,), "2 heads do not divide width 5"),
    ],
)
def test_a_model_refuses_data_that_it_does_not_fit(
    name: str, params: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    component = CATALOG.parts("model")[name]
    model = component(component.Params(**params))
    with pytest.raises(UserError, match=message) as caught:
        model.build(described(shape, 3, "next_character" if len(shape) == 1 else "classification"))
    assert caught.value.where == "task.model"


class Wider(Cnn):
    """A user's change of a built-in model."""

    name = "wider"

    def build(self, dataset: Dataset) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, dataset.classes))


def test_a_subclass_with_its_own_module_is_checked_as_a_users_model() -> None:
    model = Wider(Wider.Params())
    assert not model.is_bundled
    assert Cnn(Cnn.Params()).is_bundled
    assert model.initialize.__func__ is Cnn.initialize  # type: ignore[attr-defined]


def test_pooling_before_relu_gives_the_bits_of_pooling_after_it() -> None:
    """Whole windows below zero, ties and zeros included."""
    values = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)).round()
    relu, pool = nn.ReLU(), nn.MaxPool2d(2)
    results = []
    for layers in (nn.Sequential(pool, relu), nn.Sequential(relu, pool)):
        inputs = values.clone().requires_grad_()
        outputs = layers(inputs)
        (outputs * torch.arange(1.0, outputs.numel() + 1).view_as(outputs)).sum().backward()
        assert inputs.grad is not None
        results.append((outputs, inputs.grad))
    (outputs, gradients), (expected, expected_gradients) = results
    assert torch.equal(outputs, expected)
    assert torch.equal(gradients, expected_gradients)
