"""Signs of entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fedsim.learning.compression.base import Draws, FeedbackParams, WithFeedback

if TYPE_CHECKING:
    from torch import Tensor


class SignParams(FeedbackParams):
    """Parameters of signs."""

    magnitude: float | None = Field(default=None, gt=0)
    """Magnitude of every entry at the receiver, as in signSGD, where the step size plays this role; by default the mean
    magnitude of the vector's entries, which is sent with the signs."""


class SignSgd(WithFeedback):
    """The sign of every entry, times one magnitude (signSGD; with error feedback and the mean magnitude, EF-signSGD).

    With the mean magnitude it is a contraction by 1 - ||x||_1^2 / (d ||x||_2^2). Biased. The sign of zero is positive.
    """

    name = "signsgd"
    Params = SignParams

    def bits(self, elements: int, entry_bits: float) -> float:
        """A bit per entry, and a number unless the magnitude is given."""
        return elements + (entry_bits if self.params.magnitude is None else 0)

    def compress(self, rows: Tensor, draws: Draws) -> Tensor:
        """The signs times the magnitude."""
        import torch

        magnitudes, given = rows.abs(), self.params.magnitude
        means = magnitudes.mean(1, keepdim=True)
        if given is not None:
            means.fill_(given)
        return torch.copysign(means, rows, out=magnitudes)
