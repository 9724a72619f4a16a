"""The timeline: instructions that nothing can change once they are written."""

from __future__ import annotations

import dataclasses

import pytest

from fedsim.vocabulary.timeline import Aggregate, Contribution, Evaluate, Instruction, Train

TRAIN = Train(
    0, client=3, sequence=0, version=0, round=0, steps=4, steps_assigned=5, dispatched_s=0.5
)


@pytest.mark.parametrize(
    "instruction",
    [TRAIN, Aggregate(1, 2.0, 0, (Contribution(0, 3, 0),)), Evaluate(1, 2.0, 0)],
    ids=lambda instruction: type(instruction).__name__,
)
def test_an_instruction_cannot_be_changed(instruction: Instruction) -> None:
    for name in (field.name for field in dataclasses.fields(instruction)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(instruction, name, 7)
    assert not hasattr(instruction, "__dict__"), "a run holds millions of them"


def test_aggregations_do_not_share_their_attributes() -> None:
    first, second = Aggregate(1, 0.0, 0, ()), Aggregate(2, 0.0, 0, ())
    assert first.attributes == {}
    assert first.attributes is not second.attributes
