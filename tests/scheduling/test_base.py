"""What holds for every selection: draws are a function of the seed."""

from __future__ import annotations

from typing import Any

import pytest

from fedsim.parts.catalog import CATALOG
from fedsim.scheduling.base import Demands
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


@pytest.mark.parametrize(
    ("name", "params", "demands"),
    [
        ("sync", {}, Demands(cohort=1)),
        (
            "sync",
            {"deadline": 60, "over_selection": 1.5, "min_updates": 3, "min_cohort": 4},
            Demands(updates=3, limit_s=60.0, over_selection=1.5, cohort=4),
        ),
        ("async", {"concurrency": 5}, Demands(concurrency=5)),
        ("buffered", {"buffer_size": 7, "timeout": "2min"}, Demands(updates=7, limit_s=120.0)),
    ],
)
def test_demands_of_a_schedule(name: str, params: dict[str, Any], demands: Demands) -> None:
    kind = CATALOG.parts("schedule")[name]
    assert kind.demands(kind.Params(**params)) == demands
