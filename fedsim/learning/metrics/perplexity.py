"""Perplexity."""

from __future__ import annotations

import numpy as np

from fedsim.learning.metrics.base import Metric, Predictions


class Perplexity(Metric):
    """exp(mean loss); always measured in next-character tasks."""

    name = "perplexity"
    needs_outputs = False

    def compute(self, predictions: Predictions) -> float:
        """exp(mean loss)."""
        return float(np.exp(predictions.loss))
