"""fedsim against a second simulator, written from the documentation alone, on random small scenarios.

``python -m benchmarks.brute_force`` does the same with thousands, and shrinks what disagrees.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.oracle.cases import features, random_case, ties
from tests.oracle.compare import differences
from tests.oracle.server import Simulation

SEEDS = range(SEEDS_END)
LEAST = 5
REQUIRED = {
REQUIRED_HERE
}
"""What must occur in at least :data:`LEAST` of the scenarios."""


@pytest.mark.parametrize("seed", SEEDS)
def test_fedsim_and_the_brute_force_simulator_agree(seed: int, tmp_path: Path) -> None:
    assert differences(random_case(seed), tmp_path) == []


def test_the_scenarios_cover_the_rules() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        case = random_case(seed)
        simulation = Simulation(case["scenario"], case["tables"])
        simulation.run()
        rows = simulation.rows()
        counts.update(features(case) | ties(case, rows))
        counts.update({f"outcome {row['outcome']}" for row in rows})
    assert {name: counts[name] for name in REQUIRED if counts[name] < LEAST} == {}
