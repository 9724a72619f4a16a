"""Checks of users' optimizers; those that ship with fedsim are tested instead."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedsim.errors import UserError
from fedsim.file_variables import FileVariables
from fedsim.global_generators import random_numbers, watched
from fedsim.learning.optimizers import Optimizer
from fedsim.parts.component import is_bundled, place

_TOLERANCE = 1e-3
"""Largest difference of an entry that counts as rounding, relative to the largest entry of its row."""
_STEPS = 2


def watched_optimizer(create: Callable[[], Optimizer]) -> Callable[[], Optimizer]:
    """A function like ``create``, whose optimizers raise an error if a step draws from a global random generator, or
    changes a variable of their file or an attribute of a class.

    Other clients, perhaps on other threads, share such data.

    Args:
        create: returns a new optimizer.
    """
    if is_bundled(type(create())):
        return create
    variables = FileVariables(type(create()))

    def new_optimizer() -> Optimizer:
        optimizer = watched(create(), "step", hint=random_numbers("optimizer"))
        step = optimizer.step

        @functools.wraps(step)
        def kept(*args: Any, **kwargs: Any) -> None:
            before = variables.values()
            step(*args, **kwargs)
            for words in variables.changed(before):
                raise UserError(
                    f"changes {words}, which other clients share and no checkpoint contains",
                    where=place(type(optimizer), "step"),
                    hint="keep the state in attributes of the object (self.squares = ...): every client's local "
                    "training begins with a new one",
                )

        optimizer.step = kept  # type: ignore[method-assign]
        return optimizer

    return new_optimizer


def refuse_mixed_rows(new_optimizer: Callable[[], Optimizer], like: Tensor) -> None:
    """Check that an optimizer moves each row by its own direction and rate alone.

    Two rows with different weights, directions and rates make a few steps; the second one then makes them by itself.

    Args:
        new_optimizer: returns a new optimizer.
        like: the trainable part of local models, (b, p), which has the run's data type and device.

    Raises:
        UserError: the second row depends on the first.
    """
    places = torch.arange(1, like.shape[1] + 1, dtype=torch.float64)
    weights = torch.stack([3 * places.cos(), places.sin()]).to(like)
    direction = torch.stack([2 * places.sin(), (places / 2).cos()]).to(like)
    rates = torch.tensor([[1.0], [0.5]]).to(like)
    together = _stepped(new_optimizer(), weights, direction, rates)[1:]
    alone = _stepped(new_optimizer(), weights[1:], direction[1:], rates[1:])
    largest = float(torch.maximum(together.abs(), alone.abs()).max())
    gap = float((together - alone).abs().max()) / largest if largest else 0.0
    if gap > _TOLERANCE:
        optimizer = type(new_optimizer())
        raise UserError(
            "computes rows that depend on one another: with the same gradients, the weights of a client differ by "
            f"{gap:.2g} of their largest entry if it is trained together with another one",
            where=place(optimizer, "step"),
            hint="compute each row from that row alone, with dim=1, keepdim=True in norms, means and maxima",
        )


def _stepped(optimizer: Optimizer, weights: Tensor, direction: Tensor, rates: Tensor) -> Tensor:
    weights = weights.clone()
    for _ in range(_STEPS):
        optimizer.step(weights, direction.clone(), rates)
    return weights
