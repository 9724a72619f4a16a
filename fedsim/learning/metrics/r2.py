"""Coefficient of determination."""

from __future__ import annotations

import math

from fedsim.learning.metrics.base import Metric, Predictions
from fedsim.vocabulary.numbers import varies


class R2(Metric):
    """1 - sum of (prediction - target)^2 / sum of (target - mean target)^2 over the test samples.

    1 is a perfect prediction, and 0 is as good as the mean; always measured in regressions. If all targets are equal,
    it is 1 for a perfect prediction and 0 for any other, as in scikit-learn.
    """

    name = "r2"
    target_kind = "quantity"

    def compute(self, predictions: Predictions) -> float:
        """The coefficient, in float64."""
        predicted, target = predictions.quantities()
        residual = float((predicted - target).square().sum())
        total, count = float((target - target.mean()).square().sum()), len(target)
        if varies(math.sqrt(total / count), float(target.mean()), count):
            return 1 - residual / total
        return float(residual == 0)
