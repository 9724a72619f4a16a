"""Names and shapes of the built-in models are those of the modules that they build."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedsim.parts.catalog import CATALOG
from fedsim.tasks.layout import Layout
from fedsim.tasks.modules.counting import count_activations
from fedsim.tasks.modules.dropout import key_dropout
from tests.tasks.models.described import described
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
    # Only activations need values, and the initial values of a ResNet take most of its time.
    with torch.device("meta" if outline.activations is None else "cpu"):
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
