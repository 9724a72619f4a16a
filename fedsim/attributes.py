"""The attributes of users' objects by value, to see whether calls have changed them."""

from __future__ import annotations

import random
import sys
import zlib
from collections import deque
from collections.abc import Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from fedsim.global_generators import is_generator

_DEPTH = 4
_ITEMS = 1000
_ENTRIES = 1 << 16
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)


def values_of(attributes: Mapping[str, Any], *, identical: bool) -> dict[str, object]:
    """The value of each attribute, which equals that of a later call if the attribute has not changed.

    Numbers, text, arrays, random generators and small containers of them are compared by value, other objects by their
    attributes. Of long containers and arrays, only the length and the beginning count.

    Args:
        attributes: attributes by name.
        identical: whether tensors and other objects without values must be the same objects, and tensors not written to
            in between. Otherwise tensors are compared by value, and other objects by their type.
    """
    return {name: _value(item, identical, _DEPTH) for name, item in attributes.items()}


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


def _value(item: Any, identical: bool, depth: int) -> object:
    kind = type(item).__qualname__
    if isinstance(item, _PLAIN):
        return kind, repr(item)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(item, torch.Tensor):
        if identical:
            return kind, _Identity(item), item._version
        return kind, str(item.dtype), tuple(item.shape), _of_tensor(item)
    if isinstance(item, np.ndarray):
        return (kind, _of_array(item), _Identity(item) if identical else None)
    if is_generator(item):
        return kind, _state(item)
    if depth and isinstance(item, list | tuple | deque | set | frozenset):
        if len(item) > _ITEMS:
            return kind, len(item)
        values = (_value(one, identical, depth - 1) for one in item)
        return kind, frozenset(values) if isinstance(item, set | frozenset) else tuple(values)
    if depth and isinstance(item, Mapping):
        return kind, len(item), _of_mapping(item, identical, depth)
    # Functions, classes and modules have attributes that are not their own state.
    bound = isinstance(item, type | ModuleType | FunctionType | MethodType)
    is_module = torch is not None and isinstance(item, torch.nn.Module)
    own = None if bound or is_module else getattr(item, "__dict__", None)
    values_of_object = _of_mapping(own, identical, depth) if depth and own else None
    return kind, values_of_object, _Identity(item) if identical and not bound else None


def _of_mapping(mapping: Mapping[Any, Any], identical: bool, depth: int) -> object:
    items = list(mapping.items())[:_ITEMS]
    return tuple((repr(key), _value(value, identical, depth - 1)) for key, value in items)


def _of_array(array: np.ndarray[Any, Any]) -> object:
    if array.dtype.hasobject:
        return array.shape
    return array.shape, str(array.dtype), zlib.crc32(array.flat[:_ENTRIES].tobytes())


def _of_tensor(tensor: Any) -> object:
    import torch

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
