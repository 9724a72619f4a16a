"""fedsim against a second simulator, written from the documentation alone, on random small scenarios.

``python -m benchmarks.brute_force`` does the same with thousands, and shrinks what disagrees.
"""

import functools
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fedsim.network.fair import fill_level
from tests.oracle.cases import features, random_case, ties
from tests.oracle.compare import brute_force, differences, differences_from, product

SEEDS = [*range(190), 4043, 4502, 5476]
"""The last three are rare ties: tiers, and a window, whose clients finish recharging at one instant, and a last update
that arrives when the length of its window has passed.
"""
LEAST = 4
SHARED_SEED = 987
"""A long run on links that are shared most of the time."""
REQUIRED = """
aggregation_time, battery, cause battery, cause crash, cause declined, cause lost upload, cause offline, cut after its
steps, disconnect drop, disconnect finish, disconnect never offline, disconnect pause, disconnect send_partial,
failure crash_rate, foresight, no foresight, failure upload_loss, failure_detection, failure_detection never,
local_epochs, min_updates 0, min_updates 1, min_updates 2, network shared, network static, network traced, next_client
same, next_client selection, no latency, outcome aggregated, outcome cut, outcome discarded, outcome dropped, outcome
late, partial_unit epoch, partial_work send, perturbations, schedule async, schedule async max_staleness, schedule
async timeout, schedule buffered, schedule buffered max_staleness, schedule buffered timeout, schedule compass,
schedule compass timeout, schedule sync, schedule sync deadline, schedule sync over_selection, schedule tiered,
schedule tiered timeout, schedule window, schedule window deadline, schedule window length, selection cyclic,
selection round_robin, stop arrivals, stop dispatches, stop rounds, stop simulated_time, stragglers cut, stragglers
run, tie arrival and arrival, tie arrival and deadline, tie arrival and end of interval, tie arrival and hand-out, tie
hand-out and check-in, time_budget
"""
"""What must occur in at least :data:`LEAST` of the scenarios."""


@functools.cache
def outcome(seed: int) -> tuple[list[str], frozenset[str]]:
    """The differences of both simulators in a scenario, and which of the rules occur in it."""
    case = random_case(seed)
    with tempfile.TemporaryDirectory() as folder:
        rows, versions = product(case, Path(folder))
    simulation = brute_force(case, rows)
    expected = simulation.rows()
    names = features(case) | ties(case, expected)
    names |= {f"outcome {row['outcome']}" for row in expected}
    names |= {f"cause {row['cause']}" for row in expected}
    return differences_from(simulation, rows, versions), frozenset(names)


@pytest.mark.parametrize("seed", SEEDS)
def test_fedsim_and_the_brute_force_simulator_agree(seed: int) -> None:
    assert outcome(seed)[0] == []


@pytest.fixture(scope="module")
def shared_links(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Any, Any]:
    """A scenario on shared links, and its dispatches and versions, in which both simulators agree."""
    case = random_case(SHARED_SEED)
    assert "network shared" in features(case)
    rows, versions = product(case, tmp_path_factory.mktemp("shared"))
    assert differences_from(brute_force(case, rows), rows, versions) == []
    return case, rows, versions


@pytest.mark.parametrize("column", ["downloaded", "arrived"])
@pytest.mark.parametrize("error_ns", [-2, 2, 1000])
def test_an_error_of_nanoseconds_on_shared_links_is_found(
    column: str, error_ns: int, shared_links: tuple[dict[str, Any], Any, Any]
) -> None:
    """The oracle adopts how the end of a transfer is rounded, but not without what follows from it."""
    case, rows, versions = shared_links
    faulty = [dict(row) for row in rows]
    next(row for row in faulty if row["arrived"] is not None)[column] += error_ns
    assert differences_from(brute_force(case, faulty), faulty, versions) != []


@pytest.mark.parametrize("factor", [1 + 1e-8, 1.01])
def test_a_wrong_rate_on_shared_links_is_found(
    factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A level 1e-8 too high makes a transfer of a second end 10 ns early."""
    monkeypatch.setattr(
        "fedsim.network.fair.fill_level", lambda *arguments: factor * fill_level(*arguments)
    )
    assert differences(random_case(SHARED_SEED), tmp_path) != []


def test_the_scenarios_cover_the_rules() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        counts.update(outcome(seed)[1])
    assert {
        name: counts[name]
        for name in REQUIRED.replace("\n", " ").strip().split(", ")
        if counts[name] < LEAST
    } == {}
