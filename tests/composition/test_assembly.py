"""Bytes of models with frozen parameters, and of vectors with bits of their own, by hand arithmetic."""

from __future__ import annotations

from pathlib import Path

import torch

import fedsim
from fedsim.methods.base import Vector
from tests.composition.adapters import scenario

CHANGED = 4 * (2 * 64 + 32 * 2 + 32 * 10 + 10)
FIXED = 4 * (64 * 32 + 32 + 1)


def test_frozen_tensors_are_sent_once_per_client(users: Path) -> None:
    run = fedsim.run(scenario(), users / "run")
    first = CHANGED + FIXED
    assert run.dispatches["client_id"].to_list() == [0, 0, 1, 1]
    assert run.dispatches["bytes_down"].to_list() == [first, CHANGED, first, CHANGED]
    assert set(run.dispatches["bytes_up"]) == {CHANGED}
    assert sum(value.numel() for value in run.model().values()) * 4 == first, (
        "all tensors are saved"
    )


def test_everything_is_sent_with_transfer_all(users: Path) -> None:
    changed = fedsim.run(scenario(), users / "changed")
    run = fedsim.run(scenario(), users / "all", overrides=["server.transfer=all"])
    assert set(run.dispatches["bytes_down"]) == set(run.dispatches["bytes_up"]) == {CHANGED + FIXED}
    for name, value in changed.model().items():
        assert torch.equal(run.model()[name], value), "only bytes differ"


def test_the_bits_of_a_vector_are_charged() -> None:
    assert Vector("a", 10).size_bytes(4) == 40
    assert Vector("a", 10, bits=8).size_bytes(4) == 10
    assert Vector("a", 10, bits=1).size_bytes(8) == 1.25
