"""Training losses of the dispatches of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedsim.errors import UserError

_FIRST_LENGTH = 1024


class LossLedger:
    """The training loss of every dispatch that was trained, by its number.

    Attributes:
        values: losses, NaN if unknown; a loss that is NaN itself is recorded as infinite.
    """

    def __init__(self) -> None:
        self.values = np.full(_FIRST_LENGTH, np.nan)

    def note(self, dispatch_id: int, loss: float) -> None:
        """Record the loss of a dispatch."""
        if dispatch_id >= len(self.values):
            longer = np.full(2 * dispatch_id, np.nan)
            longer[: len(self.values)] = self.values
            self.values = longer
        self.values[dispatch_id] = math.inf if math.isnan(loss) else loss

    def unknown(self, dispatch_ids: Sequence[int]) -> list[int]:
        """The dispatches whose loss is not known."""
        known = len(self.values)
        return [
            number for number in dispatch_ids if number >= known or math.isnan(self.values[number])
        ]

    def finite(self, dispatch_ids: Sequence[int]) -> npt.NDArray[np.float64]:
        """The losses of these dispatches, which must be known.

        Raises:
            UserError: one is not finite.
        """
        losses: npt.NDArray[np.float64] = self.values[np.asarray(dispatch_ids, dtype=np.int64)]
        diverged = np.flatnonzero(~np.isfinite(losses))
        if len(diverged):
            raise UserError(
                f"local training has diverged: the loss of dispatch {dispatch_ids[diverged[0]]} is not finite, and "
                "clients are selected by it",
                where="training.optimizer.lr",
                hint="use a smaller learning rate, or clip_norm",
            )
        return losses
