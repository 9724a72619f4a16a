"""Accuracy of one class."""

from __future__ import annotations

from pydantic import Field

from fedsim.learning.metrics.base import Metric, Predictions
from fedsim.parts.component import Parameters
from fedsim.vocabulary.metrics import OF_CLASS


class ClassAccuracyParams(Parameters):
    """Parameters of the accuracy of a class."""

    label: int = Field(default=0, ge=0)
    """Number of the class."""


class ClassAccuracy(Metric):
    """Share of the test samples of one class that the model assigns to it (recall).

    ``evaluation.by_class: true`` measures it for every class.
    """

    name = "class_accuracy"
    target_kind = "class"
    unit = "share"
    needs_outputs = False
    Params = ClassAccuracyParams
    params: ClassAccuracyParams

    @property
    def column(self) -> str:
        """``class_accuracy_<label>``."""
        return f"{OF_CLASS}{self.params.label}"

    def compute(self, predictions: Predictions) -> float:
        """Recall of the class; not a number if it does not occur."""
        row = predictions.confusion[self.params.label]
        return float(row[self.params.label] / row.sum()) if row.sum() else float("nan")
