"""What holds for every selection: draws are a function of the seed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduling.drawing import by_round, draws

RANDOM: list[dict[str, Any]] = [
    {"name": "uniform", "cohort": 3},
    {"name": "uniform_with_replacement", "cohort": 3},
    {"name": "sample_weighted", "cohort": 3},
    {"name": "bernoulli", "probability": 0.3},
    {"name": "reshuffled_cyclic", "cohort": 3},
    {"name": "periodic_groups", "cohort": 2, "groups": 3, "slot_rounds": 3},
    {"name": "tifl", "cohort": 3, "tiers": 3},
    {"name": "refl", "cohort": 3},
]


@pytest.mark.parametrize("selection", RANDOM, ids=lambda selection: str(selection["name"]))
def test_draws_depend_on_the_seed_alone(selection: dict[str, Any]) -> None:
    runs = [
        by_round(draws(dict(selection), clients=15, rounds=12, seed=seed)) for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
