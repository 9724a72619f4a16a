"""Attributes compare equal exactly if their values do."""

from __future__ import annotations

import copy
import logging
import random
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.attributes import changed, values_of


class Own:
    """A class of a user's file."""

    def __init__(self) -> None:
        self.n = [1]


class Slotted:
    __slots__ = ("empty", "n")

    def __init__(self) -> None:
        self.n = [1]


CHANGES: list[tuple[Any, Callable[[Any], Any]]] = [
    ([1, [2]], lambda item: item[1].append(3)),
    ({"a": {1, 2}}, lambda item: item["a"].add(3)),
    (np.zeros(3), lambda item: np.add(item, 1, out=item)),
    (torch.zeros(3), lambda item: item.add_(1)),
    (torch.zeros(3, dtype=torch.complex64), lambda item: item.add_(1j)),
    (torch.zeros(3, dtype=torch.bfloat16), lambda item: item.add_(1)),
    ((torch.zeros(3), 1), lambda item: item[0].add_(1)),
    (SimpleNamespace(n=[1]), lambda item: item.n.append(2)),
    (Own(), lambda item: item.n.append(2)),
    (Slotted(), lambda item: item.n.append(2)),
    (bytearray(b"a"), lambda item: item.append(2)),
    (np.random.default_rng(0), lambda item: item.random()),
    (np.random.RandomState(0), lambda item: item.rand()),
    (np.random.PCG64(0), lambda item: item.random_raw()),
    (random.Random(0), lambda item: item.random()),
    (torch.Generator(), lambda item: torch.rand(1, generator=item)),
]


@pytest.mark.parametrize("identical", [True, False])
@pytest.mark.parametrize(("item", "change"), CHANGES, ids=lambda item: type(item).__name__)
def test_a_change_in_place_is_seen(
    item: Any, change: Callable[[Any], Any], identical: bool
) -> None:
    item = copy.deepcopy(item)
    before = values_of({"it": item}, identical=identical, owner=Own)
    assert changed(before, values_of({"it": item}, identical=identical, owner=Own)) == []
    change(item)
    assert changed(before, values_of({"it": item}, identical=identical, owner=Own)) == ["it"]


@pytest.mark.parametrize(("item", "change"), CHANGES, ids=lambda item: type(item).__name__)
def test_copies_are_equal_by_value(item: Any, change: Callable[[Any], Any]) -> None:
    first, second = ({"it": copy.deepcopy(item)} for _ in range(2))
    assert (
        changed(
            values_of(first, identical=False, owner=Own),
            values_of(second, identical=False, owner=Own),
        )
        == []
    )


def test_tensors_of_equal_values_may_have_to_be_the_same() -> None:
    one, other = ({"it": torch.zeros(2)} for _ in range(2))
    assert changed(
        values_of(one, identical=True, owner=Own), values_of(other, identical=True, owner=Own)
    ) == ["it"]


def test_attributes_that_come_and_go_have_changed() -> None:
    before, after = (
        values_of(item, identical=False, owner=Own) for item in ({"a": 1, "b": 2}, {"b": 2, "c": 3})
    )
    assert changed(before, after) == ["a", "c"]


@pytest.mark.parametrize(
    "item", [float("nan"), len, np, list, [lambda: 1], object(), 1j, b"x", None]
)
def test_anything_is_equal_to_itself(item: Any) -> None:
    for identical in (True, False):
        values = [values_of({"it": item}, identical=identical, owner=Own) for _ in range(2)]
        assert changed(*values) == []


def test_an_object_that_refers_to_itself_ends() -> None:
    item = SimpleNamespace()
    item.own = [item]
    assert values_of({"it": item}, identical=False, owner=Own)


def test_the_beginning_of_a_long_array_counts() -> None:
    item = np.zeros(1 << 20)
    before = values_of({"it": item}, identical=True, owner=Own)
    item[5] = 1
    assert changed(before, values_of({"it": item}, identical=True, owner=Own)) == ["it"]


def test_objects_of_other_files_are_compared_by_identity(tmp_path: Path) -> None:
    log, lock = logging.Logger("l"), threading.Lock()
    with (tmp_path / "file").open("w") as file:
        items = {"log": log, "file": file, "lock": lock, "function": copy.copy, "module": copy}
        before = values_of(items, identical=True, owner=Own)
        log.isEnabledFor(1)
        log.setLevel("INFO")
        file.write("x")
        lock.acquire()
        assert changed(before, values_of(items, identical=True, owner=Own)) == []
        others = items | {"log": logging.Logger("l"), "function": copy.deepcopy}
        assert changed(before, values_of(others, identical=True, owner=Own)) == ["log", "function"]
