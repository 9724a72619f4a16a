"""Floating-point operations of what torch executes, counted without importing its compiler."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the operations of everything that is executed inside it, by torch's own formulas.

    These are matrix products, convolutions and attention, forward and backward. The count is that of
    ``torch.utils.flop_counter.FlopCounterMode``, whose first use takes seconds, for it imports the compiler.

    Attributes:
        total: operations so far (a multiply-add is two).
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap __torch_dispatch__ in what imports the compiler.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Execute ``func``, in its parts where it has any, and count it."""
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
