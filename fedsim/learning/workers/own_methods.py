"""Rules that a user's method must keep so that its results do not depend on the order of execution or on interruptions.

Methods that ship with fedsim are tested instead, and cost nothing here.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from fedsim.attributes import changed, values_of
from fedsim.errors import UserError
from fedsim.file_variables import FileVariables, is_iterator
from fedsim.learning.workers.base import Group
from fedsim.methods.base import LocalUpdate, Method
from fedsim.parts.component import is_bundled, place

TOLERANCE = 1e-3
"""Largest difference of an entry that counts as rounding, relative to the largest entry of its row."""
_TOLERANCE_OF_AUTOCAST = 5e-2
_DIFFERING_SHARE = 0.01
"""Share of the entries that may differ by more, because rounding can change which entries are the largest."""
_KEEPER = "_fedsim_keeper"
_NOTING: WeakSet[cached_property[Any]] = WeakSet()
"""Cached properties of users' classes whose functions note the values that they compute."""


def keep_attributes(method: Method) -> None:
    """Let a user's method raise an error if ``local_update`` or ``aggregate`` changes its attributes or its file's
    variables.

    A checkpoint does not contain them, and a copy on another device does not see the change. Only values of
    ``functools.cached_property``, which follow from the other attributes, may be added, and must stay as computed.

    Args:
        method: the method, after its :meth:`fedsim.methods.base.Method.initial_state`.

    Raises:
        UserError: an attribute or a variable that the method uses is an iterator, whose position is not visible.
    """
    if is_bundled(type(method)):
        return
    keeper = _Keeper(method)
    keeper.refuse_iterators()
    vars(method)[_KEEPER] = keeper
    for name in ("local_update", "aggregate"):
        setattr(method, name, keeper.watched(name))


class _Keeper:
    """Refuses calls of a method's functions that change its attributes, or a cached value after it was computed."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._class = type(method)
        cached = {
            name: value
            for name, value in _of_users_classes(self._class).items()
            if isinstance(value, cached_property)
        }
        self._cached = dict.fromkeys(cached)
        self._computed: dict[str, object] = {}
        self._variables = FileVariables(self._class)
        for name, item in cached.items():
            if item not in _NOTING:
                item.func = _noting(name, item.func)
                _NOTING.add(item)

    def watched(self, name: str) -> Callable[..., Any]:
        """The function of this name, which raises an error if it changes an attribute."""
        function = getattr(self._method, name)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            before = self._values(_attributes(self._method))
            variables = self._variables.values()
            result = function(*args, **kwargs)
            names = changed(before, self._values(_attributes(self._method)))
            names += self._changed_in_cache()
            if names:
                raise self._error(name, f"self.{names[0]}", names[0])
            for words in self._variables.changed(variables):
                raise self._error(name, words, _name_in(words))
            return result

        return call

    def note(self, name: str, value: object) -> None:
        """Remember a cached value as it was computed."""
        self._computed.setdefault(name, self._values({name: value})[name])

    def refuse_iterators(self) -> None:
        """Refuse iterators in attributes and variables."""
        attributes = {f"self.{key}": value for key, value in _attributes(self._method).items()}
        for words, value in {**attributes, **self._variables.current()}.items():
            if is_iterator(value):
                raise UserError(
                    f"keeps an iterator in {words}, whose position no checkpoint contains: a resumed run would give "
                    "another result",
                    where=place(self._class),
                    hint="compute the value from updates.version in aggregate, or from a row's client and sequence in "
                    "local_update; a list or range may be kept",
                )

    def _changed_in_cache(self) -> list[str]:
        attributes = vars(self._method)
        cached = {name: attributes[name] for name in self._cached if name in attributes}
        # Of a value that was computed earlier, before __init__ ended, the first one seen counts.
        for name, value in cached.items():
            self.note(name, value)
        return [
            name for name, value in self._values(cached).items() if value != self._computed[name]
        ]

    def _values(self, attributes: Mapping[str, Any]) -> dict[str, object]:
        return values_of(attributes, identical=True, owner=self._class)

    def _error(self, function: str, words: str, name: str) -> UserError:
        hint = (
            "keep what a client remembers as a row in memories(); set constants in __init__ or initial_state, or "
            "compute what follows from them once in a functools.cached_property"
            if function == "local_update"
            else f"return it in the server state as a tensor, with its first value in initial_state: {{'model': ..., "
            f"'{name}': torch.tensor(0)}}; set constants in __init__ or initial_state"
        )
        return UserError(
            f"changes {words}, which no checkpoint contains: a resumed run would give another result",
            where=place(self._class, function),
            hint=f"{hint}; values for debugging can be printed, or go to a logger",
        )


def _name_in(words: str) -> str:
    """A key of the server state for data that :class:`fedsim.file_variables.FileVariables` describes in words."""
    match = re.match(r"the (?:variable|attribute) (\w+)", words)
    return match[1] if match else "value"


def _noting(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function of a cached property, which also passes its value to the keeper of the object."""

    @wraps(function)
    def compute(method: Any) -> Any:
        value = function(method)
        keeper = vars(method).get(_KEEPER)
        if keeper is not None:
            keeper.note(name, value)
        return value

    return compute


def _attributes(method: Method) -> dict[str, Any]:
    """The attributes of a method and the data of its user's classes, by name, without cached values."""
    of_classes = _of_users_classes(type(method))
    cached = {name for name, value in of_classes.items() if isinstance(value, cached_property)}
    ignored = cached | {"context", "local_update", "aggregate", _KEEPER}
    return {
        name: value
        for name, value in {**of_classes, **vars(method)}.items()
        if name not in ignored
        and not isinstance(value, property | staticmethod | classmethod | cached_property)
    }


def _of_users_classes(kind: type[Method]) -> dict[str, Any]:
    return {
        name: value
        for base in reversed(kind.__mro__)
        if not is_bundled(base) and base.__module__ not in ("builtins", "abc", "typing")
        for name, value in vars(base).items()
        if not (name.startswith(("__", "_abc_")) or callable(value))
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
