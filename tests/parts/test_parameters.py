"""Fields of parameter models are described by their docstrings, also in messages."""

import pytest
from pydantic import ValidationError

from fedsim.parts.parameters import Parameters, descriptions
from tests.scenario.conftest import Mixing


def test_fields_are_described_by_their_docstrings() -> None:
    assert descriptions(Mixing)["lambda"] == "A name that Python reserves."


class Marked(Parameters):
    """Parameters."""

    every: str
    """Versions (``10 versions``) or a :class:`~fedsim.units.Duration`."""


def test_messages_hold_no_markup_of_docstrings() -> None:
    with pytest.raises(ValidationError) as caught:
        Marked.model_validate({})
    [error] = caught.value.errors()
    assert error["ctx"]["hint"] == "Versions (`10 versions`) or a `fedsim.units.Duration`."
