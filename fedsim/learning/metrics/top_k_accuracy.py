"""Top-k accuracy."""

from __future__ import annotations

from pydantic import Field

from fedsim.errors import UserError
from fedsim.learning.metrics.base import Metric, Predictions
from fedsim.parts.component import Parameters


class TopKAccuracyParams(Parameters):
    """Parameters of top-k accuracy."""

    k: int = Field(default=5, ge=1)
    """Number of classes that count as predicted: those with the largest outputs."""


class TopKAccuracy(Metric):
    """Share of the test samples whose label is among the k classes with the largest outputs.

    The column is ``top_5_accuracy`` for k = 5. With fewer than k classes every prediction is right.
    """

    name = "top_k_accuracy"
    target_kind = "class"
    unit = "share"
    Params = TopKAccuracyParams
    params: TopKAccuracyParams

    @property
    def column(self) -> str:
        """``top_<k>_accuracy``."""
        return f"top_{self.params.k}_accuracy"

    def compute(self, predictions: Predictions) -> float:
        """Share of the labels among the k largest outputs."""
        outputs, labels = predictions.outputs, predictions.labels
        assert outputs is not None
        assert labels is not None
        if outputs.shape[1] < 2:
            raise UserError(
                f"{self.column} needs a model with one output per class",
                where="evaluation.metrics",
                hint="leave it out, or use a model for several classes",
            )
        best = outputs.topk(min(self.params.k, outputs.shape[1]), dim=1).indices
        return float((best == labels.unsqueeze(1)).any(1).double().mean())
