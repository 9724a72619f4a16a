"""Checks of the declarations of a user's method, before anything is computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedsim.methods.base import Method, Prologue, Vector
from fedsim.parts.component import is_bundled
from fedsim.parts.functions import returned_number, wrong_return

_MOST_BITS = 64
_TRAFFIC = ("download", "first_download", "upload")
_COSTS = ("compute_factor", "extra_passes", "vector_operations", "steps_ahead")


def check_declarations(method: Method) -> None:
    """Refuse declarations of a user's method that are not of the declared types.

    Raises:
        UserError: with the function, its value, and an example.
    """
    kind = type(method)
    if is_bundled(kind):
        return
    for name in _TRAFFIC:
        _check_vectors(kind, name, getattr(method, name)())
    prologue = method.prologue()
    if prologue is not None and not isinstance(prologue, Prologue):
        raise wrong_return(kind, "prologue", repr(prologue), "return None or a Prologue")
    for name in _COSTS:
        returned_number(kind, name, getattr(method, name)())


def _check_vectors(kind: type[Method], function: str, value: Any) -> None:
    example = (
        'return vectors, such as (Vector("delta", self.context.layout.size),); '
        "Vector is in fedsim.methods.base"
    )
    if not isinstance(value, Sequence) or not all(isinstance(item, Vector) for item in value):
        raise wrong_return(kind, function, repr(value), example)
    for vector in value:
        if not isinstance(vector.elements, int) or vector.elements < 0:
            hint = "its elements are the length, a whole number"
            raise wrong_return(kind, function, repr(vector), hint)
        if vector.bits is not None and not 0 < vector.bits <= _MOST_BITS:
            hint = f"its bits are those of one entry, more than 0 and at most {_MOST_BITS}"
            raise wrong_return(kind, function, repr(vector), hint)
