"""Threads and several devices: the same bits from all of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from tests.learning.problems import make_learner
from tests.learning.timelines import assert_same, buffered, checkpoints_of, execute
from tests.learning.workers.cases import (
    CASES,
    Case,
    mlp,
    on_devices,
    with_threads,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", CASES)
def test_threads_and_devices_give_the_same_bits(name: str) -> None:
    case = CASES[name]
    task, timeline = case[0](), case[4]()
    expected = execute(task, timeline, **with_threads(case, 1))
    for options in (
        with_threads(case, 2),
        with_threads(case, 3),
        on_devices(case, 2),
        on_devices(case, 3),
        on_devices(case, 2) | {"eager": True} if name != "vmap" else on_devices(case, 2),
    ):
        assert_same(execute(task, timeline, **options), expected)


@pytest.mark.parametrize(
    ("before", "after"), [(with_threads, on_devices), (on_devices, with_threads)]
)
def test_a_checkpoint_of_one_type_is_continued_by_another(
    before: Callable[..., Any], after: Callable[..., Any]
) -> None:
    case: Case = (mlp, "remembering", {}, {}, partial(buffered, 20))
    task, timeline = case[0](), case[4]()
    expected = execute(task, timeline, **with_threads(case, 1))
    few: dict[str, Any] = {"max_pending": 6}
    taken = checkpoints_of(task, timeline, **before(case, 2), **few)
    assert len(taken) > 1
    assert_same(execute(task, timeline, checkpoint=taken[1], **after(case, 2), **few), expected)


def test_description() -> None:
    case = CASES["stacked layers"]
    task = case[0]()
    described = make_learner(task, **with_threads(case, 3)).describe()
    assert (described["workers"], described["workers_are"]) == (3, "threads")
    described = make_learner(task, **on_devices(case, 2)).describe()
    assert (described["workers"], described["workers_are"]) == (2, "devices")
    assert described["devices"] == "cpu, cpu"
