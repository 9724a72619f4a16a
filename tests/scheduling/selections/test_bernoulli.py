"""Independent participation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.scheduling.selections.bernoulli import Bernoulli, BernoulliParams
from tests.scheduling.drawing import Port, draws


def _bernoulli(clients: int, **params: Any) -> Bernoulli:
    return Bernoulli(BernoulliParams(**params), Port(clients))  # type: ignore[arg-type]


def test_the_probabilities_of_fedsums_patterns() -> None:
    """Section 4.1 of its card: P2, the sine of P3, and the biased pattern of appendix H.8."""
    assert _bernoulli(100).probabilities(7) == pytest.approx([0.2] * 100)
    sine = _bernoulli(100, sine={})
    swing = [sine.probabilities(t)[0] for t in range(10)]
    printed = [0.14, 0.1753, 0.1971, 0.1971, 0.1753, 0.14, 0.1047, 0.0829, 0.0829, 0.1047]
    assert swing == pytest.approx(printed, abs=5.1e-5)
    biased = _bernoulli(
        100, probability=[0.5 - 0.05 * group for group in range(10)], group_size=11
    ).probabilities(0)
    assert biased[:12].tolist() == [0.5] * 11 + [0.45]
    assert biased[99] == pytest.approx(0.05)
    assert biased.sum() == pytest.approx(29.75)


def test_rounds_without_anybody_are_passed_over_unless_they_are_to_count() -> None:
    selection = {"name": "bernoulli", "probability": 0.05}
    book = draws(selection, clients=4, rounds=100)
    assert len(book.aggregates) == 100
    assert all(aggregate.contributions for aggregate in book.aggregates)


def test_coins_do_not_depend_on_who_else_is_there() -> None:
    """The coin of (client, round) is the same in every world: here with and without other clients."""
    many, few = _bernoulli(40, allow_empty=True), _bernoulli(40, allow_empty=True)
    few.server.idle = np.arange(10)  # type: ignore[attr-defined]
    for _ in range(50):
        assert [client for client in many.cohort() if client < 10] == few.cohort()


def test_wrong_probabilities_are_refused() -> None:
    with pytest.raises(UserError, match="3 probabilities for 4 clients"):
        _bernoulli(4, probability=[0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="less than or equal to 1"):
        BernoulliParams(probability=1.2)
    with pytest.raises(ValueError, match="all probabilities are 0"):
        BernoulliParams(probability=[0.0, 0.0])
