"""Mean absolute error."""

from __future__ import annotations

from fedsim.learning.metrics.base import Metric, Predictions


class MeanAbsoluteError(Metric):
    """Mean over the test samples of |prediction - target|; always measured in regressions."""

    name = "mae"
    target_kind = "quantity"

    def compute(self, predictions: Predictions) -> float:
        """The mean, in float64."""
        predicted, target = predictions.quantities()
        return float((predicted - target).abs().mean())
