"""Mean squared error."""

from __future__ import annotations

from fedsim.learning.metrics.base import Metric, Predictions


class MeanSquaredError(Metric):
    """Mean over the test samples of (prediction - target)^2, the loss of a regression."""

    name = "mse"
    target_kind = "quantity"
    needs_outputs = False

    def compute(self, predictions: Predictions) -> float:
        """The mean loss."""
        return predictions.loss
