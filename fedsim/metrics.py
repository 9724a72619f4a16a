"""What the metrics of a run mean: their direction and unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["share", "number"]


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """The meaning of a metric.

    Attributes:
        name: column of the ``metrics`` table.
        higher_is_better: whether larger values are better.
        unit: ``share`` for values from 0 to 1, ``number`` for all others.
        label: for axes and headings.
    """

    name: str
    higher_is_better: bool
    unit: Unit
    label: str
