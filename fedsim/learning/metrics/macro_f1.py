"""Macro F1 score."""

from __future__ import annotations

from fedsim.learning.metrics.base import Metric, Predictions


class MacroF1(Metric):
    """Mean over the classes that occur in the test set of 2 TP / (2 TP + FP + FN)."""

    name = "macro_f1"
    target_kind = "class"
    needs_outputs = False

    def compute(self, predictions: Predictions) -> float:
        """Mean F1 score of the classes."""
        confusion = predictions.confusion
        actual, predicted = confusion.sum(1), confusion.sum(0)
        occurs = actual > 0
        return float((2 * confusion.diagonal()[occurs] / (actual + predicted)[occurs]).mean())
