"""The counter-based hash of :mod:`fedsim.randomness` on tensors, for random numbers on the compute device."""

from __future__ import annotations

from torch import Tensor

from fedsim.randomness import GOLDEN, MIX_1, MIX_2


def signed(value: int) -> int:
    """The int64 with the bits of an unsigned 64-bit ``value``."""
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN, _MIX_1, _MIX_2 = signed(GOLDEN), signed(MIX_1), signed(MIX_2)


def shift(values: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 bits."""
    return (values >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def mix(values: Tensor) -> Tensor:
    """:func:`fedsim.randomness.mix64` on the bits of an int64 tensor."""
    values = (values ^ shift(values, 30)).mul_(_MIX_1)
    values = (values ^ shift(values, 27)).mul_(_MIX_2)
    return values ^ shift(values, 31)


def fold(keys: Tensor, counters: Tensor) -> Tensor:
    """Keys of the streams that ``counters`` (broadcast) select, derived as in :class:`fedsim.randomness.Stream`."""
    return mix((counters + 1).mul_(_GOLDEN) + keys)
