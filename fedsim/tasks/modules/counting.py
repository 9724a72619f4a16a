"""Operations and activations of a module's training step, counted on a few samples."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from fedsim.tasks.losses import Loss


def count_flops(
    module: nn.Module,
    loss: Loss,
    inputs: Tensor,
    labels: Tensor,
    frozen: Collection[str] = (),
) -> int:
    """Operations of a forward and backward pass per sample: matrix products, convolutions and attention only.

    Parameters that are ``frozen`` save their gradients.
    """
    counter = FlopCounter()
    # A copy, because a module may keep tensors of its last call.
    module = copy.deepcopy(module).eval()
    for name, parameter in module.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    parameters = [value for value in module.parameters() if value.requires_grad]
    # The counter has no formula for fused attention on a CPU.
    with counter, sdpa_kernel(SDPBackend.MATH):
        outputs = module(inputs)
        total_loss = loss.per_sample(outputs, labels).sum()
        torch.autograd.grad(total_loss, parameters, allow_unused=True)
    return counter.total // inputs.shape[0]


def count_activations(module: nn.Module, loss: Loss, inputs: Tensor, labels: Tensor) -> int:
    """Number of values per sample that torch keeps for the backward pass, without parameters."""
    module = copy.deepcopy(module).eval()
    parameters = {value.untyped_storage().data_ptr() for value in module.parameters()}
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        # Layers may keep views of the same tensor, such as an output and the next input; it is counted once.
        storage = tensor.untyped_storage().data_ptr()
        if storage not in parameters:
            sizes.setdefault(storage, tensor.numel())
        # Detached, because a node that keeps its own output forms a cycle that is never collected.
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss.per_sample(module(inputs), labels).sum()
    return sum(sizes.values()) // len(inputs)


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations executed inside it, by torch's formulas.

    These are matrix products, convolutions and attention, forward and backward. The count is that of
    ``torch.utils.flop_counter.FlopCounterMode``, whose first use takes seconds because it imports the compiler.

    Attributes:
        total: operations so far (a multiply-add is two).
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total: int = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap __torch_dispatch__ in code that imports the compiler.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Execute and count ``func``, decomposed if possible."""
        kwargs = kwargs or {}
        with self:
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        result = func(*args, **kwargs)
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=result)
        return result
