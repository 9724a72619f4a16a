"""Accuracy."""

from __future__ import annotations

from fedsim.learning.metrics.base import Metric, Predictions


class Accuracy(Metric):
    """Share of the test samples whose label is predicted."""

    name = "accuracy"
    target_kind = "class"
    needs_outputs = False

    def compute(self, predictions: Predictions) -> float:
        """Diagonal of the confusion matrix over its sum."""
        return float(predictions.confusion.diagonal().sum() / predictions.confusion.sum())
