"""Augmentation against an implementation sample by sample in NumPy, and that grouping does not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedsim.errors import UserError
from fedsim.learning.device import Execution
from fedsim.learning.evaluation import SupervisedEvaluator
from fedsim.randomness import Purpose, Stream
from fedsim.scenario.training import Augmentation
from fedsim.tasks.base import check_augmentation
from tests.learning.images import CROP_AND_FLIP, SEED, colour_task, session_of
from tests.learning.problems import make_training, quadratic_task, supervised_task
from tests.learning.timelines import assert_same, buffered, execute


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
        inputs = session.inputs(step, rows).view(2, 8, 3, 5, 7)
        assert torch.equal(session.inputs(step, rows[1:2, :5], first=1), inputs[1, :5])
        for b, client in enumerate(clients):
            for index in range(8):
                key = (sequences[b], phase, step, index)
                image = task.dataset.train_x[int(rows[b, index])]
                expected = by_hand(image, augmentation, client, key)
                raw = torch.from_numpy(np.ascontiguousarray(expected))
                assert torch.equal(inputs[b, index], task.inputs(raw))
                seen.append(not np.array_equal(expected, image))
    assert np.mean(seen) > 0.3


def test_draws_are_uniform() -> None:
    """Chi-square of 25 offsets x 2 over 5,000 images; 100 expected in each."""
    task = colour_task()
    order = session_of(task, make_training(augmentation=CROP_AND_FLIP), [0], [0], 0).order
    assert order.augmenter is not None
    keys = order.augmenter.keys(np.arange(50) % 3, np.arange(50), 0)
    moves = order.augmenter.moves(keys, torch.full_like(keys, 3), 100)
    cells = (moves.down + 2) * 10 + (moves.right + 2) * 2 + moves.mirrored
    counts = torch.bincount(cells, minlength=50).numpy()
    assert ((counts - 100) ** 2 / 100).sum() < 97.0  # the 99.99% point with 49 degrees of freedom


@pytest.mark.parametrize(
    ("model", "executor"), [("mlp", "auto"), ("conv", "auto"), ("conv", "stacked")]
)
def test_group_and_threads_do_not_matter(model: str, executor: Any) -> None:
    task, timeline = supervised_task(model), buffered(12)
    options = {"augmentation": CROP_AND_FLIP, "executor": executor}
    # In double precision, since vectorized sums differ in the last bit with the group.
    options["dtype"] = "float64" if executor == "stacked" else "float32"
    expected = execute(task, timeline, training=make_training(threads=1, **options), eager=True)
    threaded = execute(task, timeline, training=make_training(threads=2, **options))
    if executor == "stacked":
        torch.testing.assert_close(
            threaded[0]["model"], expected[0]["model"], atol=1e-12, rtol=1e-12
        )
    else:
        assert_same(threaded, expected)
    plain = execute(task, timeline, training=make_training(**(options | {"augmentation": None})))
    assert not torch.allclose(plain[0]["model"], expected[0]["model"])


def test_kernels_see_the_same_images() -> None:
    task = supervised_task("mlp")
    timeline = buffered(12)
    options: dict[str, Any] = {"augmentation": CROP_AND_FLIP, "dtype": "float64", "threads": 1}
    models = [
        execute(task, timeline, training=make_training(executor=executor, **options))[0]["model"]
        for executor in ("auto", "plain")
    ]
    torch.testing.assert_close(models[0], models[1], atol=1e-12, rtol=1e-12)


def test_evaluation_sees_the_images_as_they_are() -> None:
    task = supervised_task("mlp")
    training = make_training(augmentation=CROP_AND_FLIP)
    state, rows = execute(task, buffered(4), training=training)
    assert rows[-1][1] == SupervisedEvaluator(task, Execution.of(training)).measure(state["model"])


def test_what_is_no_image_is_refused() -> None:
    training = make_training(augmentation=CROP_AND_FLIP)
    flat = supervised_task("linear")
    dataset = flat.dataset
    object.__setattr__(dataset, "train_x", dataset.train_x.reshape(-1, 64))
    for task, message in ((flat, r"samples have shape \(64,\)"), (quadratic_task(), "no samples")):
        with pytest.raises(UserError, match=message) as caught:
            check_augmentation(training, task)
        assert caught.value.where == "training.augmentation"
    wide = make_training(augmentation=Augmentation(crop_padding=8))
    with pytest.raises(UserError, match="8 x 8"):
        execute(supervised_task("linear"), buffered(1), training=wide)
