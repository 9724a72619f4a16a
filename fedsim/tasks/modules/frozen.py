"""Parameters that a module keeps from being trained (``requires_grad_(False)``)."""

from __future__ import annotations

from torch import nn


def hold_frozen(module: nn.Module) -> bool:
    """Turn the module's frozen parameters into buffers of the same name; whether there were any.

    They then lie behind the trainable part of the flat vector, like everything without a gradient, and stay constant.
    """
    any_frozen = False
    for layer in module.modules():
        for name, parameter in list(layer._parameters.items()):
            if parameter is not None and not parameter.requires_grad:
                del layer._parameters[name]
                # The object itself: recurrent layers keep references to their parameters.
                layer.register_buffer(name, parameter)
                any_frozen = True
    return any_frozen
