"""Timelines executed on the CPU and on an imitated CUDA device, and their comparison."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.learning.imitation_cuda import There
from tests.learning.problems import Timeline, make_training
from tests.learning.timelines import execute

Result = tuple[dict[str, Tensor], Any]


def home(result: Result) -> Result:
    """The result as plain tensors; the model was on the device."""
    tensors, rows = result
    assert isinstance(tensors["model"], There)
    return {n: t.inner if isinstance(t, There) else t for n, t in tensors.items()}, rows


def on_cpu(task: Any, timeline: Timeline, **options: Any) -> Result:
    training = options.pop("training", {})
    return execute(task, timeline, training=make_training(threads=1, **training), **options)


def on_device(task: Any, timeline: Timeline, **options: Any) -> Result:
    training = options.pop("training", {})
    return home(
        execute(task, timeline, training=make_training(device="cuda", **training), **options)
    )


def assert_same(actual: Result, expected: Result) -> None:
    assert actual[0].keys() == expected[0].keys()
    for name, value in expected[0].items():
        assert torch.equal(actual[0][name].nan_to_num(7), value.nan_to_num(7)), name
    for (version, metrics), (same, values) in zip(actual[1], expected[1], strict=True):
        # Modules see images that lie otherwise in memory when they are evaluated, which changes the last bit.
        assert version == same
        assert metrics == pytest.approx(values, rel=1e-6)
