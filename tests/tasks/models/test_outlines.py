"""Names and shapes of the built-in models are those of the modules that they build."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedsim.catalog import CATALOG
from fedsim.errors import UserError
from fedsim.tasks.dataset import Dataset, deferred
from fedsim.tasks.layout import Layout
from fedsim.tasks.model import ModelComponent
from fedsim.tasks.models.cnn import Cnn
from fedsim.tasks.modules.counting import count_activations
from fedsim.tasks.modules.dropout import key_dropout
from tests.tasks.toys import task, toy_dataset

SMALL = st.integers(1, 6)
PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "logistic_regression": st.fixed_dictionaries({"start": st.sampled_from(["random", "zero"])}),
    "mlp": st.fixed_dictionaries({"hidden": st.lists(SMALL, min_size=1, max_size=3)}),
    "linear": st.fixed_dictionaries(
        {"personal_features": st.integers(0, 6), "bias": st.booleans()}
    ),
    "cnn": st.fixed_dictionaries(
        {
            "channels": st.tuples(SMALL, SMALL),
            "kernel": st.sampled_from([1, 3, 5, 7]),
            "hidden": st.lists(SMALL, max_size=2),
        }
    ),
    **{
        name: st.fixed_dictionaries(
            {"norm": st.sampled_from(["group", "batch"]), "groups": st.sampled_from([1, 2, 4])}
        )
        for name in ("resnet18", "resnet20")
    },
    "char_lstm": st.fixed_dictionaries(
        {"embedding": SMALL, "hidden": SMALL, "layers": st.integers(1, 3)}
    ),
    "char_transformer": st.integers(1, 3).flatmap(
        lambda heads: st.fixed_dictionaries(
            {
                "heads": st.just(heads),
                "width": SMALL.map(lambda width: width * heads),
                "layers": st.integers(1, 3),
            }
        )
    ),
}


def described(shape: tuple[int, ...], classes: int, kind: str) -> Dataset:
    """A data set whose samples cannot be read."""

    def read() -> np.ndarray:
        raise AssertionError("an outline needs no samples")

    labels = np.arange(classes, dtype=np.float32 if kind == "regression" else np.int64)
    samples = deferred((classes, *shape), np.uint8, read)
    return Dataset("described", samples, labels, samples, labels, classes, kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(CATALOG.parts("model")))
@given(data=st.data())
def test_outlines_are_those_of_the_modules(name: str, data: st.DataObject) -> None:
    component = CATALOG.parts("model")[name]
    params = data.draw(PARAMS.get(name, st.just({})))
    if name.startswith("char"):
        shape: tuple[int, ...] = (data.draw(st.integers(1, 9)),)
    else:
        least = 16 if name == "fedcompass_cnn" else 8
        side = st.integers(least, least + 9)
        shape = (data.draw(st.integers(1, 3)), data.draw(side), data.draw(side))
    kind = "next_character" if len(shape) == 1 else "classification"
    classes = data.draw(st.integers(2, 7))
    if name == "linear_regression":
        kind, classes = "regression", 1
    dataset = described(shape, classes, kind)
    model = component(component.Params(**params))
    outline = model.outline(dataset)
    assert outline is not None
    module = key_dropout(model.build(dataset))
    assert Layout.of(outline.parameters, outline.buffers) == Layout.of_module(module)
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert outline.batch_statistics == bool(norms)
    if outline.activations is not None:
        inputs, labels = torch.rand(2, *shape), torch.arange(2) % classes
        assert outline.activations == count_activations(module, model.loss(dataset), inputs, labels)


@pytest.mark.parametrize("name", sorted(set(CATALOG.parts("model")) - {"resnet18", "resnet20"}))
def test_models_without_batch_statistics_are_trained_on_one_sample(name: str) -> None:
    from fedsim.tasks.modules.checks import refusal_of_one_sample
    from tests.tasks.toys import characters, quantities

    dataset = characters() if name.startswith("char") else toy_dataset(shape=(3, 16, 16))
    if name == "linear_regression":
        dataset = quantities(dataset)
    problem = task(dataset, name)
    assert refusal_of_one_sample(problem.module, problem.loss, problem._probe) is None


@pytest.mark.parametrize(
    ("name", "params", "shape", "message"),
    [
        ("cnn", {}, (1, 3, 8), "images of 3 x 8 are too small; the minimum is 4 x 4"),
        ("fedcompass_cnn", {}, (1, 15, 20), "the minimum is 16 x 16"),
        ("mlp", {}, (12,), "samples are sequences of characters"),
        ("linear", {"personal_features": 64}, (1, 8, 8), "with 64 personal features, none"),
        ("resnet20", {"groups": 3}, (1, 8, 8), "3 groups do not divide 16 channels"),
        ("char_lstm", {}, (1, 8, 8), "samples are not sequences of characters"),
        ("char_transformer", {"width": 5, "heads": 2}, (12,), "2 heads do not divide width 5"),
    ],
)
def test_an_outline_refuses_what_the_module_refuses(
    name: str, params: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    component = CATALOG.parts("model")[name]
    model = component(component.Params(**params))
    for ask in (model.outline, model.build):
        with pytest.raises(UserError, match=message) as caught:
            ask(described(shape, 3, "next_character" if len(shape) == 1 else "classification"))
        assert caught.value.where == "task.model"


class Wider(Cnn):
    """A user's change of a built-in model."""

    name = "wider"

    def build(self, dataset: Dataset) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, dataset.classes))


class Renamed(Cnn):
    """A user's model with the British name of the hook."""

    name = "renamed"

    def initialise(self, module: nn.Module, generator: object) -> None:
        for parameter in module.parameters():
            parameter.fill_(0.5)


def test_a_subclass_with_a_module_of_its_own_does_not_keep_the_outline() -> None:
    model = Wider(Wider.Params())
    assert model.outline(toy_dataset()) is None
    assert model.initialize.__func__ is Cnn.initialize  # type: ignore[attr-defined]


def test_the_british_name_of_the_hook_still_works() -> None:
    assert Renamed.outline is Cnn.outline
    assert Renamed.initialize is Renamed.initialise
    assert ModelComponent.initialize is not Renamed.initialize
