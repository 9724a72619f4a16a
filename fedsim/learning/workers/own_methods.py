"""Rules that a user's method must keep so that its results do not depend on the order of execution or on interruptions.

Methods that ship with fedsim are tested instead, and cost nothing here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

import torch
from torch import Tensor

from fedsim.attributes import changed, values_of
from fedsim.errors import UserError
from fedsim.learning.workers.base import Group
from fedsim.methods.base import LocalUpdate, Method
from fedsim.signatures import is_bundled, place

TOLERANCE = 1e-3
"""Largest difference of an entry that counts as rounding, relative to the largest entry of its row."""
_TOLERANCE_OF_AUTOCAST = 5e-2
_DIFFERING_SHARE = 0.01
"""Share of the entries that may differ by more, because rounding can change which entries are the largest."""


def keep_attributes(method: Method) -> None:
    """Let a user's method raise an error if ``local_update`` or ``aggregate`` changes its attributes.

    A checkpoint does not contain them, and a copy on another device does not see the change. Only values of
    ``functools.cached_property``, which follow from the other attributes, may be added.

    Args:
        method: the method, after its :meth:`fedsim.methods.base.Method.initial_state`.
    """
    if is_bundled(type(method)):
        return
    for name in ("local_update", "aggregate"):
        setattr(method, name, _keeping(method, name))


def _keeping(method: Method, name: str) -> Callable[..., Any]:
    function = getattr(method, name)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = values_of(_attributes(method), identical=True)
        result = function(*args, **kwargs)
        names = changed(before, values_of(_attributes(method), identical=True))
        if names:
            raise UserError(
                f"changes self.{names[0]}, which no checkpoint contains: a resumed run would give another result",
                where=place(type(method), name),
                hint=f"return it in the server state ({{'model': ..., '{names[0]}': ...}}, with its first value in "
                "initial_state), or keep a row per client in memories(); set constants in __init__ or initial_state",
            )
        return result

    return call


def _attributes(method: Method) -> dict[str, Any]:
    """The attributes of a method and the data of its user's classes, by name."""
    of_classes = {
        name: value
        for base in reversed(type(method).__mro__)
        if not is_bundled(base) and base.__module__ not in ("builtins", "abc", "typing")
        for name, value in vars(base).items()
        if not (name.startswith(("__", "_abc_")) or callable(value))
    }
    cached = {name for name, value in of_classes.items() if isinstance(value, cached_property)}
    ignored = cached | {"context", "local_update", "aggregate"}
    return {
        name: value
        for name, value in {**of_classes, **vars(method)}.items()
        if name not in ignored
        and not isinstance(value, property | staticmethod | classmethod | cached_property)
    }


class RowCheck:
    """Checks once that a user's ``local_update`` computes every row from that row alone.

    The last row of the first group with several rows is trained alone as well, and compared.

    Args:
        method: the method.
        autocast: whether local training computes in half precision.
    """

    def __init__(self, method: Method, *, autocast: bool) -> None:
        self._method = method
        self._tolerance = _TOLERANCE_OF_AUTOCAST if autocast else TOLERANCE
        self._lock = threading.Lock()
        self._is_done = is_bundled(type(method))

    def check(
        self, group: Group, update: LocalUpdate, train: Callable[[Group], LocalUpdate]
    ) -> None:
        """Compare the last row of a group's update, if this is the first group with several rows.

        Raises:
            UserError: the row differs from that of its dispatch alone.
        """
        rows = len(group.learning_rates)
        if self._is_done or rows < 2 or not isinstance(update, LocalUpdate):
            return
        with self._lock:
            if self._is_done:
                return
            self._is_done = True
        alone = train(group.last())
        for name, value in _tensors(update).items():
            single = _tensors(alone).get(name)
            # Missing or misshapen tensors are refused by the contract, with what was expected.
            if single is None or len(value) != rows or single.shape != value[-1:].shape:
                continue
            difference = _difference(value[-1:], single)
            if difference > self._tolerance:
                raise UserError(
                    f"computes rows that depend on one another: '{name}' of client {group.columns['clients'][-1]} "
                    f"differs by {difference:.2g} of its largest entry when the client is trained alone instead of in "
                    f"a group of {rows}",
                    where=place(type(self._method), "local_update"),
                    hint="compute each row from that row alone, with dim=1 in norms and means, and combine rows in "
                    "aggregate; training: {verify: eager} trains every dispatch alone",
                )


def _difference(first: Tensor, second: Tensor) -> float:
    """The largest difference of two rows but for a small share of the entries, relative to their largest entry."""
    first, second = first.double().reshape(-1), second.double().reshape(-1)
    if not len(first):
        return 0.0
    same = (first == second) | (first.isnan() & second.isnan())
    gaps = (first - second).abs().masked_fill(same, 0).nan_to_num(nan=torch.inf)
    largest = float(torch.maximum(first.abs(), second.abs()).nan_to_num().max())
    gap = float(gaps.sort(descending=True).values[int(_DIFFERING_SHARE * len(gaps))])
    return gap / largest if largest else gap


def _tensors(update: LocalUpdate) -> dict[str, Tensor]:
    named = {**update.vectors, **update.memory, "loss": update.loss}
    return {
        name: value for name, value in named.items() if isinstance(value, Tensor) and value.ndim
    }
