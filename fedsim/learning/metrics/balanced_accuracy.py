"""Balanced accuracy."""

from __future__ import annotations

from fedsim.learning.metrics.base import Metric, Predictions


class BalancedAccuracy(Metric):
    """Mean recall over the classes that occur in the test set."""

    name = "balanced_accuracy"
    target_kind = "class"
    needs_outputs = False

    def compute(self, predictions: Predictions) -> float:
        """Mean recall of the classes."""
        actual = predictions.confusion.sum(1)
        occurs = actual > 0
        return float((predictions.confusion.diagonal()[occurs] / actual[occurs]).mean())
