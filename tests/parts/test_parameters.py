"""Fields of parameter models are described by their docstrings, also in messages."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from fedsim.errors import nearest
from fedsim.parts.parameters import Parameters, descriptions
from tests.scenario.pathy import MyMixing, Pathy


def test_fields_are_described_by_their_docstrings() -> None:
    assert descriptions(Pathy) == {"one": "An existing file."}
    assert descriptions(MyMixing)["lambda"] == "A name that Python reserves."


class Marked(Parameters):
    """Parameters."""

    every: str
    """Versions (``10 versions``) or a :class:`~fedsim.units.Duration`."""


def test_messages_hold_no_markup_of_docstrings() -> None:
    with pytest.raises(ValidationError) as caught:
        Marked.model_validate({})
    [error] = caught.value.errors()
    assert error["ctx"]["hint"] == "Versions (`10 versions`) or a `fedsim.units.Duration`."


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("mbps", ["bps", "kbps", "Mbps"], "did you mean 'Mbps'? "),
        ("R2", ["mae", "r2"], "did you mean 'r2'? "),
        ("fedprix", ["fedavg", "fedprox"], "did you mean 'fedprox'? "),
        ("lr", ["weights", "lr_schedule", "server_lr"], "did you mean 'server_lr'? "),
        ("weight", ["server_weight", "weights"], "did you mean 'weights'? "),
        ("x", ["fedavg"], ""),
    ],
)
def test_a_name_in_other_letters_comes_before_similar_ones(
    word: str, known: list[str], hint: str
) -> None:
    assert nearest(word, known) == hint
