"""Residual networks."""

from __future__ import annotations

import torch
from torch.func import functional_call

from tests.tasks.models.shapes import COLOUR, START, dataset_of
from tests.tasks.toys import task


def test_batch_norm_keeps_its_statistics_in_the_vector() -> None:
    problem = task(dataset_of(COLOUR), "resnet20", norm="batch")
    assert len(problem.layout.buffers) == 2 * 19
    assert problem.parameters == 269_722
    assert problem.layout.size == 269_722 + 2 * 688
    flat = problem.initial(START)
    views = problem.layout.views(flat)
    assert (views["stem_norm.running_var"] == 1).all()
    assert not views["stem_norm.running_mean"].any()
    before = flat.clone()
    problem.module.train()
    functional_call(problem.module, views, (problem.inputs(problem.train_x[:8]),))
    assert torch.equal(flat[: problem.parameters], before[: problem.parameters])
    assert not torch.equal(flat[problem.parameters :], before[problem.parameters :])
