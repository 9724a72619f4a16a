"""Mean loss."""

from __future__ import annotations

from fedsim.learning.metrics.base import Metric, Predictions


class Loss(Metric):
    """Mean loss per test sample, without penalty."""

    name = "loss"
    needs_outputs = False

    def compute(self, predictions: Predictions) -> float:
        """The mean loss."""
        return predictions.loss
