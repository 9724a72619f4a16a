"""Calling conventions of modules: the parts of a sample passed to forward as arguments, and its return value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from fedsim.errors import UserError

_INPUTS = "task.model.inputs"
_PART = re.compile(
    r"(?P<whole>int\()?x(?:\[(?P<first>-?\d*)(?P<colon>:)?(?P<last>-?\d*)\])?(?(whole)\))"
    r"(?:\s*!=\s*(?P<padding>-?\d+))?"
)


def adapt_calls(module: nn.Module, input_shape: tuple[int, ...], inputs: Any = None) -> None:
    """Make the module take samples (n, *input_shape) and return scores (n, classes).

    Args:
        input_shape: shape of one sample.
        module: any module. If it returns an object with ``logits``, as those of transformers do, these are the scores;
            if the logits have shape (n, length, classes), those of the last position.
        inputs: arguments of its forward, each a part of the samples or a dictionary of such parts: ``x``, ``x[1]``,
            ``x[:16]``, inside ``int(...)`` for integers, and followed by ``!= 0`` for a mask; None if the samples are
            its only argument.
    """
    if inputs is not None:
        arguments_of = _reader(inputs, _INPUTS, input_shape)
        module.register_forward_pre_hook(
            lambda _, args, kwargs: ((), arguments_of(args[0])), with_kwargs=True
        )
    module.register_forward_hook(lambda _, args, output: _scores(output))


def _scores(output: Any) -> Any:
    logits = getattr(output, "logits", output)
    if logits is output or not isinstance(logits, Tensor) or logits.ndim != 3:
        return logits
    return logits[:, -1]


def _reader(described: Any, where: str, shape: tuple[int, ...]) -> Callable[[Tensor], Any]:
    """The function from samples (n, ...) to the part or dictionary ``described``."""
    if isinstance(described, Mapping) and described:
        readers = {
            name: _reader(part, f"{where}.{name}", shape) for name, part in described.items()
        }
        return lambda x: {name: read(x) for name, read in readers.items()}
    match = _PART.fullmatch(described.strip()) if isinstance(described, str) else None
    if match is None or where == _INPUTS or (match["first"] == "" and not match["colon"]):
        raise UserError(
            f"{described!r} is not a part of the samples x",
            where=where,
            hint="use argument: part, where a part is x, x[1], x[:16], x[4:8], int(x[:16]) or x != 0, "
            'such as inputs: {input_ids: "x[0]", attention_mask: "x[1]"}',
        )
    first, last = (int(match[name]) if match[name] else None for name in ("first", "last"))
    index = slice(first, last) if match["colon"] else first
    length = shape[0] if shape else 0
    edges = [edge for edge in (first, last) if edge is not None]
    some = range(length)[index] if isinstance(index, slice) else index in range(-length, length)
    if edges and not (some and all(-length <= edge <= length for edge in edges)):
        raise UserError(
            f"{described!r} is not within a sample, which has shape {shape}",
            where=where,
            hint=f"the first axis has the indices 0 to {length - 1}",
        )

    def read(x: Tensor) -> Tensor:
        values = x if index is None else x[:, index]
        values = values.long() if match["whole"] else values
        return values if match["padding"] is None else (values != int(match["padding"])).long()

    return read
