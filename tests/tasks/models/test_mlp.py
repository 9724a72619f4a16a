"""Logistic regression and the multi-layer perceptron."""

from __future__ import annotations

from tests.tasks.models.shapes import GREY, START, dataset_of
from tests.tasks.toys import task


def test_logistic_regression_can_start_at_zero() -> None:
    problem = task(dataset_of(GREY), "logistic_regression", start="zero")
    assert not problem.initial(START).any()
