"""The parameters of functions: which there are, and what they accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from fedsim.errors import UserError
from fedsim.methods.fedavg import FedAvg
from fedsim.parts.functions import called, parameters_of
from fedsim.scenario.description import parameters

if TYPE_CHECKING:
    from torch import Tensor


def function(
    first: Any,
    second: Any,
    _width: int,
    copy: float = 0.5,
    *others: Any,
    sizes: Any = (1, 2),
    strict=True,
    reduce: Callable[..., Any] = max,
    most: float = float("inf"),
    weights: Tensor | None = None,
) -> float:
    """A function.

    Args:
        copy: the copy, of
            which there is one.
        sizes (tuple): two sizes.
    """
    return 0.0


def test_parameters_are_those_of_the_signature_after_what_is_supplied() -> None:
    rows = list(parameters(parameters_of(function, "first", "second")))
    assert [(row.key, row.kind, row.default, row.meaning) for row in rows] == [
        ("_width", "whole number", None, ""),
        ("copy", "number", "0.5", "the copy, of which there is one."),
        ("sizes", "any value", "[1, 2]", "two sizes."),
        ("strict", "true or false", "true", ""),
        ("weights", "any value", "null", ""),
    ], "defaults that no scenario can hold keep their parameters out of it"


def test_arguments_are_passed_under_their_names() -> None:
    model = parameters_of(function, "first", "second")
    given = model.model_validate({"_width": 3, "strict": False})
    defaults = {"copy": 0.5, "sizes": (1, 2), "weights": None}
    assert given.arguments() == {"_width": 3, "strict": False, **defaults}
    with pytest.raises(ValidationError, match="is missing"):
        model.model_validate({})


def test_a_function_with_any_keyword_takes_any_key() -> None:
    model = parameters_of(lambda first, **others: 0, "first")
    assert model.model_validate({"a": 1}).arguments() == {"a": 1}


def test_a_default_gives_the_type_of_a_parameter_without_annotation() -> None:
    model = parameters_of(lambda first, sizes=(1, 2), count=5: 0, "first")
    given = model.model_validate({"sizes": [3], "count": 2.5})
    assert given.arguments() == {"sizes": (3,), "count": 2.5}
    with pytest.raises(ValidationError):
        model.model_validate({"count": "many"})


@pytest.mark.parametrize("wrong", [lambda: 0, lambda *, first: 0, lambda first, second, /: 0])
def test_a_function_that_cannot_be_called_is_refused(wrong: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="cannot be called with first"):
        parameters_of(wrong, "first")


def test_a_users_part_is_called_by_its_own_name_or_class() -> None:
    class Named(FedAvg):
        name = "named"

    class Nameless(FedAvg):
        pass

    assert [called(part) for part in (FedAvg, Named, Nameless)] == ["fedavg", "named", "Nameless"]
