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

SEEDS = range(260)
LEAST = 4
REQUIRED = {
    "aggregation_time",
    "battery",
    "cut after its steps",
    "disconnect drop",
    "disconnect finish",
    "disconnect never offline",
    "disconnect pause",
    "disconnect send_partial",
    "failure crash_rate",
    "foresight",
    "no foresight",
    "failure upload_loss",
    "failure_detection",
    "failure_detection never",
    "local_epochs",
    "min_updates 0",
    "min_updates 1",
    "min_updates 2",
    "network shared",
    "network static",
    "network traced",
    "next_client same",
    "next_client selection",
    "no latency",
    "outcome aggregated",
    "outcome cut",
    "outcome discarded",
    "outcome dropped",
    "outcome late",
    "partial_unit epoch",
    "partial_work send",
    "perturbations",
    "schedule async",
    "schedule async max_staleness",
    "schedule async timeout",
    "schedule buffered",
    "schedule buffered max_staleness",
    "schedule buffered timeout",
    "schedule compass",
    "schedule compass timeout",
    "schedule sync",
    "schedule sync deadline",
    "schedule sync over_selection",
    "schedule tiered",
    "schedule tiered timeout",
    "schedule window",
    "schedule window deadline",
    "schedule window length",
    "selection cyclic",
    "selection round_robin",
    "stop arrivals",
    "stop dispatches",
    "stop rounds",
    "stop simulated_time",
    "stragglers cut",
    "stragglers run",
    "tie arrival and arrival",
    "tie arrival and deadline",
    "tie arrival and end of interval",
    "tie arrival and hand-out",
    "tie hand-out and check-in",
    "time_budget",
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
