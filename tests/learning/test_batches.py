"""The batch order: an exact oracle, and independence from grouping."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import UserError
from fedsim.learning.batches import BatchOrder, mix
from fedsim.learning.device import Execution
from fedsim.learning.evaluation import SupervisedEvaluator
from fedsim.randomness import GOLDEN, Purpose, Stream, mix64
from fedsim.scenario.model import Evaluation
from fedsim.scenario.training import Augmentation
from tests.learning.images import CROP_AND_FLIP, colour_task, session_of
from tests.learning.problems import (
    SEED,
    Batches,
    batches_of,
    make_training,
    quadratic_task,
    supervised_task,
)
from tests.learning.timelines import buffered, execute

MASK = (1 << 64) - 1
SIZES = (5, 32, 1, 70, 33)
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
ROWS = np.random.default_rng(0).permutation(OFFSETS[-1])


def make_order(batch_size: int = 32, **options: bool) -> BatchOrder:
    return BatchOrder(9, OFFSETS, ROWS, batch_size, torch.device("cpu"), **options)


def draw(order: BatchOrder, clients: list[int], first: int, last: int, **keys: int) -> Batches:
    sequences = np.full(len(clients), keys.pop("sequence", 0))
    return batches_of(order, np.array(clients), sequences, first=first, last=last, **keys)


def drawn_rows(batches: Batches, step: int, row: int) -> list[int]:
    """The samples of one batch, without padding."""
    count = int(batches.counts[step - batches.first, row])
    return batches.rows[step - batches.first, row, :count].tolist()


def expected_order(client: int, sequence: int, phase: int, epoch: int) -> list[int]:
    """The permutation written out in Python integers: samples sorted by the top 43 bits of their hashes."""
    key = Stream(9, Purpose.DATA_ORDER).key
    for counter in (client, sequence, phase, epoch):
        key = mix64((key + (counter + 1) * GOLDEN) & MASK)
    client_rows = ROWS[OFFSETS[client] : OFFSETS[client + 1]].tolist()
    hashes = [mix64((key + (j + 1) * GOLDEN) & MASK) >> 21 for j in range(len(client_rows))]
    return [client_rows[j] for j in sorted(range(len(client_rows)), key=lambda j: hashes[j])]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_hash_equals_that_of_streams(values: list[int]) -> None:
    mixed = mix(torch.tensor(values, dtype=torch.int64)).tolist()
    assert [value & MASK for value in mixed] == [mix64(value & MASK) for value in values]


def test_order_is_the_documented_one() -> None:
    order = make_order()
    for client, sequence, phase in itertools.product(range(len(SIZES)), (0, 4), (0, 1)):
        steps = int(order.steps_per_epoch[client])
        batches = draw(order, [client], 0, 2 * steps, sequence=sequence, phase=phase)
        for epoch in (0, 1):
            numbers = range(epoch * steps, (epoch + 1) * steps)
            seen = [row for step in numbers for row in drawn_rows(batches, step, 0)]
            assert seen == expected_order(client, sequence, phase, epoch)


def test_batches_are_consecutive_pieces_and_the_last_one_is_short() -> None:
    order = make_order()
    batches = draw(order, [3], 0, 4)
    assert batches.counts[:, 0].tolist() == [32, 32, 6, 32]
    visited = order.visited(np.full(6, 3), np.arange(6))
    assert visited.tolist() == [0, 32, 64, 70, 102, 134]
    short = batches.rows[2, 0]
    assert (short[6:] == short[0]).all()


@given(st.data())
def test_padded_plans_have_the_same_batches_and_few_shapes(data: st.DataObject) -> None:
    order = make_order(with_replacement=data.draw(st.booleans()))
    clients = np.array(data.draw(st.lists(st.sampled_from([1, 3, 4]), min_size=1, max_size=5)))
    first = data.draw(st.integers(0, 12))
    plan = {"first": first, "last": first + data.draw(st.integers(1, 12))}
    given = clients, np.arange(len(clients))
    padded = order.plan(*given, **plan, padded=True)
    assert torch.equal(order.draw(*padded), batches_of(order, *given, **plan).rows)
    for length in (len(padded[0]), padded[2].shape[1]):
        assert "replacement" if len(padded[2]) == 3 else length & (length - 1) == 0


@given(st.data())
def test_group_and_starting_step_do_not_matter(data: st.DataObject) -> None:
    order = make_order(batch_size=8)
    clients = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 4]), min_size=1, max_size=5))
    first = data.draw(st.integers(0, 12))
    last = first + data.draw(st.integers(1, 12))
    together = draw(order, clients, first, last)
    for index, client in enumerate(clients):
        alone = draw(order, [client], 0, last)
        for step in range(first, last):
            assert drawn_rows(together, step, index) == drawn_rows(alone, step, 0)


def test_width_depends_on_the_client_alone() -> None:
    assert make_order(batch_size=32).widths(np.arange(5)).tolist() == [8, 32, 8, 32, 32]
    assert make_order(batch_size=20).widths(np.arange(5)).tolist() == [8, 20, 8, 20, 20]
    assert make_order(batch_size=4).widths(np.arange(5)).tolist() == [8, 8, 8, 8, 8]


def test_batches_with_replacement_are_the_documented_draws() -> None:
    """Each sample is the top 31 bits of its hash, scaled to the client's samples; no epochs, no short batches."""
    order = make_order(with_replacement=True)
    key = Stream(9, Purpose.DATA_ORDER).key
    for client, count in ((0, 5), (3, 32)):
        batches = draw(order, [client], 2, 4, sequence=4, phase=1)
        for step in (2, 3):
            expected = []
            for position in range(count):
                hashed = key
                for counter in (client, 4, 1, step, position):
                    hashed = mix64((hashed + (counter + 1) * GOLDEN) & MASK)
                expected.append(ROWS[OFFSETS[client] + ((hashed >> 33) * SIZES[client] >> 31)])
            assert drawn_rows(batches, step, 0) == expected
    # Neither the group nor the steps drawn together matter.
    alone, together = draw(order, [3], 0, 1), draw(order, [1, 3, 4], 0, 3)
    assert drawn_rows(alone, 0, 0) == drawn_rows(together, 0, 1)


def test_a_short_last_batch_may_be_dropped() -> None:
    """Client 3 has 70 samples: two batches of 32 per epoch; clients with fewer samples than a batch keep theirs."""
    order = make_order(drops_last=True)
    batches = draw(order, [3], 0, 4)
    assert batches.counts[:, 0].tolist() == [32, 32, 32, 32]
    first = [row for step in (0, 1) for row in drawn_rows(batches, step, 0)]
    assert first == expected_order(3, 0, 0, 0)[:64]
    assert [row for step in (2, 3) for row in drawn_rows(batches, step, 0)] == expected_order(
        3, 0, 0, 1
    )[:64]
    assert order.visited(np.full(4, 3), np.arange(4)).tolist() == [0, 32, 64, 96]
    expected = [max(1, size // 32) for size in SIZES]
    assert order.steps_per_epoch.tolist() == expected


def by_hand(
    image: np.ndarray, augmentation: Augmentation, client: int, key: tuple[int, int, int, int]
) -> np.ndarray:
    """Pad with black, cut, turn: one 8-bit image (c, h, w)."""
    sequence, phase, step, index = key
    bits = Stream(SEED, Purpose.AUGMENTATION, client, sequence, phase).hash(step, index)
    pad = augmentation.crop_padding
    down = ((bits >> 1) % 2**31) * (2 * pad + 1) // 2**31
    right = ((bits >> 32) % 2**31) * (2 * pad + 1) // 2**31
    _, height, width = image.shape
    piece = np.pad(image, ((0, 0), (pad, pad), (pad, pad)))[
        :, down : down + height, right : right + width
    ]
    return piece[:, :, ::-1] if augmentation.flip and bits & 1 else piece


@pytest.mark.parametrize("stored", ["converted", "raw"])
@pytest.mark.parametrize(
    "augmentation",
    [CROP_AND_FLIP, Augmentation(crop_padding=4), Augmentation(flip=True)],
    ids=["crop and flip", "crop", "flip"],
)
def test_images_are_those_cut_by_hand(
    augmentation: Augmentation, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stored == "raw":
        monkeypatch.setattr("fedsim.learning.samples._CONVERTED_BYTES", 0)
    task = colour_task()
    training = make_training(augmentation=augmentation, batch_size=8, executor="plain")
    clients, sequences, phase = [1, 0], [4, 2], 1
    session = session_of(task, training, clients, sequences, phase)
    seen = []
    for step in range(3):
        rows, _ = session.draw(step, 2)
        inputs = session.inputs(step, rows[None]).view(2, 8, 3, 5, 7)
        assert torch.equal(session.inputs(step, rows[None, 1:2, :5], first=1), inputs[1, :5])
        ahead = torch.stack([session.draw(step + later, 2)[0] for later in range(2)])
        later_inputs = session.inputs(step + 1, ahead[1:])
        assert torch.equal(
            session.inputs(step, ahead), torch.cat([inputs.flatten(0, 1), later_inputs])
        )
        for b, client in enumerate(clients):
            for index in range(8):
                key = (sequences[b], phase, step, index)
                image = task.dataset.train_x[int(rows[b, index])]
                expected = by_hand(image, augmentation, client, key)
                raw = torch.from_numpy(np.ascontiguousarray(expected))
                assert torch.equal(inputs[b, index], task.inputs(raw))
                seen.append(not np.array_equal(expected, image))
    assert np.mean(seen) > 0.3


def test_evaluation_sees_the_images_as_they_are() -> None:
    task = supervised_task("mlp")
    training = make_training(augmentation=CROP_AND_FLIP)
    state, rows = execute(task, buffered(4), training=training)
    assert rows[-1][1] == SupervisedEvaluator(task, Execution.of(training)).measure(state["model"])


def test_what_is_no_image_is_refused() -> None:
    flat = supervised_task("linear")
    object.__setattr__(flat.dataset, "train_x", flat.dataset.train_x.reshape(-1, 64))
    wide = make_training(augmentation=Augmentation(crop_padding=8))
    for task, training, message in (
        (flat, make_training(augmentation=CROP_AND_FLIP), r"augmentation: .* shape \(64,\)"),
        (quadratic_task(), make_training(augmentation=CROP_AND_FLIP), r"augmentation: .* \(\)"),
        (supervised_task("linear"), wide, "augmentation.crop_padding: .* 8 x 8"),
    ):
        with pytest.raises(UserError, match=message):
            task.check(training, Evaluation())
