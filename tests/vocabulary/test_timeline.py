"""The timeline: instructions that nothing can change once they are written."""

from typing import get_args

import pytest

from fedsim.vocabulary.timeline import Instruction


@pytest.mark.parametrize("kind", get_args(Instruction))
def test_an_instruction_cannot_be_changed_and_is_small(kind: type[Instruction]) -> None:
    """A run holds millions of them."""
    assert kind.__dataclass_params__.frozen  # type: ignore[union-attr]
    assert kind.__slots__
