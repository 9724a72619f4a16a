"""The interface of models."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from fedsim.errors import UserError
from fedsim.parts.catalog import CATALOG
from fedsim.tasks.dataset import Dataset
from fedsim.tasks.model import ModelComponent
from fedsim.tasks.models.cnn import Cnn
from tests.tasks.models.shapes import described
from tests.tasks.toys import toy_dataset


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
