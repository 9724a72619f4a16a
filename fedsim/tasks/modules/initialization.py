"""Initial parameters of a module, drawn from a single generator."""

from __future__ import annotations

import math

from torch import Generator, nn
from torch.nn import init


def initialize(module: nn.Module, generator: Generator) -> None:
    """Redraw all parameters by torch's standard rule of each layer, from ``generator`` alone.

    A module may have a method ``draw(generator)`` for its own parameters.

    Raises:
        TypeError: there is no rule for a layer with parameters.
    """
    for layer in module.modules():
        parameters = dict(layer.named_parameters(recurse=False))
        if hasattr(layer, "draw"):
            layer.draw(generator)  # type: ignore[operator]
        elif isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
            init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
            if layer.bias is not None:
                bound = 1 / math.sqrt(layer.weight[0].numel())
                init.uniform_(layer.bias, -bound, bound, generator=generator)
        elif isinstance(layer, nn.Embedding):
            init.normal_(layer.weight, generator=generator)
        elif isinstance(layer, nn.GroupNorm | nn.LayerNorm | nn.BatchNorm1d | nn.BatchNorm2d):
            state = {**parameters, **dict(layer.named_buffers(recurse=False))}
            for name, value in state.items():
                value.fill_(1.0 if name in ("weight", "running_var") else 0.0)
        elif parameters:
            raise TypeError(f"no rule to initialize {type(layer).__name__}")


def initialize_for_relu(module: nn.Module, generator: Generator) -> None:
    """As :func:`initialize`, but with He's initialization (2015) in all linear and convolutional layers but the last.

    Their weights are normal with variance 2 / (inputs of a unit) and their biases zero. A network of several such
    layers learns immediately; with torch's standard rule it can stay on a plateau for hundreds of steps.
    """
    initialize(module, generator)
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    for layer in layers[:-1]:
        init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
        if layer.bias is not None:
            init.zeros_(layer.bias)
