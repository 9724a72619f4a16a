"""Optimizer steps, batches and examples are counted as they happen."""

import contextlib

import torch

from fedsim.flower.counting import counted


def test_steps_batches_and_examples() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(net.parameters())
    with counted() as counts:
        for size in (5, 5, 2):
            optimizer.zero_grad()
            net(torch.ones(size, 3)).sum().backward()
            optimizer.step()
        with torch.no_grad():
            net(torch.ones(7, 3))
    net(torch.ones(9, 3))
    optimizer.step()
    assert (counts.steps, counts.batches, counts.examples, counts.trained) == (3, 4, 19, 12)
    assert counts.host_s > 0


def test_a_model_that_fails_leaves_the_count_sound() -> None:
    net = torch.nn.Linear(3, 1)
    with counted() as counts:
        with contextlib.suppress(RuntimeError):
            net(torch.ones(2, 5))
        net(torch.ones(2, 3))
    assert (counts.batches, counts.examples) == (2, 4)
