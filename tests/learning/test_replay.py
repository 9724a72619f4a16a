"""A resumed run that submits another timeline than that of its checkpoint is refused at the first difference."""

from dataclasses import replace

import numpy as np
import pytest

from fedsim.learning.replay import Replay, checksum
from fedsim.vocabulary.timeline import (
    Aggregate,
    Contribution,
    Evaluate,
    Instruction,
    TimelineDiffers,
    Train,
)
from tests.learning.problems import Timeline, make_learner, quadratic_task
from tests.learning.timelines import checkpoints_of, rounds

TRAIN = Train(0, 1, 2, 3, 4, 5, 6, 7.0)
AGGREGATE = Aggregate(1, 2.0, 3, (Contribution(4, 5, 6), Contribution(7, 8, 9)), {"online": 3.0})
EVALUATE = Evaluate(1, 2.0, 3)
DIFFERENT: list[tuple[Instruction, Instruction]] = [
    *((TRAIN, replace(TRAIN, **{name: 9})) for name in Train.__slots__ if name != "used"),
    (TRAIN, replace(TRAIN, used=False)),
    (AGGREGATE, replace(AGGREGATE, version=2)),
    (AGGREGATE, replace(AGGREGATE, time_s=np.nextafter(2.0, 3.0))),
    (AGGREGATE, replace(AGGREGATE, round=2)),
    (AGGREGATE, replace(AGGREGATE, contributions=AGGREGATE.contributions[::-1])),
    (
        AGGREGATE,
        replace(AGGREGATE, contributions=(Contribution(4, 5, 6, 1), Contribution(7, 8, 9))),
    ),
    (AGGREGATE, replace(AGGREGATE, attributes={"online": 4.0})),
    (AGGREGATE, replace(AGGREGATE, attributes={"tier": 3.0})),
    (EVALUATE, replace(EVALUATE, version=2)),
    (EVALUATE, replace(EVALUATE, time_s=2.5)),
    (EVALUATE, replace(EVALUATE, round=4)),
    (EVALUATE, Aggregate(1, 2.0, 3, ())),
]


@pytest.mark.parametrize(("first", "second"), DIFFERENT, ids=str)
def test_every_field_counts(first: Instruction, second: Instruction) -> None:
    assert checksum(first) == checksum(replace(first))
    assert checksum(first) != checksum(second)
    recorded, replayed = Replay(), Replay()
    recorded.submitted(EVALUATE)
    recorded.submitted(first)
    replayed.expect(recorded.tensor())
    replayed.submitted(EVALUATE)
    with pytest.raises(TimelineDiffers, match="does not repeat the timeline"):
        replayed.submitted(second)


def test_numbers_of_numpy_are_those_of_python() -> None:
    assert checksum(replace(TRAIN, client=np.int64(1))) == checksum(TRAIN)  # type: ignore[arg-type]


def test_what_follows_the_checkpoint_is_free() -> None:
    recorded, replayed = Replay(), Replay()
    recorded.submitted(TRAIN)
    replayed.expect(recorded.tensor())
    replayed.submitted(TRAIN)
    replayed.submitted(EVALUATE)
    replayed.ended()
    assert replayed.tensor().tolist()[:1] == recorded.tensor().tolist()
    assert len(replayed.tensor()) == 2


def test_a_shorter_timeline_is_refused() -> None:
    recorded, replayed = Replay(), Replay()
    recorded.submitted(TRAIN)
    recorded.submitted(AGGREGATE)
    replayed.expect(recorded.tensor())
    replayed.submitted(TRAIN)
    with pytest.raises(TimelineDiffers, match="ends after 1 of 2 instructions"):
        replayed.ended()


def test_a_learner_names_the_first_difference() -> None:
    task = quadratic_task()
    checkpoint = checkpoints_of(task, rounds(3, [0, 1, 2]))[-1]
    other = Timeline()
    for clients in ([0, 1, 2], [0, 2, 1], [0, 1, 2]):
        other.aggregate(*[other.dispatch(client, 3) for client in clients])
        other.evaluate()
    learner = make_learner(task, checkpoint=checkpoint)
    with pytest.raises(TimelineDiffers, match="dispatch 4 to client 2 differs"):
        other.play(learner)
    short = make_learner(task, checkpoint=checkpoint)
    rounds(2, [0, 1, 2]).play(short)
    with pytest.raises(TimelineDiffers, match="the run ends after"):
        short.close()
