"""Check that training changes no tensor outside the model's vector, which would pass from one client to the next."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fedsim.errors import UserError


class Constants:
    """The buffers and frozen parameters of a module that are not part of the vector that clients send."""

    def __init__(self, module: nn.Module, sent: Collection[str], model: str) -> None:
        self._model = model
        # By identity, because tied parameters have several names.
        named = [*module.named_parameters(), *module.named_buffers()]
        vector = {id(value) for name, value in named if name in sent}
        self._tensors: list[tuple[str, dict[str, Tensor], str, Tensor, int, Tensor]] = []
        for prefix, layer in module.named_modules():
            for tensors in (layer._buffers, layer._parameters):
                for key, value in tensors.items():
                    # Batch normalization counts its steps, and uses the number only without a momentum.
                    counter = isinstance(layer, _NormBase) and key == "num_batches_tracked"
                    unused = counter and layer.momentum is not None
                    if value is not None and id(value) not in vector and not unused:
                        name = f"{prefix}.{key}".lstrip(".")
                        entry = (name, tensors, key, value, value._version, value.detach().clone())
                        self._tensors.append(entry)

    def check(self) -> None:
        """Check that the tensors have their original values; costs nothing unless they were written to."""
        for name, tensors, key, value, version, before in self._tensors:
            now = tensors[key]
            if now is value and now._version == version:
                continue
            if now is not None and now.shape == before.shape and not torch.equal(now, before):
                raise UserError(
                    f"'{name}' of model {self._model} changes during the run, but is not part of what clients send: "
                    "its changes would pass from one client to the next",
                    where="task.model",
                    hint="make it a floating-point buffer with persistent=True that the first training step changes; "
                    "give batch normalization a momentum, such as momentum=0.1",
                )
