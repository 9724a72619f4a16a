"""Rows keep their bits through every tier."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsim.learning.memory import Budget, RowStore, StateStore
from fedsim.methods.base import Memory
from tests.learning.problems import Remembering, make_training, supervised_task
from tests.learning.timelines import assert_same, buffered, execute

ELEMENTS = 6
CPU = torch.device("cpu")
MODEL = torch.zeros(ELEMENTS)

ROW_BYTES = 4 * ELEMENTS


def make_store(rows_in_memory: int | None, initial: torch.Tensor | None = None) -> RowStore:
    limit = math.inf if rows_in_memory is None else rows_in_memory * ROW_BYTES
    return RowStore(ELEMENTS, torch.float32, CPU, Budget(0, limit), initial)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "get", "drop"]),
            st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True),
        ),
        max_size=40,
    ),
    st.sampled_from([None, 0, 1, 3]),
)
def test_a_store_is_a_dictionary_whatever_its_budget(
    operations: list[tuple[str, list[int]]], rows_in_memory: int | None
) -> None:
    initial = torch.arange(float(ELEMENTS))
    store = make_store(rows_in_memory, initial)
    expected: dict[int, torch.Tensor] = {}
    generator = torch.Generator().manual_seed(0)
    for operation, keys in operations:
        if operation == "put":
            rows = torch.randn(len(keys), ELEMENTS, generator=generator)
            store.put(keys, rows)
            expected |= dict(zip(keys, rows.clone(), strict=True))
            rows.zero_()  # the store must hold a copy
        elif operation == "drop":
            store.drop(keys[0])
            expected.pop(keys[0], None)
        else:
            for row, key in zip(store.get(keys), keys, strict=True):
                assert torch.equal(row, expected.get(key, initial))
                row.zero_()  # and give one
        assert store.keys() == sorted(expected)
        assert len(store) == len(expected)
        assert [key in store for key in range(10)] == [key in expected for key in range(10)]
    for key, row in expected.items():
        assert torch.equal(store.get([key])[0], row)


def test_budget_is_shared_out_by_size() -> None:
    store = StateStore(
        {"small": Memory(ELEMENTS), "large": Memory(3 * ELEMENTS, keeper="server")},
        torch.float32,
        CPU,
        Budget(0, 8 * ROW_BYTES),
        MODEL,
    )
    for name, in_memory in (("small", 2), ("large", 2)):
        rows = store[name]
        rows.put(list(range(5)), torch.ones(5, rows.elements))
        assert sum(len(tier) for tier, _ in rows._tiers[:-1]) == in_memory
    assert store.of_clients == ("small",)


def test_memory_of_another_type_keeps_it() -> None:
    memories = {"count": Memory(1, dtype=torch.int64)}
    store, copied = (
        StateStore(memories, torch.float32, CPU, Budget(0, most), MODEL) for most in (math.inf, 0)
    )
    store["count"].put([3], torch.tensor([[1 << 60]]))
    copied.load(store.tensors())
    assert copied["count"].get([3, 4]).tolist() == [[1 << 60], [0]]


def test_budget_follows_the_scenario() -> None:
    for memory, most in (("disk", 0), ("host", math.inf), ("device", math.inf)):
        assert Budget.of(make_training(memory=memory), CPU) == Budget(0, most)
    automatic = Budget.of(make_training(), CPU)
    assert 1 << 20 < automatic.host_bytes < math.inf


@pytest.mark.parametrize("memory", ["disk", "host"])
def test_where_memories_lie_does_not_change_a_run(memory: Any, monkeypatch: Any) -> None:
    task = supervised_task("linear", own_test=True)
    timeline = buffered(20)
    expected = execute(task, timeline, method=Remembering)
    training = make_training(memory=memory, threads=1)
    assert_same(execute(task, timeline, method=Remembering, training=training), expected)
    # Updates that wait on disk too, trained in waves of two.
    row_bytes = 2 * 4 * task.layout.size
    monkeypatch.setattr("fedsim.learning.updates.host_budget", lambda most, share: 2 * row_bytes)
    assert_same(execute(task, timeline, method=Remembering, training=training), expected)


def test_what_is_stored_is_given_in_pieces_and_taken_back(monkeypatch: Any) -> None:
    """Rows of 12 bytes in pieces of 30: two at a time, whatever tier they lie in."""
    monkeypatch.setattr("fedsim.learning.memory._PIECE_BYTES", 30)
    memories = {"a": Memory(3), "b": Memory(1), "never": Memory(2)}

    def store() -> StateStore:
        return StateStore(memories, torch.float32, CPU, Budget(math.inf, 40), MODEL)

    first, second = store(), store()
    keys = np.array([7, 2, 5, 0, 9])
    for name, elements in (("a", 3), ("b", 1)):
        first[name].put(keys, torch.arange(5.0 * elements).view(5, elements))
    tensors = first.tensors()
    assert [len(tensors[f"a.rows.{number}"]) for number in range(3)] == [2, 2, 1]
    assert tensors["a.clients.1"].tolist() == [5, 7]
    assert len(tensors) == 6 + 2
    second.load(tensors)
    for name in memories:
        assert second[name].keys() == first[name].keys()
        assert torch.equal(second[name].get(keys), first[name].get(keys))
