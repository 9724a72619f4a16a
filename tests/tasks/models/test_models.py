"""All models: published sizes, initial parameters, and data that they do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.func import functional_call

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.randomness import Purpose, Stream
from fedsim.tasks.dataset import Dataset
from tests.tasks.models.shapes import COLOUR, GREY, START, dataset_of
from tests.tasks.toys import characters, quantities, task, toy_dataset

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
    assert torch.equal(other, first) == (name == "linear"), "only the convex study starts at zero"
    assert first.shape == (problem.layout.size,)
    assert torch.isfinite(first).all()
    inputs = problem.inputs(problem.train_x[:5])
    problem.module.eval()
    outputs = functional_call(problem.module, problem.layout.views(first), (inputs,))
    assert outputs.shape == (5, 1 if name == "linear" else problem.dataset.classes)


@pytest.mark.parametrize(
    ("name", "params", "dataset", "message"),
    [
        ("cnn", {}, toy_dataset(shape=(20,)), "needs images"),
        ("cnn", {}, toy_dataset(shape=(1, 3, 8)), "too small; the minimum is 4 x 4"),
        ("fedcompass_cnn", {}, toy_dataset(shape=(1, 8, 8)), "the minimum is 16 x 16"),
        ("resnet18", {}, toy_dataset(shape=(3, 4, 4)), "the minimum is 8 x 8"),
        ("resnet20", {"groups": 5}, toy_dataset(), "5 groups do not divide 16 channels"),
        ("mlp", {}, characters(), "samples are sequences of characters"),
        ("char_lstm", {}, toy_dataset(), "predicts the next character"),
        ("char_transformer", {"heads": 5}, characters(), "5 heads do not divide width 64"),
        ("linear", {"positive": [10]}, toy_dataset(), "do not split its 10 classes"),
        ("linear", {"positive": list(range(10))}, toy_dataset(), "do not split its 10 classes"),
        ("linear", {"personal_features": 64}, toy_dataset(), "none of its 64 features is shared"),
    ],
)
def test_a_model_that_does_not_fit_says_why(
    name: str, params: dict[str, Any], dataset: Dataset, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        task(dataset, name, **params)


@pytest.mark.parametrize(
    ("name", "params"),
    [("mlp", {"hidden": [0]}), ("cnn", {"hidden": [-3]}), ("cnn", {"channels": (0, 4)})],
)
def test_layers_have_a_width(name: str, params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        task(toy_dataset(), name, **params)
