"""Published cases of SimGrid as scenarios: flows between arbitrary nodes, and when they arrive.

The figures are those of SimGrid's own tests of its fluid models, without factors on bandwidth or latency, weights by
round-trip time, or cross-traffic: ``teshsuite/models/cm02-set-lat-bw``, ``cm02-tcpgamma`` and ``ptask_L07``.
"""

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.errors import UserError

# Rates there are in bytes per second.
EDGES = """
server hub 1Gbps 1s
# cm02-set-lat-bw: a dog bone whose bar has 1 kB/s
S1 R1 8Gbps 0s
S2 R1 8Gbps 0s
R1 R2 8kbps 0s
R2 C1 8Gbps 0s
R2 C2 8Gbps 0s
hub R1 1Gbps 100s
# cm02-tcpgamma: one link of 10 GB/s and 1 ms
host1 host2 80Gbps 1ms
hub host1 1Gbps 100s
# ptask_L07: a link of 1 B/s and 500 ms, and a route of three links of 500 ms, 1 s and 500 ms
a b 8bps 500ms
hub a 1Gbps 100s
c c1 8bps 500ms
c1 c2 8bps 1s
c2 d 8bps 500ms
hub c 1Gbps 100s
"""


def arrivals(flows: list[dict[str, Any]], folder: Path) -> list[float | None]:
    """When each flow has arrived; a client that does nothing for the network is there as well."""
    (folder / "simgrid.edges").write_text(EDGES)
    scenario = {
        "name": "simgrid",
        "task": {"name": "timing", "clients": 1, "parameters": 1},
        "training": {"local_steps": 1},
        "devices": {
            "compute": {"name": "values", "step": "1000s"},
            "network": {
                "name": "shared",
                "down": "1Gbps",
                "up": "1Gbps",
                "topology": {
                    "name": "file",
                    "path": str(folder / "simgrid.edges"),
                    "access": ["hub"],
                },
                "flows": flows,
            },
        },
        "stop": {"simulated_time": "100s"},
    }
    run = fedsim.run(scenario, folder / "run", overwrite=True)
    assert [flow["start_s"] for flow in run.info["flows"]] == [flow.get("at", 0) for flow in flows]
    return [flow["arrived_s"] for flow in run.info["flows"]]


def test_published_cases(tmp_path: Path) -> None:
    a_b = {"source": "a", "target": "b", "size": 1}
    c_d = {"source": "c", "target": "d", "size": 1}
    fast = {"source": "host1", "target": "host2", "size": 10_000_000_000}
    dog_bone = [
        {"source": "S1", "target": "C1", "size": 1000},
        {"source": "S2", "target": "C2", "size": 1000},
    ]
    cases = [
        (dog_bone, [2.0, 2.0]),
        ([{**flow, "at": 10} for flow in dog_bone], [12.0, 12.0]),
        ([fast], [1.001]),
        ([a_b], [1.5]),
        ([c_d], [3.0]),
        ([a_b, a_b], [2.5, 2.5]),
        ([c_d, c_d], [4.0, 4.0]),
    ]
    for flows, expected in cases:
        assert arrivals(flows, tmp_path) == pytest.approx(expected, abs=1e-8)


def test_a_flow_that_joins_later(tmp_path: Path) -> None:
    """The first has 500 of 1,000 bytes by 0.5 s; both have 500 B/s until 1.5 s, and then the second the bar alone."""
    flows = [
        {"source": "S1", "target": "C1", "size": 1000},
        {"source": "S2", "target": "C2", "size": 1000, "at": 0.5},
        {"source": "C1", "target": "S2", "size": 1000},
        {"source": "S1", "target": "C1", "size": 1_000_000},
    ]
    # The other way is another link; the last one has not arrived when the run ends.
    assert arrivals(flows[:3], tmp_path) == [1.5, 2.0, 1.0]
    assert arrivals(flows[3:], tmp_path) == [None]


def test_a_flow_needs_a_route(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no node 'nowhere'"):
        arrivals([{"source": "nowhere", "target": "C1", "size": 1}], tmp_path)
    with pytest.raises(UserError, match="no route from 'C1' to 'C1'"):
        arrivals([{"source": "C1", "target": "C1", "size": 1}], tmp_path)
