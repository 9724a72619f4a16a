"""The attributes of users' objects by value, to see whether calls have changed them."""

from __future__ import annotations

import itertools
import random
import sys
import zlib
from collections import deque
from collections.abc import Mapping, Set
from types import MemberDescriptorType, SimpleNamespace
from typing import Any

import numpy as np

from fedsim.global_generators import is_generator
from fedsim.parts.component import is_bundled

_DEPTH = 4
_ITEMS = 1000
_ENTRIES = 1 << 16
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, np.generic)


def values_of(
    attributes: Mapping[str, Any], *, identical: bool, owner: type[Any]
) -> dict[str, object]:
    """The value of each attribute, which equals that of a later call if the attribute has not changed.

    Numbers, text, arrays, random generators and small containers of them are compared by value, and objects whose class
    comes from a file of ``owner`` by their attributes. Others, such as loggers, have changes of no importance. Of long
    containers and arrays, only the length and the beginning count.

    Args:
        attributes: attributes by name.
        owner: class whose attributes they are.
        identical: whether tensors and other objects without values must be the same objects, and tensors not written to
            in between. Otherwise tensors are compared by value, and other objects by their type.
    """
    values = _Values(identical, users_modules(owner))
    return {name: values.of(item, _DEPTH) for name, item in attributes.items()}


def users_modules(kind: type[Any]) -> set[str]:
    """Names of the modules that define a user's class and its bases, but for those of fedsim, torch and Python."""
    return {base.__module__ for base in kind.__mro__ if _is_users(base)}


def _is_users(kind: type[Any]) -> bool:
    package = kind.__module__.partition(".")[0]
    return not (is_bundled(kind) or package == "torch" or package in sys.stdlib_module_names)


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Names of the attributes that differ, are new, or are gone."""
    names = dict.fromkeys([*before, *after])
    return [
        name
        for name in names
        if name not in before or name not in after or before[name] != after[name]
    ]


class _Identity:
    """Equal only for the same object, which it keeps alive, so that its address is not used again."""

    def __init__(self, item: object) -> None:
        self._item = item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._item is other._item

    def __hash__(self) -> int:
        return id(self._item)


class _Values:
    """Values of items.

    Args:
        identical: as for :func:`values_of`.
        modules: names of the modules whose classes have objects that are compared by their attributes.
    """

    def __init__(self, identical: bool, modules: Set[str]) -> None:
        self._identical = identical
        self._modules = modules

    def of(self, item: Any, depth: int) -> object:
        """The value of an item, down to this depth."""
        kind = type(item).__qualname__
        if isinstance(item, _PLAIN):
            return kind, repr(item)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(item, torch.Tensor):
            if self._identical:
                return kind, _Identity(item), item._version
            return kind, str(item.dtype), tuple(item.shape), _of_tensor(item)
        if isinstance(item, np.ndarray):
            return kind, _of_array(item), self._identity(item)
        if is_generator(item):
            return kind, _state(item)
        if depth and isinstance(item, list | tuple | deque | set | frozenset):
            if len(item) > _ITEMS:
                return kind, len(item)
            values = (self.of(one, depth - 1) for one in item)
            return kind, frozenset(values) if isinstance(item, set | frozenset) else tuple(values)
        if depth and isinstance(item, Mapping):
            return kind, len(item), self._of_mapping(item, depth)
        state = self._state_of(item) if depth else {}
        return kind, self._of_mapping(state, depth), self._identity(item)

    def _identity(self, item: object) -> _Identity | None:
        return _Identity(item) if self._identical else None

    def _of_mapping(self, mapping: Mapping[Any, Any], depth: int) -> object:
        items = itertools.islice(mapping.items(), _ITEMS)
        return tuple((repr(key), self.of(value, depth - 1)) for key, value in items)

    def _state_of(self, item: Any) -> dict[str, Any]:
        """The attributes of an object that count; none of an object that is not a plain record of the user's."""
        torch = sys.modules.get("torch")
        kind = type(item)
        if torch is not None and isinstance(item, torch.nn.Module):
            return {}
        if kind is not SimpleNamespace and kind.__module__ not in self._modules:
            return {}
        slots = [
            name
            for base in kind.__mro__
            for name, slot in vars(base).items()
            if isinstance(slot, MemberDescriptorType) and hasattr(item, name)
        ]
        return {**getattr(item, "__dict__", {}), **{name: getattr(item, name) for name in slots}}


def _of_array(array: np.ndarray[Any, Any]) -> object:
    if array.dtype.hasobject:
        return array.shape
    return array.shape, str(array.dtype), zlib.crc32(array.flat[:_ENTRIES].tobytes())


def _of_tensor(tensor: Any) -> object:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_meta:
        return None
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return _of_array(values.detach().cpu().double().numpy())


def _state(generator: Any) -> object:
    """The state of a random generator as text."""
    if isinstance(generator, random.Random):
        return repr(generator.getstate())
    if isinstance(generator, np.random.Generator):
        generator = generator.bit_generator
    if isinstance(generator, np.random.BitGenerator):
        return repr(generator.state)
    state = generator.get_state()
    return repr(state) if isinstance(generator, np.random.RandomState) else state.numpy().tobytes()
