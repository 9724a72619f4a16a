"""The flat parameter vector: the position of each tensor."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from fedsim.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Adapter:
    """A trainable change of rank r of a frozen weight matrix W: W + scaling B A (Hu et al., LoRA, ICLR 2022).

    Attributes:
        a, b: names of A (r, in) and B (out, r).
        base: name of W, (out, in).
        scaling: factor on B A.
        transposed: whether W is stored as (in, out).
    """

    a: str
    b: str
    base: str
    scaling: float = 1.0
    transposed: bool = False


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
        adapters: the pairs of low-rank matrices among the tensors.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    trainable: int
    adapters: tuple[Adapter, ...] = ()

    @classmethod
    def of(
        cls,
        parameters: Iterable[tuple[str, Sequence[int]]],
        buffers: Iterable[tuple[str, Sequence[int]]] = (),
        adapters: Iterable[Adapter] = (),
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
            adapters=tuple(adapters),
        )

    @classmethod
    def of_layers(cls, weights: Iterable[tuple[str, tuple[int, ...]]]) -> Layout:
        """The layout of layers, from the shape (outputs, ...) of each one's weights, which its biases follow."""
        return cls.of(
            entry
            for name, shape in weights
            for entry in ((f"{name}.weight", shape), (f"{name}.bias", shape[:1]))
        )

    @classmethod
    def of_module(
        cls, module: nn.Module, buffers: Collection[str] | None = None, *, merges: bool = False
    ) -> Layout:
        """The layout of a module's trainable parameters and of its saved floating-point ``buffers`` (all if None).

        With ``merges``, the frozen matrices that adapters change are part of it, after the parameters.
        """
        state = module.state_dict()
        parameters = [
            (n, value.shape) for n, value in module.named_parameters() if value.requires_grad
        ]
        adapters = adapters_of(module)
        changing = [
            (name, value.shape)
            for name, value in module.named_buffers()
            if name in state and value.is_floating_point() and (buffers is None or name in buffers)
        ]
        merged = [(one.base, state[one.base].shape) for one in adapters if merges]
        return cls.of(parameters, [*merged, *changing], adapters)

    @property
    def size(self) -> int:
        """Length P of the vector."""
        return self.offsets[-1]

    @property
    def sizes(self) -> dict[str, int]:
        """Number of entries of each tensor."""
        pairs = zip(self.names, pairwise(self.offsets), strict=True)
        return {name: end - start for name, (start, end) in pairs}

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
        values = [state[name].detach().reshape(-1) for name in self.names]
        # Types of one byte, such as float8, are not promoted.
        return torch.cat([each if each.itemsize > 1 else each.float() for each in values])

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


def adapters_of(module: nn.Module) -> list[Adapter]:
    """The trainable pairs of matrices ``lora_A`` and ``lora_B`` of a module, in the names of peft or of loralib."""
    parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
    adapters = []
    for name in parameters:
        prefix, found, rest = name.partition(".lora_A")
        other = f"{prefix}.lora_B{rest}"
        if not found or other not in parameters:
            continue
        layer: Any = module.get_submodule(prefix)
        scaling = getattr(layer, "scaling", 1.0)
        if isinstance(scaling, Mapping):
            scaling = scaling[rest.split(".")[1]]
        inner = "base_layer." if hasattr(layer, "base_layer") else ""
        transposed = getattr(layer, "fan_in_fan_out", False)
        adapters.append(
            Adapter(name, other, f"{prefix}.{inner}weight", float(scaling), bool(transposed))
        )
    return adapters
