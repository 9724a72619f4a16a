"""The figures of the report page: columns of numbers, and a sentence about each."""

from fedsim.analysis.figures.base import Column, Figure

__all__ = ["Column", "Figure"]
