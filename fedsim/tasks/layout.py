"""The flat parameter vector: the position of each tensor."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from fedsim.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Layout:
    """Names, shapes and offsets of the tensors that make up a flat parameter vector of length P.

    Trainable parameters come first, then floating-point buffers that training changes (the running statistics of batch
    normalization): both are sent and averaged, and the gradients of the buffers are zero. Tensors that training does
    not change, such as frozen parameters, are not part of the vector.

    Attributes:
        names: names of the tensors, such as ``layers.0.weight``.
        shapes: their shapes.
        offsets: tensor j is ``offsets[j] : offsets[j + 1]``; one longer than ``names``.
        trainable: length of the leading part that has gradients.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    trainable: int

    @classmethod
    def of(
        cls,
        parameters: Iterable[tuple[str, Sequence[int]]],
        buffers: Iterable[tuple[str, Sequence[int]]] = (),
    ) -> Layout:
        """The layout of named shapes, in this order."""
        trainable = [(name, tuple(shape)) for name, shape in parameters]
        entries = trainable + [(name, tuple(shape)) for name, shape in buffers]
        sizes = [math.prod(shape) for _, shape in entries]
        return cls(
            names=tuple(name for name, _ in entries),
            shapes=tuple(shape for _, shape in entries),
            offsets=tuple(accumulate(sizes, initial=0)),
            trainable=sum(sizes[: len(trainable)]),
        )

    @classmethod
    def of_module(cls, module: nn.Module, buffers: Collection[str] | None = None) -> Layout:
        """The layout of a module's trainable parameters and of its saved floating-point ``buffers`` (all if None)."""
        state = module.state_dict()
        parameters = [
            (n, value.shape) for n, value in module.named_parameters() if value.requires_grad
        ]
        changing = [
            (name, value.shape)
            for name, value in module.named_buffers()
            if name in state and value.is_floating_point() and (buffers is None or name in buffers)
        ]
        return cls.of(parameters, changing)

    @property
    def size(self) -> int:
        """Length P of the vector."""
        return self.offsets[-1]

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of the tensors that have no gradient."""
        entries = zip(self.names, self.offsets, strict=False)
        return tuple(name for name, start in entries if start >= self.trainable)

    def flatten(self, module: nn.Module) -> Tensor:
        """A new vector (P,) with the module's values."""
        import torch

        state = module.state_dict()
        if not self.names:
            return torch.empty(0)
        return torch.cat([state[name].detach().reshape(-1) for name in self.names])

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The named tensors as views of ``flat`` (..., P), each of shape (..., *shape)."""
        lead = flat.shape[:-1]
        return {
            name: flat[..., start:end].view((*lead, *shape))
            for name, shape, (start, end) in zip(
                self.names, self.shapes, pairwise(self.offsets), strict=True
            )
        }

    def mask(self, patterns: Sequence[str]) -> Tensor:
        """The mask of the entries of the tensors that match ``patterns``, (P,) bool.

        A pattern is a tensor's name, the name of a module (``layers.1`` means all its tensors), or either with the
        wildcards ``*``, ``?`` and ``[...]``.

        Raises:
            UserError: a pattern matches no tensor.
        """
        import torch

        result = torch.zeros(self.size, dtype=torch.bool)
        for pattern in patterns:
            matches = [
                j
                for j, name in enumerate(self.names)
                if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
            ]
            if not matches:
                raise UserError(
                    f"'{pattern}' matches no part of the model",
                    hint=f"the model's parts are: {', '.join(self.names)}",
                )
            for j in matches:
                result[self.offsets[j] : self.offsets[j + 1]] = True
        return result
