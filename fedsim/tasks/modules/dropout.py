"""Dropout whose masks are a pure function of a seed, independent of earlier draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

from fedsim.errors import UserError


class StackedGenerators:
    """The generators of clients whose training steps ``torch.func.vmap`` executes at once.

    Each client draws what it would draw alone, if the samples are the first axis of whatever is dropped: padding draws
    nothing.

    Attributes:
        anchor: any tensor of one client inside ``vmap``, which shows the draws how many clients there are.
    """

    def __init__(self, device: torch.device) -> None:
        self.anchor = torch.empty(0)
        self._device = device
        self._generators: list[Generator] = []
        self._sizes: list[int] = []
        self._width = 1

    def seed(self, seeds: Sequence[int], sizes: Sequence[int], width: int) -> None:
        """Make the masks of the next forward pass a function of ``seeds``.

        Args:
            seeds: one of 63 bits per client.
            sizes: samples in each client's mini-batch.
            width: samples after padding.
        """
        while len(self._generators) < len(seeds):
            self._generators.append(Generator(device=self._device))
        for generator, seed in zip(self._generators, seeds, strict=False):
            generator.manual_seed(seed)
        self._sizes, self._width = list(sizes), width

    def draw(self, shape: Sequence[int]) -> Tensor:
        """Uniform numbers of all clients, (b, *shape); ones for padding."""
        result = torch.ones((len(self._sizes), *shape), device=self._device)
        leading = shape[0] if shape else 0
        padded = leading > 0 and leading % self._width == 0
        for row, size in enumerate(self._sizes):
            drawn = result[row, : leading // self._width * size] if padded else result[row]
            drawn.copy_(
                torch.rand(drawn.shape, generator=self._generators[row], device=self._device)
            )
        return result


class _DrawStacked(torch.autograd.Function):
    """Uniform numbers of a shape for each client of :class:`StackedGenerators`, inside ``vmap``."""

    @staticmethod
    def forward(anchor: Tensor, shape: Sequence[int], generators: StackedGenerators) -> Tensor:
        raise RuntimeError("stacked dropout needs torch.func.vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, anchor: Tensor, shape: Sequence[int], generators: StackedGenerators
    ) -> tuple[Tensor, int]:
        return generators.draw(shape), 0


def _dropped(
    inputs: Tensor,
    probability: float,
    generator: Generator | StackedGenerators,
    *,
    whole_channels: bool = False,
) -> Tensor:
    shape = list(inputs.shape)
    if whole_channels:
        shape[2:] = [1] * len(shape[2:])
    draws: Tensor
    if isinstance(generator, StackedGenerators):
        draws = _DrawStacked.apply(generator.anchor, shape, generator)  # type: ignore[no-untyped-call]
    else:
        draws = torch.rand(shape, generator=generator, device=inputs.device)
    keep = (draws >= probability).to(inputs.dtype)
    return inputs * keep / (1 - probability)


class KeyedDropout(TorchFunctionMode):
    """Inside, layers and functions of torch draw from ``generator``: ``dropout``, ``dropout1d``, ``dropout2d``,
    ``dropout3d`` and ``scaled_dot_product_attention``, which torch's layers call."""

    def __init__(self, generator: Generator | StackedGenerators) -> None:
        super().__init__()
        self._generator = generator
        self._keyed: dict[Any, Any] = {
            functional.dropout: partial(self._dropout, False),
            functional.dropout1d: partial(self._dropout, True),
            functional.dropout2d: partial(self._dropout, True),
            functional.dropout3d: partial(self._dropout, True),
            functional.scaled_dot_product_attention: self._attention,
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Execute ``func``, or its replacement that draws from the generator."""
        return self._keyed.get(func, func)(*args, **(kwargs or {}))

    def _dropout(
        self,
        whole_channels: bool,
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        if not training or p == 0:
            return input
        return _dropped(input, p, self._generator, whole_channels=whole_channels)

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """As documented by torch; weights are dropped after the softmax."""
        if dropout_p == 0:
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        if enable_gqa:
            groups = query.shape[-3] // key.shape[-3]
            key, value = (tensor.repeat_interleave(groups, -3) for tensor in (key, value))
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        scores = query @ key.transpose(-2, -1) * scale
        if is_causal:
            attn_mask = torch.ones_like(scores, dtype=torch.bool).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        return _dropped(scores.softmax(-1), dropout_p, self._generator) @ value


def dropout_layers(module: nn.Module) -> list[_DropoutNd]:
    """The layers of the module that drop values in training.

    Raises:
        UserError: one of its layers draws masks that :class:`KeyedDropout` cannot determine.
    """
    layers = list[_DropoutNd]()
    for layer in module.modules():
        recurrent = isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and layer.dropout > 0
        if isinstance(layer, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            layers += [layer] * (layer.p > 0)
        elif isinstance(layer, _DropoutNd) or recurrent:
            raise UserError(
                f"the dropout of {type(layer).__name__} draws from torch's global random generator, so a run is not "
                "reproducible",
                where="task.model",
                hint="use separate nn.Dropout layers",
            )
    return layers
