"""fedsim against a second simulator, written from the documentation alone, on thousands of random small scenarios.

``python -m benchmarks.brute_force --cases 5000 --seed 0`` prints how many scenarios exercise each feature, and for
every disagreement the smallest scenario that still shows it, found by removing one key after another. As many random
hierarchies, with edge servers and clients that move between them, are compared with a third simulator.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.oracle.cases import features, random_case, ties
from tests.oracle.compare import differences
from tests.oracle.edges import random_case as random_hierarchy
from tests.oracle.server import Simulation
from tests.simulation.test_edges import differences as hierarchy_differences

OPTIONAL = (
    ("devices", "failures"),
    ("devices", "energy"),
    ("devices", "compute", "perturbations"),
    ("devices", "network", "server_up"),
    ("devices", "network", "server_down"),
    ("devices", "availability", "on_disconnect"),
    ("server", "aggregation_time"),
    ("server", "failure_detection"),
    ("server", "compression"),
    ("server", "partial_work"),
    ("server", "partial_unit"),
    ("server", "selection", "cohort"),
    ("server", "schedule", "deadline"),
    ("server", "schedule", "timeout"),
    ("server", "schedule", "over_selection"),
    ("server", "schedule", "max_staleness"),
    ("server", "schedule", "pause"),
    ("stop", "rounds"),
    ("stop", "dispatches"),
    ("stop", "arrivals"),
)
"""The paths that a scenario may leave out."""


def main() -> int:
    """Compare, and print the findings; the exit code is 1 if anything disagrees."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=5000, help="number of scenarios")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first scenario")
    parser.add_argument("--shrink", type=int, default=5, help="disagreements to shrink and print")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    found: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seed, arguments.seed + arguments.cases):
            case = random_case(seed)
            names = exercised(case)
            counts.update(names)
            if differences(case, Path(folder)):
                wrong.update(names)
                found.append(seed)
        print(f"{'exercised':40} {'cases':>7} {'disagree':>9}")
        for name, count in sorted(counts.items()):
            print(f"{name:40} {count:7} {wrong[name]:9}")
        print(f"{'all':40} {arguments.cases:7} {len(found):9}")
        for seed in found[: arguments.shrink]:
            case = shrink(random_case(seed), Path(folder))
            print(f"\nseed {seed}, shrunk:\n{json.dumps(case)}")
            print("\n".join(differences(case, Path(folder))[:5]))
    seeds = range(arguments.seed, arguments.seed + arguments.cases)
    apart = {
        seed: rows for seed in seeds if (rows := hierarchy_differences(random_hierarchy(seed)))
    }
    moving = sum(bool(random_hierarchy(seed)["moves"]) for seed in seeds)
    print(f"{'edge servers':40} {arguments.cases:7} {len(apart):9}")
    print(f"{'edge servers, clients that move':40} {moving:7}")
    for seed, lines in list(apart.items())[: arguments.shrink]:
        print(f"\nseed {seed}: {lines[0]}")
    return bool(found or apart)


def exercised(case: dict[str, Any]) -> set[str]:
    """The features that a case exercises, and the ties that occur in it."""
    simulation = Simulation(case["scenario"], case["tables"])
    simulation.run()
    return features(case) | ties(case, simulation.rows())


def shrink(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The case without everything that is not needed for the disagreement."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _simpler(case):
            try:
                still = differences(candidate, folder)
            except (KeyError, ValueError, AssertionError, RecursionError):
                continue  # the simulator needs what was removed
            if still and not still[0].startswith("fedsim: UserError"):
                case, smaller = candidate, True
                break
    return case


def _simpler(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in OPTIONAL:
        candidate = copy.deepcopy(case)
        section = candidate["scenario"]
        for key in path[:-1]:
            section = section[key]
        if section.pop(path[-1], None) is not None:
            yield candidate
    if case["scenario"]["task"]["clients"] > 1:
        candidate = copy.deepcopy(case)
        clients = candidate["scenario"]["task"]["clients"] - 1
        candidate["scenario"]["task"]["clients"] = clients
        steps = candidate["scenario"]["devices"]["compute"]
        steps["step"] = steps["step"][:clients]
        for name in ("devices", "network"):
            if candidate["tables"].get(name):
                candidate["tables"][name] = candidate["tables"][name][:clients]
        for name in ("availability", "network_assign"):
            if candidate["tables"].get(name):
                rows = candidate["tables"][name]
                candidate["tables"][name] = [row for row in rows if row[0] < clients]
        yield candidate
    candidate = copy.deepcopy(case)
    stop = candidate["scenario"]["stop"]
    stop["simulated_time"] = stop["simulated_time"] * 0.75
    if stop["simulated_time"] > 1:
        yield candidate


if __name__ == "__main__":
    raise SystemExit(main())
