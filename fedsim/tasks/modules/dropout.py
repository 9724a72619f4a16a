"""Dropout whose masks are a pure function of a seed, not of whatever ran before."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from fedsim.errors import UserError

_WHOLE_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class KeyedDropout(nn.Module):
    """Dropout that draws its masks from its own generator; identity in evaluation mode.

    Attributes:
        probability: with which a value (or a whole channel) is dropped; the others are scaled by
            1 / (1 - probability).
        whole_channels: drop all of (sample, channel, ...) together.
        generator: source of the masks; set by :func:`seed_dropout` before each training step.
    """

    def __init__(self, probability: float, whole_channels: bool = False) -> None:
        super().__init__()
        self.probability = probability
        self.whole_channels = whole_channels
        self.generator: Generator | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs with some of them dropped."""
        if not self.training or self.probability == 0:
            return inputs
        if self.generator is None:
            raise RuntimeError("seed_dropout must be called before a training step")
        shape = list(inputs.shape)
        if self.whole_channels:
            shape[2:] = [1] * len(shape[2:])
        draws = torch.rand(shape, generator=self.generator, device=inputs.device)
        keep = (draws >= self.probability).to(inputs.dtype)
        return inputs * keep / (1 - self.probability)


def has_dropout(module: nn.Module) -> bool:
    """Whether training the module needs random masks."""
    return any(
        isinstance(layer, KeyedDropout) and layer.probability > 0 for layer in module.modules()
    )


def seed_dropout(module: nn.Module, seed: int, device: torch.device | str = "cpu") -> None:
    """Make the masks of the next forward pass a function of ``seed`` (63 bits) alone.

    All dropout layers of ``module`` draw from one generator, in the order in which they are used.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, KeyedDropout)]
    if not layers:
        return
    generator = layers[0].generator
    if generator is None or generator.device != torch.device(device):
        generator = Generator(device=device)
    generator.manual_seed(seed)
    for layer in layers:
        layer.generator = generator


def key_dropout(module: nn.Module) -> nn.Module:
    """The module with torch's dropout layers replaced by keyed ones.

    Raises:
        UserError: a layer drops values in a way that cannot be repeated.
    """
    if isinstance(module, _DropoutNd):
        return _keyed(module)
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, _DropoutNd):
                setattr(parent, name, _keyed(layer))
            elif isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and layer.dropout > 0:
                raise _unrepeatable(f"{type(layer).__name__}(dropout={layer.dropout})")
    return module


def _keyed(layer: _DropoutNd) -> KeyedDropout:
    if isinstance(layer, nn.Dropout):
        return KeyedDropout(layer.p)
    if isinstance(layer, _WHOLE_CHANNELS):
        return KeyedDropout(layer.p, whole_channels=True)
    raise _unrepeatable(type(layer).__name__)


def _unrepeatable(what: str) -> UserError:
    return UserError(
        f"{what} draws from torch's global random generator, so a run could not be repeated",
        where="task.model",
        hint="use separate nn.Dropout layers",
    )
