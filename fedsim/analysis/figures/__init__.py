"""The figures of the report page: the numbers behind each, what they say, and how to read them."""

from fedsim.analysis.figures.base import Column, Figure

__all__ = ["Column", "Figure"]
